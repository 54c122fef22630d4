"""Snapshots of allocators, judged: who grows, what did not fit and why, and segments that came and went."""

from __future__ import annotations

from collections.abc import Iterator

from meshwright.diagnose.judged import Judged, Severity
from meshwright.domain.observed import MemorySnapshot, Place
from meshwright.errors import Message

GROWTH = 0.01
"""Share of the peak from which something that is never given back counts."""


def judge_snapshot(snapshot: MemorySnapshot) -> tuple[Judged, ...]:
    """What is wrong with one device's memory, the worst first."""
    return tuple(_judge(snapshot))


def _judged(snapshot: MemorySnapshot, severity: Severity, id: str, template: str, change: str, **values: object) -> Judged:
    return Judged(message=Message(id, template, values), severity=severity, place=Place(file=snapshot.file), change=change)


def _judge(snapshot: MemorySnapshot) -> Iterator[Judged]:
    unused = snapshot.reserved_bytes - snapshot.active_bytes
    if snapshot.out_of_memory:
        asked = max(snapshot.out_of_memory)
        values = {"asked": asked / 2**30, "unused": unused / 2**30, "largest": (snapshot.largest_free_bytes or 0) / 2**30}
        if unused >= asked and (snapshot.largest_free_bytes or 0) < asked:
            yield _judged(snapshot, "high", "allocator.fragmented",
                          "{asked:.2f} GiB did not fit although {unused:.2f} GiB of what is reserved is unused: the largest piece "
                          "has {largest:.2f} GiB", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", **values)
        else:
            yield _judged(snapshot, "high", "allocator.full",
                          "{asked:.2f} GiB did not fit; {unused:.2f} GiB of what is reserved is unused",
                          "less memory: recomputation, sharding, a smaller micro-batch", **values)
    grown = [each for each in snapshot.holders if each.never_freed and each.bytes >= GROWTH * (snapshot.peak_bytes or 0)]
    for each in grown:
        yield _judged(snapshot, "high", "allocator.grows",
                      "{name} keeps {number:,} blocks of {size:.1f} MiB that are never given back",
                      "keep figures (loss.item()), not tensors, beyond the step", name=each.name, number=each.blocks,
                      size=each.bytes / 2**20)
    if snapshot.freed_segments:
        yield _judged(snapshot, "medium", "allocator.segments_freed",
                      "{number:,} segments were given back to the device after warm-up",
                      "no empty_cache() in the loop; shapes that do not change; expandable segments",
                      number=snapshot.freed_segments)
