"""DeepSpeed's log of collectives, line by line or as its table; rates there are bits per second, sizes powers of 1024."""

from __future__ import annotations

import re
from collections.abc import Iterator

from meshwright.domain.observed import Bandwidth, Bandwidths
from meshwright.readers.formats import Format
from meshwright.readers.lines import Hit, Line, Search, tells
from meshwright.readers.needles import Needles
from meshwright.readers.pairs import number, size
from meshwright.readers.source import Source
from meshwright.units import GIGA, MILLI

_LINE = re.compile(
    r"comm op: (?P<operation>[\w ]{1,60}?)(?: \| \[Caller Func: (?P<caller>[^\]]{1,80})\])? \| time \(ms\): (?P<time>[\d.]{1,20})"
    r" \| msg size: (?P<size>[\d.]{1,20} ?[KMGT]?B) \| algbw \(Gbps\): (?P<algbw>[\d.]{1,20})\s{0,4}"
    r" \| busbw \(Gbps\): (?P<busbw>[\d.]{1,20})")
_HEAD = re.compile(r"Comm\. Op\s{1,60}Message Size\s{1,60}Count\s{1,60}Total Latency\s?\(ms\)")
_OPERATION = re.compile(r"^\s{0,8}([a-z][\w ]{1,60}?)(?: \| \[Caller Func: ([^\]]{1,80})\])?\s*$")
_ROW = re.compile(r"^\s{1,80}([\d.]{1,20} ?[KMGT]?B)\s{1,40}(\d{1,12})((?:\s{1,40}[\d.]{1,24}){4,8})\s*$")
_TELLS = re.compile(f"{_HEAD.pattern}|comm op: \\w")
MOST_ROWS = 5000
BITS = 8


def _read(source: Source) -> tuple[Bandwidths, ...]:
    rows: list[Bandwidth] = []
    for hit in Search(Needles((b"| comm op: ", b"comm op: ", b"Message Size"), source.excerpt)).hits(source):
        if len(rows) >= MOST_ROWS:
            break
        rows += _table(hit) if _HEAD.search(hit.line.text) else _single(hit.line)
    if not rows:
        return ()
    notes = (f"Only the first {MOST_ROWS:,} rows are kept.",) if len(rows) >= MOST_ROWS else ()
    return (Bandwidths(file=source.shown, format=FORMAT.name, rows=tuple(rows), notes=notes),)


def _single(line: Line) -> Iterator[Bandwidth]:
    for found in _LINE.finditer(line.text):
        milliseconds = number(found["time"])
        yield _row(found["operation"], found["caller"], found["size"], milliseconds, found["algbw"], found["busbw"], line.number, 1)


def _table(hit: Hit) -> Iterator[Bandwidth]:
    """Rows under their operation; the mean latency is the third figure behind the size, the rates follow."""
    operation, caller = "", ""
    for line in hit.following(MOST_ROWS, _of_table):
        row, name = _ROW.match(line.text), _OPERATION.match(line.text)
        if row is not None and operation:
            figures = row[3].split()
            algorithm, bus = figures[2:4]
            yield _row(operation, caller, row[1], number(figures[1]), algorithm, bus, line.number, int(row[2]))
        elif name is not None:
            operation, caller = name[1], name[2] or ""


def _of_table(line: Line) -> bool:
    return not line.text.strip() or bool(_ROW.match(line.text) or _OPERATION.match(line.text))


def _row(
    operation: str, caller: str | None, message: str, milliseconds: float | None, algorithm: str, bus: str, line: int, count: int,
) -> Bandwidth:
    return Bandwidth(
        operation=operation, message_bytes=size(message) or 0.0, time_s=None if milliseconds is None else milliseconds * MILLI,
        algorithm_bytes_per_s=(number(algorithm) or 0.0) * GIGA / BITS, bus_bytes_per_s=(number(bus) or 0.0) * GIGA / BITS,
        line=line, count=count, group=caller or "",
    )


FORMAT = Format(
    name="deepspeed_comms", says="DeepSpeed's log of its collectives",
    told=lambda sample: tells(sample, (b"Comm. Op ", b"comm op: "), _TELLS), read=_read,
)
