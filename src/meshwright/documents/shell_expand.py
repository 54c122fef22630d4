"""Expansion of bash words into text that knows its origin: parameters, arrays, quotes, splitting, arithmetic.

Nothing is executed. What only a running shell can know (an unset variable, what a command prints) becomes an unknown part.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.documents.shell_arithmetic import UnknownNumberError, evaluate, number
from meshwright.documents.shell_parameters import applied, glob_escape
from meshwright.documents.shell_values import Piece, Source, State, Text, Value, joined, literal, unknown
from meshwright.documents.shell_values import shown as readable
from meshwright.documents.shell_words import (
    NAME,
    after_backquote,
    after_bracket,
    after_dollar,
    after_double,
    after_single,
    command_tokens,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_DEPTH = 25
MAX_WORDS = 10_000
_PARAMETER = re.compile(r"(!?)(#?)([A-Za-z_]\w*|\d+|[@*#?$!-])", re.ASCII)
_OPERATOR = re.compile(r":?[-=?+]|##?|%%?|//?|\^\^?|,,?|:|@")
_BRACES = re.compile(r"([^{}$\"'`\\]*)\{(-?\d{1,9}\.\.-?\d{1,9}|[^{}$\"'`\\\s,]*(?:,[^{}$\"'`\\\s,]*)+)\}([^{}$\"'`\\]*)")
_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "f": "\f",
    "v": "\v",
}


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a word: ``fields`` are several for ``$@``; quoted ones are not split,
    ``always`` ones make a word even when empty, ``bare`` ones are plain characters outside quotes."""

    fields: tuple[Text, ...]
    quoted: bool
    always: bool = False
    bare: bool = False


@dataclass(frozen=True, slots=True)
class _Operand:
    """The word of ``${name:-word}``, whose own quotes still count."""

    parts: tuple[Part, ...]


def scalar(source: Source, state: State, start: int, end: int, *, depth: int = 0, quoted: bool = False) -> Text:
    """The value without splitting: assignments, ``case`` words, here-documents (``quoted``)."""
    text = Text(tuple(piece for part in _parts(source, state, start, end, quoted, depth) for piece in joined(part.fields).pieces))
    return state.bounds.made(text)


def pattern(source: Source, state: State, start: int, end: int, *, depth: int = 0) -> tuple[str, bool]:
    """A glob pattern with quoted characters escaped, and whether it is known."""
    result, known = [], True
    for part in _parts(source, state, start, end, False, depth):
        text = joined(part.fields)
        result.append(text.plain if part.bare or not part.quoted else glob_escape(text.plain))
        known &= text.known
    return "".join(result), known


def fields(source: Source, state: State, start: int, end: int) -> list[Text]:
    """The words that one word of a command or of an array becomes."""
    braces = _BRACES.fullmatch(source.plain, start, end)
    if braces:
        return _braces(source, state, braces)
    result: list[Text] = []
    current: list[Piece] = []
    present = False

    def close() -> None:
        nonlocal present
        if present:
            result.append(state.bounds.made(Text(tuple(current))))
            if len(result) > MAX_WORDS:
                raise state.bounds.refusal("words")
        current.clear()
        present = False

    for part in _parts(source, state, start, end, False, 0):
        for index, text in enumerate(part.fields):
            if index:
                close()
            if part.quoted:
                current.extend(text.pieces)
                present = present or part.always or any(piece.text for piece in text.pieces)
                continue
            for piece in text.pieces:
                if piece.unknown:
                    current.append(piece)
                    present = True
                    continue
                offset = 0
                for run in re.finditer(r"[^ \t\n]+", piece.text):
                    if run.start() > offset or (run.start() and not offset):
                        close()
                    current.append(piece.cut(run.start(), run.end()))
                    present, offset = True, run.end()
                if offset < len(piece.text):
                    close()
    close()
    return [source.through(text, start, end) for text in result]


def _braces(source: Source, state: State, match: re.Match[str]) -> list[Text]:
    """``a{b,c}d`` and ``{1..4}`` without anything to expand inside."""
    head, tail = source.literal(*match.span(1)), source.literal(*match.span(3))
    if ".." in match[2] and "," not in match[2]:
        first, last = map(int, match[2].split(".."))
        if abs(last - first) >= MAX_WORDS:
            raise state.bounds.refusal("words")
        step = 1 if last >= first else -1
        middles = [literal(str(value), source.line(match.start())) for value in range(first, last + step, step)]
    else:
        middles, at = [], match.start(2)
        for choice in match[2].split(","):
            middles.append(source.literal(at, at + len(choice)))
            at += len(choice) + 1
    return [source.through(head + middle + tail, match.start(), match.end()) for middle in middles]


def _parts(source: Source, state: State, start: int, end: int, quoted: bool, depth: int) -> Iterable[Part]:
    """Literals, quotes and expansions of ``source[start:end]``; ``quoted``: between double quotes."""
    if depth > MAX_DEPTH:
        raise state.bounds.refusal("nested expansions")
    s, i = source.plain, start
    if not quoted and s.startswith("~", i) and (end == i + 1 or s.startswith("/", i + 1)):
        yield Part((parameter_text(state, "HOME", source.line(i)),), True)
        i += 1
    while i < end:
        c = s[i]
        if c == "\\":
            follower = s[i + 1 : i + 2] if i + 1 < end else ""
            if follower == "\n":
                i += 2
            elif i + 1 == len(s) and not quoted:  # a backslash that ends the file continues nothing
                i += 1
            elif not follower or (quoted and follower not in '$`"\\'):
                yield Part((source.literal(i, i + 1),), True)
                i += 1
            else:
                yield Part((source.literal(i + 1, i + 2),), True, not quoted)
                i += 2
        elif c == "'" and not quoted:
            after = min(end, after_single(s, i))
            yield Part((source.literal(i + 1, max(i + 1, after - 1)),), True, True)
            i = after
        elif c == '"' and not quoted:
            after = min(end, after_double(s, i))
            inside = list(_parts(source, state, i + 1, max(i + 1, after - 1), True, depth + 1))
            if not inside:
                yield Part((Text(),), True, True)
            else:
                # A quoted word is there even when it is empty, unless it is nothing but "$@" of no elements.
                empty = all(not part.fields for part in inside)
                if not empty:
                    yield Part((Text(),), True, True)
                yield from inside
            i = after
        elif c == "`":
            after = min(end, after_backquote(s, i))
            yield Part((_substitution(source, state, i, i + 1, after - 1, after),), quoted)
            i = after
        elif c == "$":
            after = min(end, after_dollar(s, i))
            if after == i + 1:
                if not (s.startswith('"', after) and not quoted and after < end):
                    yield Part((source.literal(i, after),), True)
            elif s[i + 1] == "'":
                if quoted:
                    yield Part((source.literal(i, i + 1),), True)
                    after = i + 1
                else:
                    yield Part((_ansi(source, i + 2, after - 1),), True, True)
            else:
                given = _dollar(source, state, i, after, quoted, depth)
                if isinstance(given, _Operand):
                    for part in given.parts:
                        texts = tuple(source.through(text, i, after) for text in part.fields)
                        yield Part(texts, quoted or (part.quoted and not part.bare), part.always)
                else:
                    yield Part(tuple(source.through(text, i, after) for text in given), quoted, quoted)
            i = after
        else:
            run = re.compile(r"[^\\$`]+" if quoted else r"[^\\$`'\"]+").match(s, i, end)
            after = run.end() if run else i + 1
            yield Part((source.literal(i, after),), True, False, not quoted)
            i = after


def _ansi(source: Source, start: int, end: int) -> Text:
    text = source.plain[start:end]
    if "\\" not in text:
        return source.literal(start, end)

    def plain(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPES.get(code, match[0])

    return literal(re.sub(r"\\(x[0-9a-fA-F]{1,2}|.)", plain, text, flags=re.DOTALL), source.line(start))


def _dollar(source: Source, state: State, start: int, end: int, quoted: bool, depth: int) -> Sequence[Text] | _Operand:
    s, line = source.plain, source.line(start)
    if s.startswith("$((", start) and s.endswith("))", start, end) and after_bracket(s, start + 2, ")") == end - 1:
        return (arithmetic(source, state, start + 3, end - 2, depth + 1),)
    if s[start + 1] == "(":
        return (_substitution(source, state, start, start + 2, end - 1, end),)
    if s[start + 1] == "[":
        return (arithmetic(source, state, start + 2, end - 1, depth + 1),)
    if s[start + 1] == "{":
        return _braced(source, state, start + 2, end - 1, line, quoted, depth + 1)
    name = s[start + 1 : end]
    if name in "@*":
        return _several(state, list(state.positional), name, quoted)
    return (parameter_text(state, name, line),)


def _several(state: State, texts: list[Text], which: str, quoted: bool) -> list[Text]:
    """``$@`` and ``$*``: the latter is one word inside quotes."""
    return [state.bounds.made(joined(texts))] if which == "*" and quoted else texts


def found(state: State, name: str) -> Value | None:
    """The value of a parameter; None where it is not set or not known to be."""
    if name.isdigit():
        index = int(name[:6])
        if index == 0:
            return literal(state.bounds.path) if state.bounds.path else None
        return state.positional[index - 1] if index <= len(state.positional) else None
    if name == "#":
        return literal(str(len(state.positional))) if state.arguments_given else None
    if name in ("@", "*"):
        return joined(state.positional) if state.positional else None
    return state.variables.get(name)


def parameter_text(state: State, name: str, line: int) -> Text:
    """``$name``: the first element of an array, nothing where it was unset on purpose, unknown where it was never set."""
    value = found(state, name)
    if isinstance(value, list):
        return value[0] if value else Text()
    if isinstance(value, dict):
        return value.get("0", Text())
    if value is None:
        empty = name in state.unset or (name.isdigit() and state.arguments_given)
        return Text() if empty else unknown(name, line)
    return value


def _braced(source: Source, state: State, start: int, end: int, line: int, quoted: bool, depth: int) -> list[Text] | _Operand:
    """What ``${...}`` gives."""
    s = source.plain
    match = _PARAMETER.match(s, start, end)
    if match and match[2] and match.end() == end and match[3] in "-?" and not match[1]:  # ${#-...} is an operator on $#
        match = None
    if s.startswith("#", start) and end == start + 1:
        return [parameter_text(state, "#", line)]
    if not match:
        return [unknown(s[start - 2 : end + 1][:60], line)]
    indirect, length, name = match.groups()
    at, which, index = match.end(), "", None
    if s.startswith("[", at):
        close = after_bracket(s, at, "]")
        index = (at + 1, close - 1)
        which = s[at + 1 : close - 1]
        at = close
    shown = s[start - 2 : end + 1][:60]
    if indirect:
        if which in ("@", "*"):
            value = found(state, name)
            keys = range(len(value)) if isinstance(value, list) else value if isinstance(value, dict) else ()
            return [literal(str(key), line) for key in keys]
        pointed = parameter_text(state, name, line)
        if not pointed.known or not NAME.fullmatch(pointed.plain):
            return [unknown(shown, line)]
        name = pointed.plain
    value = state.positional if name in ("@", "*") else found(state, name)
    all_of = name in ("@", "*") or which in ("@", "*")
    missing = value is None and name not in state.unset and not (name.isdigit() and state.arguments_given)
    texts: list[Text]
    if all_of:
        whole = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else [value] if value else []
        if length:
            return [unknown(name, line) if missing else literal(str(len(whole)), line)]
        texts = list(whole)
    elif index is not None:
        element = _element(source, state, value, name, index, line, depth)
        texts, missing = ([] if element is None else [element]), element is None and value is None and missing
    else:
        texts = [] if value is None else [parameter_text(state, name, line)]
    if length:
        text = joined(texts)
        return [literal(str(len(readable(text.plain))), line) if text.known and not missing else unknown(shown, line)]
    operator = _OPERATOR.match(s, at, end)
    if at < end and not operator:
        return [unknown(shown, line)]
    if operator and operator[0].lstrip(":") in ("-", "=", "?", "+") and operator[0] != ":":
        return _defaulted(source, state, name, texts, operator, end, quoted, depth, line, which if all_of else "")
    if missing:
        return [unknown(name, line)]
    if operator:
        texts = applied(
            source, state, texts, operator[0], operator.end(), end, line, depth, shown,
            many=all_of, pattern=pattern, scalar=scalar, arithmetic=arithmetic, positional=name in ("@", "*"),
        )
    if all_of:
        return _several(state, texts, name if name in ("@", "*") else which, quoted)
    return texts or [Text()]


def _element(
    source: Source, state: State, value: Value | None, name: str, index: tuple[int, int], line: int, depth: int
) -> Text | None:
    """``${name[index]}``; None where there is no such element."""
    if isinstance(value, dict):
        return value.get(scalar(source, state, *index, depth=depth).plain)
    position = arithmetic(source, state, *index, depth)
    if not position.known:
        return unknown(name, line)
    if isinstance(value, Text):
        value = [value]
    i = int(position.plain)
    return value[i] if value and -len(value) <= i < len(value) else None


def _defaulted(
    source: Source, state: State, name: str, texts: list[Text], operator: re.Match[str], end: int,
    quoted: bool, depth: int, line: int, which: str,
) -> list[Text] | _Operand:
    """``:-``, ``:=``, ``:?``, ``:+`` and the same without the colon."""
    kind, colon = operator[0].lstrip(":"), operator[0].startswith(":")
    text = joined(texts)
    if texts and colon and not text.known and all(piece.unknown or not piece.text for piece in text.pieces):
        present: bool | None = None  # set, but whether it is empty is not known
    else:
        present = bool(texts) and bool(text.plain or not colon)
    if present is None:
        return [unknown(text.unknowns[0], line)]
    if kind == "+":
        return _operand(source, state, operator.end(), end, quoted, depth) if present else [Text()]
    if present:
        return _several(state, texts, which, quoted) if which else [text]
    if kind == "?":
        return [unknown(name, line)]
    default = _operand(source, state, operator.end(), end, quoted, depth)
    if kind == "=":
        value = Text(tuple(piece for part in default.parts for piece in joined(part.fields).pieces))
        state.assign(name, state.bounds.made(value))
        return [value]
    return default


def _operand(source: Source, state: State, start: int, end: int, quoted: bool, depth: int) -> _Operand:
    """``word`` of ``${name:-word}``; between double quotes its own double quotes vanish."""
    if not quoted:
        return _Operand(tuple(_parts(source, state, start, end, False, depth)))
    parts: list[Part] = []
    s, i, begin = source.plain, start, start
    while i <= end:
        if i == end or s[i] == '"':
            parts.extend(_parts(source, state, begin, i, True, depth))
            begin = i = i + 1
        else:
            i = min(end, i + 2 if s[i] == "\\" else after_dollar(s, i) if s[i] == "$" else i + 1)
    return _Operand(tuple(parts))


def arithmetic(source: Source, state: State, start: int, end: int, depth: int = 0) -> Text:
    """The value of an arithmetic expression, or what in it is not known."""
    line = source.line(start)
    if depth > MAX_DEPTH:
        raise state.bounds.refusal("nested expansions")
    text = scalar(source, state, start, end, depth=depth + 1, quoted=True)
    if not text.known:
        return unknown(text.unknowns[0], line)
    nesting = 0

    def get(name: str) -> int:
        nonlocal nesting
        state.bounds.step()
        value = parameter_text(state, name, line)
        if not value.known:
            raise UnknownNumberError(value.unknowns[0])
        plain = value.plain.strip()
        if re.fullmatch(r"-?\d+", plain, re.ASCII):
            return -number(plain[1:]) if plain.startswith("-") else number(plain)
        nesting += 1
        if nesting > 3:
            raise UnknownNumberError(name)
        try:
            return evaluate(plain, get, put)
        finally:
            nesting -= 1

    def put(name: str, value: int) -> None:
        state.assign(name, literal(str(value), line))

    try:
        return literal(str(evaluate(text.plain.replace('"', ""), get, put)), line)
    except UnknownNumberError as error:
        return unknown(str(error.args[0]) or "an expression", line)


def _substitution(source: Source, state: State, start: int, inside: int, end: int, after: int) -> Text:
    """``$(...)``: known for the few commands whose output follows from their words."""
    s, line = source.plain, source.line(start)
    name = " ".join(s[start:after].split())[:60]
    first = re.compile(r"[ \t\n]*").match(s, inside, end)
    tokens, stop = command_tokens(s, first.end() if first else inside, end)
    if s[stop:end].strip(" \t\n;") or not tokens or any(token.kind != "word" for token in tokens):
        return unknown(name, line)
    if s[tokens[0].start : tokens[0].end] not in ("echo", "expr", "basename", "dirname"):
        return unknown(name, line)
    words = [text for token in tokens for text in fields(source, state, token.start, token.end)]
    program, words = words[0].plain, words[1:]
    if not all(word.known for word in words) or any(word.plain in ("-e", "-E") for word in words[:1]):
        return unknown(name, line)
    plain = [word.plain for word in words]
    if program == "echo":
        return joined(words[1:] if plain[:1] == ["-n"] else words)
    if program == "expr":
        return arithmetic(Source(literal(" ".join(plain), line), nested=True), state, 0, len(" ".join(plain)), 1)
    if len(plain) not in (1, 2) or plain[0].startswith("-") or not plain[0].strip("/"):
        return unknown(name, line)
    stripped = plain[0].rstrip("/")
    if program == "dirname":
        head = stripped.rpartition("/")
        return literal((head[0].rstrip("/") or "/") if head[1] else ".", line)
    base = stripped.rpartition("/")[2]
    suffix = plain[1] if len(plain) > 1 else ""
    return literal(base[: -len(suffix)] if suffix and base != suffix and base.endswith(suffix) else base, line)
