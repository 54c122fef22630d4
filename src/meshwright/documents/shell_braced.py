"""``${...}``: which parameter it names, which of its elements, and what stands for it where it is not set."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.documents.shell_lookup import found, parameter_text, several
from meshwright.documents.shell_parameters import applied
from meshwright.documents.shell_parts import Operand, Part
from meshwright.documents.shell_values import Text, joined, literal, unknown
from meshwright.documents.shell_values import shown as readable
from meshwright.documents.shell_words import NAME, after_bracket, after_dollar

if TYPE_CHECKING:
    from meshwright.documents.shell_parts import Expander
    from meshwright.documents.shell_values import Source, State, Value

_PARAMETER = re.compile(r"(!?)(#?)([A-Za-z_]\w*|\d+|[@*#?$!-])", re.ASCII)
_OPERATOR = re.compile(r":?[-=?+]|##?|%%?|//?|\^\^?|,,?|:|@")


def braced(
    into: Expander, source: Source, state: State, start: int, end: int, line: int, quoted: bool, depth: int
) -> list[Text] | Operand:
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
        element = _element(into, source, state, value, name, index, line, depth)
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
        return _defaulted(into, source, state, name, texts, operator, end, quoted, depth, line, which if all_of else "")
    if missing:
        return [unknown(name, line)]
    if operator:
        texts = applied(
            into, source, state, texts, operator[0], operator.end(), end, line, depth, shown,
            many=all_of, positional=name in ("@", "*"),
        )
    if all_of:
        return several(state, texts, name if name in ("@", "*") else which, quoted)
    return texts or [Text()]


def _element(
    into: Expander, source: Source, state: State, value: Value | None, name: str, index: tuple[int, int], line: int, depth: int
) -> Text | None:
    """``${name[index]}``; None where there is no such element."""
    if isinstance(value, dict):
        return value.get(into.scalar(source, state, *index, depth=depth).plain)
    position = into.arithmetic(source, state, *index, depth)
    if not position.known:
        return unknown(name, line)
    if isinstance(value, Text):
        value = [value]
    i = int(position.plain)
    return value[i] if value and -len(value) <= i < len(value) else None


def _defaulted(
    into: Expander, source: Source, state: State, name: str, texts: list[Text], operator: re.Match[str], end: int,
    quoted: bool, depth: int, line: int, which: str,
) -> list[Text] | Operand:
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
        return _operand(into, source, state, operator.end(), end, quoted, depth) if present else [Text()]
    if present:
        return several(state, texts, which, quoted) if which else [text]
    if kind == "?":
        return [unknown(name, line)]
    default = _operand(into, source, state, operator.end(), end, quoted, depth)
    if kind == "=":
        value = Text(tuple(piece for part in default.parts for piece in joined(part.fields).pieces))
        state.assign(name, state.bounds.made(value))
        return [value]
    return default


def _operand(into: Expander, source: Source, state: State, start: int, end: int, quoted: bool, depth: int) -> Operand:
    """``word`` of ``${name:-word}``; between double quotes its own double quotes vanish."""
    if not quoted:
        return Operand(tuple(into.parts(source, state, start, end, False, depth)))
    parts: list[Part] = []
    s, i, begin = source.plain, start, start
    while i <= end:
        if i == end or s[i] == '"':
            parts.extend(into.parts(source, state, begin, i, True, depth))
            begin = i = i + 1
        else:
            i = min(end, i + 2 if s[i] == "\\" else after_dollar(s, i) if s[i] == "$" else i + 1)
    return Operand(tuple(parts))
