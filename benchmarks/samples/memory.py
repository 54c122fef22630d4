"""Snapshots of allocators."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.samples import Expected
from meshwright.domain.observed import MemorySnapshot
from meshwright.readers.formats import Observed


def _snapshot(what: str, want: float | str | None, got: Callable[[MemorySnapshot], float | str | None],
              tolerance_ratio: float = 1e-6) -> Expected:
    def ask(observed: Observed) -> float | str | None:
        return got(next(each for each in observed.observations if isinstance(each, MemorySnapshot)))

    file = "cuda_memory_snapshot/EoR_NN_snapshot.pickle"
    return Expected(file=file, what=what, want=want, got=ask, tolerance_ratio=tolerance_ratio)


EXPECTED: tuple[Expected, ...] = (
    _snapshot("segments", 10, lambda snapshot: snapshot.num_segments),
    _snapshot("reserved, bytes", 134217728, lambda snapshot: snapshot.reserved_bytes),
    _snapshot("allocated, bytes", 48760832, lambda snapshot: snapshot.allocated_bytes),
    _snapshot("active, bytes", 48760832, lambda snapshot: snapshot.active_bytes),
    _snapshot("unused, %", 63.7, lambda snapshot: 100 * (1 - snapshot.active_bytes / snapshot.reserved_bytes), 1e-3),
    _snapshot("events", 5803, lambda snapshot: sum(number for _, number in snapshot.events)),
    _snapshot("their kinds", "alloc 1935, free_completed 1926, free_requested 1926, segment_alloc 7, snapshot 9",
              lambda snapshot: ", ".join(f"{name} {number}" for name, number in sorted(snapshot.events))),
    _snapshot("peak of the replay above its beginning, bytes", 99486724, lambda snapshot: snapshot.peak_bytes),
    _snapshot("device", 0, lambda snapshot: snapshot.device),
)
