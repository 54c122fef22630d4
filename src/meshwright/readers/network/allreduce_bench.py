"""``all_reduce_bench.py`` in its three forms: each try of each rank (bits), the mean over tries, the table over sizes.

Sources: bigscience-workshop/bigscience ``experiments/bandwidth``, stas00/ml-engineering ``network/benchmarks``. The first form's
"algo throughput" counts each byte twice, and its ranks print between each other's lines: of a record only the bus rate is sure, and
what is the same for all (payload, ranks) comes from records that stand whole.
"""

from __future__ import annotations

import re
from statistics import median
from typing import TYPE_CHECKING

from meshwright.domain.observed import Bandwidth, Bandwidths
from meshwright.readers.formats import Format
from meshwright.readers.lines import anchored
from meshwright.readers.network.rates import bus_factor

if TYPE_CHECKING:
    from meshwright.readers.source import Source

ANCHORS = (b"busbw", b"duration:", b"algo throughput:", b"bandwidth of all_reduce", b"algbw:", b"GBps |")
MAX_ROWS = 1_000_000
_NUMBER = r"(\d{1,18}(?:\.\d{1,9})?)"
_DURATION = re.compile(rf"\bduration: {_NUMBER} sec")
_TWICE = re.compile(rf"algo throughput: {_NUMBER} bps")
_BITS = re.compile(rf"busbw: {_NUMBER}\s+Gbps")
_BYTES = re.compile(rf"\b(algbw|busbw): {_NUMBER}\s?GBps")
_HEAD = re.compile(
    rf"bandwidth of all_reduce (?:with a {_NUMBER}GB payload \(\d{{1,9}} trials, (\d{{1,8}}) ranks\)|over (\d{{1,8}}) ranks)")
_ROW = re.compile(rf"\|\s*{_NUMBER}\s?([KMGT]?i?B)\s*\|\s*{_NUMBER}\s?GBps\s*\|\s*{_NUMBER}\s?GBps")
_SIZES = {"B": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def read(source: Source) -> tuple[Bandwidths, ...]:
    """Every record of every rank and every row of the table."""
    tries: list[tuple[float, int]] = []
    rows: list[Bandwidth] = []
    payloads, shares = [], []
    payload: float | None = None
    ranks: int | None = None
    duration = twice = algorithm = None
    for (line, *_) in anchored(source, ANCHORS):
        text = line.text
        if found := _DURATION.search(text):
            duration, twice = float(found[1]), None
        elif found := _TWICE.search(text):
            twice = float(found[1])
        elif (found := _BITS.search(text)) and len(tries) < MAX_ROWS:
            bus = float(found[1]) * 1e9
            tries.append((bus / 8, line.number))
            if duration and twice and 0.45 < bus / twice < 1:
                payloads.append(twice * duration / 16)
                shares.append(bus / twice)
            duration = twice = None
        elif found := _HEAD.search(text):
            payload = float(found[1]) * 1e9 if found[1] else None
            ranks = int(found[2] or found[3])
        elif found := _BYTES.search(text):
            if found[1] == "algbw":
                algorithm = float(found[2]) * 1e9
            elif algorithm:
                rows.append(_measured(payload or 0.0, algorithm, float(found[2]) * 1e9, line.number, ranks))
                algorithm = None
        elif (found := _ROW.search(text)) and len(rows) < MAX_ROWS:
            size = float(found[1]) * _SIZES[found[2][0]]
            rows.append(_measured(size, float(found[4]) * 1e9, float(found[3]) * 1e9, line.number, ranks))
    if tries:
        ranks = round(1 / (1 - median(shares))) if shares and median(shares) < 0.99995 else ranks
        payload = median(payloads) if payloads else 0.0
        factor = bus_factor("allreduce", ranks) if ranks else 1.0
        rows += [_measured(payload, bus / factor, bus, line, ranks) for bus, line in tries]
    if not rows:
        return ()
    notes = ("the first tries of each rank are those of warming up",) if tries else ()
    return (Bandwidths(file=source.shown, format="allreduce_bench", rows=tuple(rows), ranks=ranks, notes=notes),)


def _measured(size: float, algorithm: float, bus: float, line: int, ranks: int | None) -> Bandwidth:
    return Bandwidth(operation="AllReduce", message_bytes=size, time_s=size / algorithm if size and algorithm else None,
                     algorithm_bytes_per_s=algorithm, bus_bytes_per_s=bus, line=line, ranks=ranks)


def _told(sample: bytes) -> bool:
    return b"algo throughput:" in sample or b"bandwidth of all_reduce" in sample


FORMAT = Format(name="allreduce_bench", says="all_reduce_bench.py of bigscience and ml-engineering", told=_told, read=read)
