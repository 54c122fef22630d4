"""Tables of nccl-tests and rccl-tests: a row a size, out of place and in place. The average over all sizes is left alone.

Columns are told by their types, so that headers, per-iteration columns, time stamps and launchers' prefixes between columns do not
matter (``src/util.cu`` of NVIDIA/nccl-tests).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.observed import Bandwidth, Bandwidths, Place, Sign
from meshwright.readers.formats import Format
from meshwright.readers.lines import anchored
from meshwright.readers.loose import amount
from meshwright.readers.network.rates import MAX_RANKS, ranks_of
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.readers.source import Source

TYPES = ("int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "float", "double", "bfloat16", "f8e4m3", "f8e5m2",
         "fp8_e4m3", "fp8_e5m2")
REDUCTIONS = ("sum", "prod", "max", "min", "avg", "mulsum", "none")
HEADS = (b"_perf", b"#  Rank", b"# Rank", b"# Collective test starting", b"Per-Iteration")
MAX_ROWS = 100_000
NAMES = {
    "all_reduce_perf": "AllReduce", "all_gather_perf": "AllGather", "reduce_scatter_perf": "ReduceScatter",
    "alltoall_perf": "AlltoAll", "alltoallv_perf": "AlltoAllv", "broadcast_perf": "Broadcast",
    "reduce_perf": "Reduce", "sendrecv_perf": "SendRecv", "gather_perf": "Gather", "scatter_perf": "Scatter",
    "hypercube_perf": "HyperCube",
}

REDUCES = "?"
"""An operation that reduces and is not named: the rates tell which."""

_ROW = re.compile(rf"(?<![\d.])(\d{{1,18}})\s+(\d{{1,18}})\s+({'|'.join(TYPES)})\s+({'|'.join(REDUCTIONS)})\b(.*)")
_TOLD = re.compile(rb"\d\s{1,40}(?:%s)\s{1,40}(?:%s)\s" % ("|".join(TYPES).encode(), "|".join(REDUCTIONS).encode()))
_BETWEEN = re.compile(r"\[\d{1,6}\]")
_NAME = re.compile(r"\b(" + "|".join(NAMES) + r")\b")
_RANK = re.compile(r"#\s+Rank\s+(\d{1,8})\b.*? on\s+(\S{1,200})\s+device")


def _half(text: str) -> float:
    """Half a unit of the last digit of a printed figure."""
    return 0.5 * 10.0 ** -(len(text.split(".")[1]) if "." in text and "e" not in text else 0)


class Row(Value, frozen=True):
    """One measurement of a line, half a unit of the last digit of its two rates, and how many elements came out wrong."""

    measured: Bandwidth
    algorithm_half: float
    bus_half: float
    wrong: float = 0.0


def row(text: str, *, line: int, operation: str = "", per_iteration: bool = False) -> list[Row]:
    """What one line measured, out of place first; nothing of other lines.

    >>> [each.measured.bus_bytes_per_s for each in row("8 2 float sum -1 69.1 0.5 0.9 0 72.4 0.5 0.8 0", line=1)]
    [900000000.0, 800000000.0]
    """
    found = _ROW.search(_BETWEEN.sub(" ", text))
    if found is None:
        return []
    rest = found[5].split()
    if rest and re.fullmatch(r"-?\d{1,8}", rest[0]):
        rest = rest[1:]
    width = 8 if per_iteration and len(rest) >= 8 else 4
    blocks = [rest[:width], rest[width: 2 * width]] if len(rest) >= 2 * width else [rest[:width]]
    alone = len(blocks) == 1 and re.search(r"\s{32,}", found[5]) is not None
    measured = []
    for place, block in enumerate(blocks):
        if len(block) < 3:
            continue
        time, algorithm, bus = map(amount, block[:3])
        if time is None or algorithm is None or bus is None:
            continue
        wrong = amount(block[3]) if len(block) > 3 else None
        measured.append(Row(Bandwidth(
            operation=operation or (REDUCES if found[4] != "none" else ""), message_bytes=float(found[1]),
            time_s=time * 1e-6, algorithm_bytes_per_s=algorithm * 1e9, bus_bytes_per_s=bus * 1e9, line=line,
            in_place=alone or place == 1), _half(block[1]) * 1e9, _half(block[2]) * 1e9, wrong or 0.0))
    return measured


def read(source: Source) -> tuple[Bandwidths, ...]:
    """Every row of every table in the file, with the number of ranks that is said or that the rates allow alone."""
    rows: list[Bandwidth] = []
    digits: list[tuple[float, float]] = []
    ranks: set[int] = set()
    hosts: set[str] = set()
    wrong: Sign | None = None
    operation, per_iteration = "", False
    for (line, *_) in anchored(source, (*HEADS, *(f" {each} ".encode() for each in TYPES))):
        if named := _NAME.search(line.text):
            operation = NAMES[named[1]]
        if "Per-Iteration" in line.text:
            per_iteration = True
        if (headed := _RANK.search(line.text)) and len(ranks) < MAX_ROWS:
            ranks.add(int(headed[1]))
            hosts.add(headed[2])
        for each in row(line.text, line=line.number, operation=operation, per_iteration=per_iteration):
            if len(rows) < MAX_ROWS:
                rows.append(each.measured)
                digits.append((each.algorithm_half, each.bus_half))
                if each.wrong:
                    place = Place(file=source.shown, line=line.number)
                    first = wrong or Sign(id="bandwidth.wrong", place=place, text=line.text[:400], times=0, value=each.wrong)
                    wrong = replace(first, times=first.times + 1)
    if not rows:
        return ()
    most = max(rows, key=lambda each: each.bus_bytes_per_s)
    known = "AllReduce" if most.bus_bytes_per_s > 1.01 * most.algorithm_bytes_per_s else ""
    rows = [replace(each, operation=known) if each.operation == REDUCES else each for each in rows]
    notes = [] if len(rows) < MAX_ROWS else [f"only the first {MAX_ROWS:,} rows are read"]
    said = len(ranks) or None
    if said is None and (span := _span(rows, digits)):
        said = span[0] if span[0] == span[1] else None
        if said is None:
            notes.append(f"the rates allow {span[0]:,} to {span[1]:,} ranks")
    return (Bandwidths(file=source.shown, format="nccl_tests", rows=tuple(rows), ranks=said, nodes=len(hosts) or None,
                       signs=(wrong,) if wrong else (), notes=tuple(notes)),)


def _span(rows: Sequence[Bandwidth], digits: Sequence[tuple[float, float]]) -> tuple[int, int] | None:
    """Least and most ranks that the rates of all rows allow."""
    low, high = 2, MAX_RANKS
    heard = False
    for operation in {each.operation for each in rows}:
        rates = [(each.algorithm_bytes_per_s, each.bus_bytes_per_s, *halves) for each, halves in zip(rows, digits, strict=True)
                 if each.operation == operation]
        if span := ranks_of(rates, operation):
            low, high, heard = max(low, span[0]), min(high, span[1]), True
    return (low, high) if heard and low <= high else None


def _told(sample: bytes) -> bool:
    return _TOLD.search(sample) is not None


FORMAT = Format(name="nccl_tests", says="tables of nccl-tests and rccl-tests", told=_told, read=read)
