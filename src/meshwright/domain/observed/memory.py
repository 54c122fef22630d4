"""What a snapshot of an allocator says."""

from __future__ import annotations

from meshwright.value import Value


class MemoryHolder(Value, frozen=True, kw_only=True):
    """What one place in the user's code, or one category, holds at the peak."""

    name: str
    bytes: int
    blocks: int
    never_freed: bool = False
    """Keeps more and more over several steps and gives none of it back before the recording ends."""


class MemorySnapshot(Value, frozen=True, kw_only=True):
    """One device's allocator; bytes."""

    file: str
    format: str
    device: int | None
    reserved_bytes: int
    allocated_bytes: int
    active_bytes: int
    num_segments: int
    events: tuple[tuple[str, int], ...] = ()
    """Action -> how many, in the order of the first of each."""
    peak_bytes: int | None = None
    """Highest sum of live blocks in the replay, above its beginning."""
    peak_at_s: float | None = None
    largest_free_bytes: int | None = None
    out_of_memory: tuple[int, ...] = ()
    """Sizes that could not be had."""
    freed_segments: int = 0
    """Segments given back after the first quarter of the recording: retries, or ``empty_cache`` in the loop."""
    holders: tuple[MemoryHolder, ...] = ()
    """At the peak, the largest first."""
    notes: tuple[str, ...] = ()
