"""The operators of ``${name...}`` that cut, replace and recase, on text that keeps its origin."""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from meshwright.documents.shell_values import Source, State, Text, unknown

if TYPE_CHECKING:
    from meshwright.documents.shell_parts import Expander

MAX_SUBJECT = 2000
"""Characters that a pattern is tried on, because every cut of them is tried."""


def glob_escape(text: str) -> str:
    """``text`` as a pattern that matches only itself."""
    return re.sub(r"([*?\[])", r"[\1]", text)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(re.sub(r"\\(.)", lambda m: glob_escape(m[1]), pattern)))


def glob_match(pattern: str, text: str) -> bool | None:
    """Whether bash's ``pattern`` matches the whole text; None where it is beyond what is tried."""
    if len(pattern) > MAX_SUBJECT or len(text) > 20 * MAX_SUBJECT or re.search(r"[@!+?*]\(|\[\[:", pattern):
        return None
    return _compiled(pattern).match(text) is not None


def applied(
    into: Expander, source: Source, state: State, texts: list[Text], operator: str, start: int, end: int, line: int, depth: int,
    shown: str, *, many: bool, positional: bool,
) -> list[Text]:
    """Each of ``texts`` after one operator whose operand stands at ``start`` to ``end``."""
    if operator == ":":
        return _sliced(into, source, state, texts, start, end, line, depth, shown, many=many, positional=positional)
    if operator in ("/", "//"):
        return _replaced(into, source, state, texts, operator, start, end, line, depth, shown)
    if operator in ("^", "^^", ",", ",,"):
        return [_recased(text, operator) if start == end and text.known else unknown(shown, line) for text in texts]
    if operator in ("#", "##", "%", "%%"):
        glob, known = into.pattern(source, state, start, end, depth=depth)
        return [_trimmed(text, operator, glob) if known and text.known else None or unknown(shown, line) for text in texts]
    return [unknown(shown, line) for _ in texts]


def _trimmed(text: Text, operator: str, glob: str) -> Text:
    plain = text.plain
    size = len(plain)
    if size > MAX_SUBJECT:
        return unknown("${...}", text.line)
    front = operator.startswith("#")
    cuts = range(size + 1) if (operator in ("#", "%%")) else range(size, -1, -1)
    for cut in cuts:
        if glob_match(glob, plain[:cut] if front else plain[cut:]):
            return text.cut(cut, size) if front else text.cut(0, cut)
    return text


def _recased(text: Text, operator: str) -> Text:
    def change(plain: str) -> str:
        head, tail = (plain, "") if len(operator) == 2 else (plain[:1], plain[1:])
        return (head.upper() if operator[0] == "^" else head.lower()) + tail

    if not text.plain.isascii():
        return unknown("${...}", text.line)
    changed = change(text.plain)
    return text if changed == text.plain else Text((type(text.pieces[0])(changed, -1, text.line),))


def _sliced(
    into: Expander, source: Source, state: State, texts: list[Text], start: int, end: int, line: int, depth: int, shown: str,
    *, many: bool, positional: bool,
) -> list[Text]:
    colon = source.plain.find(":", start, end)
    numbers = [into.arithmetic(source, state, start, colon if colon >= 0 else end, depth)]
    if colon >= 0:
        numbers.append(into.arithmetic(source, state, colon + 1, end, depth))
    if not all(number.known for number in numbers) or not all(text.known for text in texts if not many):
        return [unknown(shown, line)]
    offset, count = int(numbers[0].plain), int(numbers[1].plain) if len(numbers) > 1 else None
    if many and positional:
        if offset < 1:
            return [unknown(shown, line)]
        offset -= 1

    def bounds(size: int) -> tuple[int, int]:
        first = offset if offset >= 0 else size + offset
        last = size if count is None else first + count if count >= 0 else size + count
        return (max(first, 0), max(last, first, 0)) if first >= 0 else (size, size)

    if many:
        first, last = bounds(len(texts))
        return texts[first:last]
    return [text.cut(*bounds(len(text.plain))) for text in texts]


def _replaced(
    into: Expander, source: Source, state: State, texts: list[Text], operator: str, start: int, end: int, line: int, depth: int,
    shown: str,
) -> list[Text]:
    s = source.plain
    slash = start
    while slash < end and s[slash] != "/":
        slash += 2 if s[slash] == "\\" else 1
    slash = min(slash, end)
    glob, known = into.pattern(source, state, start, slash, depth=depth)
    replacement = into.scalar(source, state, min(slash + 1, end), end, depth=depth)
    if not known or not replacement.known or not glob or glob[0] in "#%" or re.search(r"[@!+?*]\(|\[\[:", glob):
        return [unknown(shown, line) for _ in texts]
    result = []
    for text in texts:
        plain = text.plain
        if not text.known or len(plain) > MAX_SUBJECT:
            result.append(unknown(shown, line))
            continue
        if glob.count("*") > 2:
            result.append(unknown(shown, line))
            continue
        regex = re.compile(
            fnmatch.translate(re.sub(r"\\(.)", lambda m: glob_escape(m[1]), glob)).replace(r"\Z", "").replace("(?>.*?", "(?:.*?")
        )
        built, offset = Text(), 0
        for match in regex.finditer(plain):
            if match.end() == match.start():
                continue
            built = built + text.cut(offset, match.start()) + replacement
            offset = match.end()
            if operator == "/":
                break
        result.append(state.bounds.made(built + text.cut(offset, len(plain))))
    return result
