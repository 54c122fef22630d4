"""Lines of a log as a person reads them: without colours, without the bars that were painted over, without launchers' prefixes.

Whoever looks for something names literal anchors; only lines that hold one are decoded at all, so that gigabytes of other output
cost no more than a search.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.readers.source import Source

MAX_LINE = 20_000
"""Bytes of a line that are looked at."""
CHUNK = 8 << 20
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]{0,200}\x07|(?<![\w\])])\[(?:[0-9]{1,2}(?:;[0-9]{1,3}){0,4})?m")
"""Escape sequences, and what is left of a colour where somebody took the escape itself away."""
_PREFIX = re.compile(
    r"^\s*(?:\[\d+,(?P<slot>\d+)\]<std(?:out|err)>:|\[?(?:default|rank|Rank)[ _]?(?P<rank>\d+)\]?:|(?P<srun>\d{1,5}):(?!\d)) ?"
)
"""What mpirun, torchrun and srun put before a line of a rank."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its number from 1, its text, and the rank that its prefix names."""

    number: int
    text: str
    rank: int | None = None


def cleaned(raw: bytes, number: int = 0) -> Line:
    """One raw line, decoded and rid of what is not its own: of a line painted over by carriage returns the last layer with text.

    >>> cleaned(b"[1,3]<stdout>: iteration 5", 7)
    Line(number=7, text='iteration 5', rank=3)
    """
    text = raw[:MAX_LINE].decode("utf-8", "replace").rstrip("\r\n")
    if "\r" in text:
        text = next((part for part in reversed(text.split("\r")) if part.strip()), "")
    if "\x1b" in text or "m" in text:
        text = _COLOUR.sub("", text)
    found = _PREFIX.match(text)
    if found is None:
        return Line(number, text)
    rank = found["slot"] or found["rank"] or found["srun"]
    return Line(number, text[found.end():], int(rank))


def lines(source: Source) -> Iterator[Line]:
    """Every line. For small files and for formats whose records span lines; of a large log ask for ``anchored`` ones."""
    with source.open() as stream:
        number = 0
        while raw := stream.readline(MAX_LINE + 1):
            number += 1
            yield cleaned(raw, number)
            while len(raw) > MAX_LINE and not raw.endswith(b"\n"):
                raw = stream.readline(MAX_LINE + 1)


def anchored(source: Source, anchors: Sequence[bytes], following: int = 0) -> Iterator[list[Line]]:
    """Lines that hold one of the literal anchors, each with so many ``following`` ones; in order, with their numbers.

    Holds:   a line is given once, whether as an anchor's own or as one that follows; memory is that of a chunk.
    """
    pattern = re.compile(b"|".join(re.escape(each) for each in anchors))
    with source.open() as stream:
        number, rest = 1, b""
        while chunk := stream.read(CHUNK):
            block = rest + chunk
            end = block.rfind(b"\n") + 1
            if not end and len(block) < 4 * CHUNK:
                rest = block
                continue
            yield from _within(block[:end] if end else block, number, pattern, following)
            number += block.count(b"\n", 0, end)
            rest = block[end:] if end else b""
        if rest:
            yield from _within(rest, number, pattern, following)


def _within(block: bytes, number: int, pattern: re.Pattern[bytes], following: int) -> Iterator[list[Line]]:
    at = counted = 0
    while found := pattern.search(block, at):
        start = block.rfind(b"\n", 0, found.start()) + 1
        number += block.count(b"\n", counted, start)
        counted = start
        group, here = [], start
        for index in range(1 + following):
            stop = block.find(b"\n", here)
            stop = len(block) if stop < 0 else stop
            if here < len(block):
                group.append(cleaned(block[here:stop], number + index))
            here = stop + 1
        yield group
        at = min(len(block), block.find(b"\n", found.end()) + 1 or len(block)) if not following else min(len(block), here)
