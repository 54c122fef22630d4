"""PyTorch's memory timeline (``profiler.export_memory_timeline("x.raw.json.gz")``): what each category held, row by row.

Rows are ``[time_ns, action, bytes, category]``, bytes below zero being given back; they are taken one after another, so that a file
of any size is read in the memory of a chunk.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.domain.observed import MemoryHolder, MemorySnapshot
from meshwright.readers.formats import Format

if TYPE_CHECKING:
    from meshwright.readers.source import Source

CATEGORIES = ("parameter", "optimizer state", "input", "temporary", "activation", "gradient", "autograd detail", "unknown")
"""As ``torch/profiler/_memory_profiler.py`` numbers them."""
ACTIONS = {1: "preexisting", 2: "create", 3: "increment version", 4: "destroy"}
CHUNK = 4 << 20
MAX_SIZE = 2**60
_ROW = re.compile(rb"\[\s*(-?\d{1,20})\s*,\s*([1-4])\s*,\s*(-?\d{1,20})\s*,\s*([0-7])\s*\]")
_TOLD = re.compile(rb"^\s*\[\s*\[\s*-?\d{1,20}\s*,\s*[1-4]\s*,\s*-?\d{1,20}\s*,\s*[0-7]\s*\]")


def _rows(source: Source) -> Iterator[tuple[int, int, int, int]]:
    with source.open() as stream:
        rest = b""
        while chunk := stream.read(CHUNK):
            block = rest + chunk
            end = 0
            for found in _ROW.finditer(block):
                yield int(found[1]), int(found[2]), int(found[3]), int(found[4])
                end = found.end()
            rest = block[end:][-200:]


def read(source: Source) -> tuple[MemorySnapshot, ...]:
    """The peak and what each category held then; what was there before the recording counts, as the file lists it."""
    held, blocks = [0] * len(CATEGORIES), [0] * len(CATEGORIES)
    at_peak, blocks_then = list(held), list(blocks)
    peak, now, peak_ns = 0, 0, 0
    first: int | None = None
    actions: Counter[str] = Counter()
    for time, action, size, category in _rows(source):
        if abs(size) > MAX_SIZE:
            continue
        actions[ACTIONS[action]] += 1
        first = time if first is None and time > 0 else first
        held[category] += size
        blocks[category] += 1 if size > 0 else -1
        now += size
        if now > peak:
            peak, peak_ns, at_peak, blocks_then = now, time, list(held), list(blocks)
    if not actions:
        return ()
    holders = sorted((MemoryHolder(name=name, bytes=size, blocks=max(0, number))
                      for name, size, number in zip(CATEGORIES, at_peak, blocks_then, strict=True) if size > 0),
                     key=lambda each: -each.bytes)
    notes = ("the archive breaks off; what stands before is read",) if source.broken else ()
    return (MemorySnapshot(
        file=source.shown, format="memory_timeline", device=None, reserved_bytes=0, allocated_bytes=max(0, now),
        active_bytes=max(0, now), num_segments=0, events=tuple(actions.items()), peak_bytes=peak,
        peak_at_s=max(0, peak_ns - first) * 1e-9 if first is not None else None, holders=tuple(holders), notes=notes),)


def _told(sample: bytes) -> bool:
    return _TOLD.match(sample[:4096]) is not None


FORMAT = Format(name="memory_timeline", says="PyTorch's memory timeline in its raw form", told=_told, read=read)
