"""Expansion of bash words into text that knows its origin: parameters, arrays, quotes, splitting, arithmetic.

Nothing is executed. What only a running shell can know (an unset variable, what a command prints) becomes an unknown part.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.documents.shell_arithmetic import UnknownNumberError, evaluate, number
from meshwright.documents.shell_braced import braced
from meshwright.documents.shell_literals import BRACES, MAX_WORDS, ansi, braces
from meshwright.documents.shell_lookup import parameter_text, several
from meshwright.documents.shell_parameters import glob_escape
from meshwright.documents.shell_parts import Expander, Operand, Part
from meshwright.documents.shell_programs import KNOWN, printed
from meshwright.documents.shell_values import Piece, Source, State, Text, joined, literal, unknown
from meshwright.documents.shell_words import (
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
_WORD = re.compile(r"(?:<[A-Za-z][^<>\n]*>|[^ \t\n])+")
"""A word of an expansion; what documentation leaves to be filled in, ``<some dir>``, is one, as what will stand there."""


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
    match = BRACES.fullmatch(source.plain, start, end)
    if match:
        return braces(source, state, match)
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
                for run in _WORD.finditer(piece.text):
                    if run.start() > offset or (run.start() and not offset):
                        close()
                    current.append(piece.cut(run.start(), run.end()))
                    present, offset = True, run.end()
                if offset < len(piece.text):
                    close()
    close()
    return [source.through(text, start, end) for text in result]


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
                    yield Part((ansi(source, i + 2, after - 1),), True, True)
            else:
                given = _dollar(source, state, i, after, quoted, depth)
                if isinstance(given, Operand):
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


def _dollar(source: Source, state: State, start: int, end: int, quoted: bool, depth: int) -> Sequence[Text] | Operand:
    s, line = source.plain, source.line(start)
    if s.startswith("$((", start) and s.endswith("))", start, end) and after_bracket(s, start + 2, ")") == end - 1:
        return (arithmetic(source, state, start + 3, end - 2, depth + 1),)
    if s[start + 1] == "(":
        return (_substitution(source, state, start, start + 2, end - 1, end),)
    if s[start + 1] == "[":
        return (arithmetic(source, state, start + 2, end - 1, depth + 1),)
    if s[start + 1] == "{":
        return braced(_INTO, source, state, start + 2, end - 1, line, quoted, depth + 1)
    name = s[start + 1 : end]
    if name in "@*":
        return several(state, list(state.positional), name, quoted)
    return (parameter_text(state, name, line),)


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
    if s[tokens[0].start : tokens[0].end] not in KNOWN:
        return unknown(name, line)
    words = [text for token in tokens for text in fields(source, state, token.start, token.end)]
    program, words = words[0].plain, words[1:]
    if not all(word.known for word in words) or any(word.plain in ("-e", "-E") for word in words[:1]):
        return unknown(name, line)
    if program == "expr":
        expression = " ".join(word.plain for word in words)
        return arithmetic(Source(literal(expression, line), nested=True), state, 0, len(expression), 1)
    given = printed(program, words, line)
    return unknown(name, line) if given is None else given


_INTO = Expander(parts=_parts, scalar=scalar, pattern=pattern, arithmetic=arithmetic)
