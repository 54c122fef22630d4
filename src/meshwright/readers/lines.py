"""Lines of a log as a person reads them: without colours, without the bars that were painted over, without launchers' prefixes.

Whoever looks for something names literal anchors; only lines that hold one are decoded at all, so that gigabytes of other output
cost no more than a search.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from meshwright.readers.needles import PIECE, Needles
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.readers.source import Source

MAX_LINE = 20_000
"""Bytes of a line that are looked at."""
CHUNK = 4 << 20
_AHEAD = 1 << 17
"""Bytes beyond a hit that can be asked for as lines that follow it."""
_NEWLINE = 10
_ENDS = b"\r\n"
_BETWEEN = " \t,|"
_LITTLE = 8192
_AROUND = 600
_TRIED = 400
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]{0,200}\x07|(?<![\w\])])\[[0-9]{1,2}(?:;[0-9]{1,3}){0,4}m(?!s)|\[0m")
"""Escape sequences, and what is left of a colour where somebody took the escape itself away."""
_REMNANT = re.compile(r"\[[0-9;]{1,16}m")
_PREFIX = re.compile(
    r"^\s*(?:\[\d+,(?P<slot>\d+)\]<std(?:out|err)>:|\[?(?:default|rank|Rank)[ _]?(?P<rank>\d+)\]?:|(?P<srun>\d{1,5}):(?!\d)) ?"
)
"""What mpirun, torchrun and srun put before a line of a rank."""


class Line(Value, frozen=True):
    """One line: its number from 1, its text, and the rank that its prefix names."""

    number: int
    text: str
    rank: int | None = None


def cleaned(raw: bytes | bytearray, number: int = 0) -> Line:
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
class _Block:
    """Bytes of a file that begin with a line, in a buffer that is used again for the next ones."""

    content: bytearray
    filled: int
    end: int
    """Where the lines end that are whole; what is behind them can be looked at."""
    number: int = 1
    """Of the line at ``counted``."""
    before: int = 0
    """Bytes of the file that are before it."""
    counted: int = 0
    """Up to here line breaks are counted."""

    def line_at(self, offset: int) -> int:
        """The number of the line that begins there; offsets are asked for in their order."""
        for at in range(self.counted, offset, PIECE):
            stop = min(offset, at + PIECE)
            if stop - at < _LITTLE:
                self.number += self.content.count(b"\n", at, stop)
            else:
                self.number += int(np.count_nonzero(np.frombuffer(self.content, np.uint8, stop - at, at) == _NEWLINE))
        self.counted = max(self.counted, offset)
        return self.number


@dataclass(slots=True)
class Hit:
    """A line that holds strings that were sought; to be used before the next one is asked for."""

    line: Line
    found: tuple[int, ...]
    """Which of them, by their indices."""
    start: int
    """Where it begins in the block."""
    _block: _Block
    _next: int
    """Where the next line begins."""
    ended: bool = True
    """Whether its end is in the file: a line that is still being written has none, nor has one that is longer than what is read."""
    given: int = 0
    """Lines that ``following`` gave."""

    @property
    def whole(self) -> str:
        """Its text, without the last word of a line that has no end: half of a figure is another figure."""
        text = self.line.text
        return text if self.ended else text[: max(text.rstrip().rfind(each) for each in _BETWEEN) + 1]

    def around(self, above: int, below: int) -> tuple[list[str], int]:
        """Lines before it and after it as they stand in the file, as far as they are at hand, and its own place among them."""
        block, first, last = self._block, self.start, self._next
        for _ in range(above):
            first = block.content.rfind(b"\n", 0, max(0, first - 1)) + 1
        for _ in range(below):
            stop = block.content.find(b"\n", last, block.filled)
            last = block.filled if stop < 0 else stop + 1
        own = block.content.count(b"\n", first, self.start)
        raw = bytes(block.content[first:last]).split(b"\n")
        return [each[:MAX_LINE].decode("utf-8", "replace") for each in raw], own

    def following(self, most: int, wanted: Callable[[Line], object] = lambda line: True) -> Iterator[Line]:
        """The next lines up to the first that is not ``wanted``, which are then no hits of their own.

        What is at hand is a hundred thousand characters at least, where the file has them.
        """
        block = self._block
        while self.given < most and self._next < block.filled:
            stop = block.content.find(b"\n", self._next, block.filled)
            stop = block.filled if stop < 0 else stop
            raw = block.content[self._next: min(stop, self._next + MAX_LINE)]
            line = cleaned(raw, self.line.number + self.given + 1)
            if not wanted(line):
                return
            self.given += 1
            self._next = stop + 1
            yield line


@dataclass(slots=True)
class Search:
    """What is sought in a log, and how much of the log there was."""

    needles: Needles
    every: int = 1
    """Of so many pieces of the file one is searched for the thinned strings."""
    lines: int = 0
    """Of the whole file, once it is searched."""
    tail: int = 0
    """From here on everything is sought."""

    def hits(self, source: Source) -> Iterator[Hit]:
        """Lines that hold one of the strings, in order, each once; memory is that of a few chunks.

        A line that was painted over with carriage returns is a line for each layer that holds one. Of a line longer than
        a chunk each piece counts as a line of the same number.
        """
        self.tail = source.size_bytes - CHUNK
        for block in _blocks(source):
            yield from self._within(block)
            self.lines = block.line_at(block.end) - (not block.end or block.content[block.end - 1] == _NEWLINE)

    def spare(self, every: int) -> None:
        """From now on look for nothing but in one of so many pieces, and in the end of the file."""
        self.every = max(self.every, every)
        self.needles.only_where_wanted()

    def _wanted(self, offset: int) -> bool:
        return offset // PIECE % self.every == 0 or offset >= self.tail

    def _within(self, block: _Block) -> Iterator[Hit]:
        places, which = self.needles.places(
            block.content, block.end, block.filled, lambda offset: self._wanted(offset + block.before))
        at, resumed, where, what = 0, 0, places.tolist(), which.tolist()
        while at < len(where):
            start = block.content.rfind(b"\n", 0, where[at]) + 1
            stop = block.content.find(b"\n", where[at], block.end)
            stop = block.end if stop < 0 else stop
            beyond = bisect_left(where, stop, at + 1)
            if start >= resumed:
                number = block.line_at(start)
                for first, last, found in _layers(block.content, start, stop, where[at:beyond], what[at:beyond]):
                    ended = last < block.end and block.content[last] in _ENDS
                    hit = Hit(cleaned(block.content[first:last], number), found, start, block, stop + 1, ended)
                    yield hit
                    resumed = hit._next if hit.given else resumed
            at = beyond


def _blocks(source: Source) -> Iterator[_Block]:
    """The file in pieces of whole lines; a line that is longer than a piece is cut."""
    content = bytearray(CHUNK + _AHEAD)
    view = memoryview(content)
    with source.open() as stream:
        block = _Block(content, 0, 0)
        while read := stream.readinto(view[block.filled:]):  # type: ignore[attr-defined]
            filled = block.filled + read
            end = content.rfind(b"\n", 0, max(0, filled - _AHEAD)) + 1
            if not end and filled < len(content):
                block.filled = filled
                continue
            block.filled, block.end = filled, end or filled
            yield block
            rest = block.filled - block.end
            following = _Block(content, rest, 0, block.line_at(block.end), block.before + block.end)
            view[:rest] = bytes(view[block.end: block.filled])
            block = following
        block.end = block.filled
        yield block


def _layers(
    block: bytearray, start: int, stop: int, places: Sequence[int], which: Sequence[int],
) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Where those layers of a painted-over line begin and end that hold a string, and which; of long ones what is around it."""
    found: dict[tuple[int, int], set[int]] = {}
    for place, index in zip(places, which, strict=True):
        first = block.rfind(b"\r", start, place) + 1 or start
        last = block.find(b"\r", place, stop)
        last = stop if last < 0 else last
        if last - first > MAX_LINE:
            first = max(first, place - MAX_LINE // 2)
            last = min(last, first + MAX_LINE)
            kept = next((span for span in found if span[0] <= place < span[1]), None)
            first, last = kept or (first, last)
        found.setdefault((first, last), set()).add(index)
    for (first, last), strings in found.items():
        yield first, last, tuple(sorted(strings))


def tells(sample: bytes, by: Sequence[bytes], pattern: re.Pattern[str]) -> bool:
    """Whether the pattern holds on a line that has one of the literal texts; the first few hundred of them are tried."""
    places, _ = Needles(by, sample[: 1 << 17]).places(sample, len(sample), len(sample))
    before = 0
    for at in places[:_TRIED].tolist():
        start = max(sample.rfind(b"\n", 0, at) + 1, at - _AROUND)
        stop = sample.find(b"\n", at, at + _AROUND)
        stop = at + _AROUND if stop < 0 else stop
        if stop > before and pattern.search(sample[start:stop].decode("utf-8", "replace")):
            return True
        before = stop
    return False


def anchored(source: Source, anchors: Sequence[bytes], following: int = 0) -> Iterator[list[Line]]:
    """Lines that hold one of the literal anchors, each with so many ``following`` ones; in order, with their numbers.

    Holds:   a line is given once, whether as an anchor's own or as one that follows; memory is that of a few chunks.
    """
    wanted = tuple(anchors)
    for hit in Search(Needles(wanted, source.excerpt)).hits(source):
        if any(wanted[each].decode("utf-8", "replace") in hit.line.text for each in hit.found):
            yield [hit.line, *hit.following(following)]
