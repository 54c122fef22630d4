"""Snapshots of allocators, judged: why a request did not fit."""

from __future__ import annotations

from meshwright.diagnose.finding import Finding, seen_at
from meshwright.domain.observed import MemorySnapshot, Place
from meshwright.units import gib


def judge_snapshot(snapshot: MemorySnapshot) -> tuple[Finding, ...]:
    """Why the largest request that failed did not fit: only in pieces, or not at all; nothing where none failed."""
    if not snapshot.out_of_memory:
        return ()
    asked, largest = max(snapshot.out_of_memory), snapshot.largest_free_bytes or 0
    unused, place = snapshot.reserved_bytes - snapshot.active_bytes, Place(file=snapshot.file)
    if largest < asked <= unused:
        return (seen_at(place, "warning", "memory.snapshot-fragmented",
                        "{asked} did not fit although {unused} of what is reserved is unused: the largest piece has {largest}",
                        asked=gib(asked), unused=gib(unused), largest=gib(largest)),)
    return (seen_at(place, "warning", "memory.snapshot-full", "{asked} did not fit; {unused} of what is reserved is unused",
                    asked=gib(asked), unused=gib(unused)),)
