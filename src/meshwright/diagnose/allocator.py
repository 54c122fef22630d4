"""Snapshots of allocators, judged: why a request did not fit."""

from __future__ import annotations

from meshwright.diagnose.judged import Judged
from meshwright.domain.observed import MemorySnapshot, Place
from meshwright.errors import Message
from meshwright.units import gib


def judge_snapshot(snapshot: MemorySnapshot) -> tuple[Judged, ...]:
    """Why the largest request that failed did not fit: only in pieces, or not at all; nothing where none failed."""
    if not snapshot.out_of_memory:
        return ()
    asked, largest = max(snapshot.out_of_memory), snapshot.largest_free_bytes or 0
    unused = snapshot.reserved_bytes - snapshot.active_bytes
    if largest < asked <= unused:
        message = Message("memory.snapshot-fragmented",
                          "{asked} did not fit although {unused} of what is reserved is unused: the largest piece has {largest}",
                          {"asked": gib(asked), "unused": gib(unused), "largest": gib(largest)})
        change = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    else:
        message = Message("memory.snapshot-full", "{asked} did not fit; {unused} of what is reserved is unused",
                          {"asked": gib(asked), "unused": gib(unused)})
        change = "less memory: recomputation, sharding, a smaller micro-batch"
    return (Judged(message=message, severity="high", place=Place(file=snapshot.file), change=change),)
