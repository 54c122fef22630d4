"""Lines of a log as a person reads them: without colours, without the bars that were painted over, without launchers' prefixes.

Whoever looks for something names literal anchors; only lines that hold one are decoded at all, so that gigabytes of other output
cost no more than a search.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from meshwright.readers.needles import Needles, folded
from meshwright.readers.source import SAMPLE

if TYPE_CHECKING:
    from meshwright.readers.source import Source

MAX_LINE = 20_000
"""Bytes of a line that are looked at."""
CHUNK = 1 << 20
WINDOW = 1 << 18
"""Bytes of a file that are read or left together where not all is read."""
_AHEAD = 1 << 17
"""Bytes beyond a hit that can be asked for as lines that follow it."""
_NEWLINE = 10
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]{0,200}\x07|(?<![\w\])])\[(?:[0-9]{1,2}(?:;[0-9]{1,3}){0,4})?m")
"""Escape sequences, and what is left of a colour where somebody took the escape itself away."""
_REMNANT = re.compile(r"\[[0-9;]{0,16}m")
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
    if "\x1b" in text or _REMNANT.search(text):
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


@dataclass(slots=True)
class Hit:
    """A line that holds strings that were sought."""

    line: Line
    found: tuple[int, ...]
    """Which of them, by their indices."""
    _block: bytes
    _next: int
    """Where the next line begins."""
    given: int = 0
    """Lines that ``following`` gave."""

    def following(self, most: int) -> Iterator[Line]:
        """The next lines, which are then no hits of their own; a few thousand characters at least are there."""
        at = self._next
        while self.given < most and at < len(self._block):
            stop = self._block.find(b"\n", at)
            stop = len(self._block) if stop < 0 else stop
            self.given += 1
            yield cleaned(self._block[at: min(stop, at + MAX_LINE)], self.line.number + self.given)
            at = stop + 1


@dataclass(slots=True)
class Search:
    """What is sought in a log, and how much of the log there was."""

    needles: Needles
    thinned: frozenset[int] = frozenset()
    """Those strings of which only every so many are wanted."""
    every: int = 1
    """Of so many windows of the file one is searched for the thinned ones."""
    lines: int = 0
    """Of the whole file, once it is searched."""

    def hits(self, source: Source) -> Iterator[Hit]:
        """Lines that hold one of the strings, in order, each once; memory is that of a few chunks.

        A line that was painted over with carriage returns is a line for each layer that holds one. Of a line longer than
        a chunk each piece counts as a line of the same number.
        """
        with source.open() as stream:
            number, before, rest = 1, 0, b""
            while chunk := stream.read(CHUNK):
                block = rest + chunk
                end = block.rfind(b"\n", 0, max(0, len(block) - _AHEAD)) + 1
                if not end and len(block) < 2 * CHUNK:
                    rest = block
                    continue
                end = end or len(block)
                yield from self._within(block, end, number, before)
                number += _breaks(block, end)
                before += end
                rest = block[end:]
            yield from self._within(rest, len(rest), number, before)
            self.lines = number - 1 + rest.count(b"\n") + (bool(rest) and not rest.endswith(b"\n"))

    def _within(self, block: bytes, end: int, number: int, before: int) -> Iterator[Hit]:
        """Hits in the first ``end`` bytes of a block, whose first line has the number, and which so many bytes are before."""
        offsets, words = self.needles.candidates(block[:end])
        if self.every > 1 and len(offsets):
            rare = [word for word, found in self.needles.of.items() if not found <= self.thinned]
            wanted = ((offsets + before) // WINDOW % self.every == 0) | np.isin(words, rare)
            offsets, words = offsets[wanted], words[wanted]
        if not len(offsets):
            return
        breaks = np.flatnonzero(np.frombuffer(block, np.uint8, end) == _NEWLINE)
        starts = np.searchsorted(breaks, offsets)
        skipped = -1
        for index, group in groupby(zip(starts.tolist(), words.tolist(), strict=True), key=itemgetter(0)):
            if index <= skipped:
                continue
            may = frozenset(each for word in {word for _, word in group} for each in self.needles.of.get(word, ()))
            if not may:
                continue
            start = int(breaks[index - 1]) + 1 if index else 0
            stop = int(breaks[index]) if index < len(breaks) else end
            for raw in _layers(block[start:stop]):
                if found := self.needles.within(raw, may):
                    hit = Hit(cleaned(self._cut(raw, found), number + index), found, block, stop + 1)
                    yield hit
                    skipped = max(skipped, index + hit.given)

    def _cut(self, raw: bytes, found: tuple[int, ...]) -> bytes:
        """Of a very long line what is around the first string."""
        if len(raw) <= MAX_LINE:
            return raw
        at = max(0, min(folded(raw).find(self.needles.needles[each]) for each in found) - MAX_LINE // 2)
        return raw[at: at + MAX_LINE]


def _breaks(block: bytes, end: int) -> int:
    """Line breaks, counted in pieces that stay in a cache."""
    content = np.frombuffer(block, np.uint8, end)
    return sum(int(np.count_nonzero(content[at: at + WINDOW] == _NEWLINE)) for at in range(0, end, WINDOW))


def _layers(raw: bytes) -> list[bytes]:
    return raw.rstrip(b"\r").split(b"\r") if b"\r" in raw else [raw]


def anchored(source: Source, anchors: Sequence[bytes], following: int = 0) -> Iterator[list[Line]]:
    """Lines that hold one of the literal anchors, each with so many ``following`` ones; in order, with their numbers.

    Holds:   a line is given once, whether as an anchor's own or as one that follows; memory is that of a few chunks.
    """
    wanted = tuple(anchors)
    for hit in Search(Needles(wanted, source.sample[:SAMPLE])).hits(source):
        if any(wanted[each].decode("utf-8", "replace") in hit.line.text for each in hit.found):
            yield [hit.line, *hit.following(following)]
