"""Words that nothing has to be known for: ``{1..4}``, ``a{b,c}d``, ``$'\\n'``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.documents.shell_values import Text, literal

if TYPE_CHECKING:
    from meshwright.documents.shell_values import Source, State

MAX_WORDS = 10_000
BRACES = re.compile(r"([^{}$\"'`\\]*)\{(-?\d{1,9}\.\.-?\d{1,9}|[^{}$\"'`\\\s,]*(?:,[^{}$\"'`\\\s,]*)+)\}([^{}$\"'`\\]*)")
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


def braces(source: Source, state: State, match: re.Match[str]) -> list[Text]:
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


def ansi(source: Source, start: int, end: int) -> Text:
    """``$'...'``: what its escapes stand for."""
    text = source.plain[start:end]
    if "\\" not in text:
        return source.literal(start, end)

    def plain(match: re.Match[str]) -> str:
        code = match[1]
        return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPES.get(code, match[0])

    return literal(re.sub(r"\\(x[0-9a-fA-F]{1,2}|.)", plain, text, flags=re.DOTALL), source.line(start))
