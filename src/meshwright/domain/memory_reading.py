"""What a published figure of memory is: whose counter, and on which stage of the pipeline it was read."""

from __future__ import annotations

from typing import Literal

from meshwright.value import Value


class MemoryReading(Value, frozen=True, kw_only=True):
    """A way to read the memory of a run."""

    kind: Literal["allocated", "first step", "allocator", "device"] = "device"
    """Tensors (max_memory_allocated), after many steps or after the first one, whose backward had no moments yet; blocks of the
    caching allocator (max_memory_reserved); the whole device (nvidia-smi)."""
    stage: Literal["fullest", "first", "last"] = "fullest"
    """Most sources report the maximum over ranks; some log one rank only."""
