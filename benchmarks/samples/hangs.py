"""Dumps of flight recorders."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.samples import Expected
from meshwright.domain.observed import Hanging
from meshwright.readers.formats import Observed


def _dump(what: str, want: float | str | None, got: Callable[[Hanging], float | str | None],
          tolerance_ratio: float = 1e-6) -> Expected:
    def ask(observed: Observed) -> float | str | None:
        return got(next(each for each in observed.observations if isinstance(each, Hanging)))

    return Expected(file="flight_recorder/pytorch_docs_entry.json", what=what, want=want, got=ask, tolerance_ratio=tolerance_ratio)


EXPECTED: tuple[Expected, ...] = (
    _dump("entries", 1, lambda dump: len(dump.entries)),
    _dump("operation", "nccl:all_reduce", lambda dump: dump.entries[0].operation),
    _dump("state", "completed", lambda dump: dump.entries[0].state),
    _dump("sequence", 1, lambda dump: dump.entries[0].sequence),
    _dump("group", "0(default_pg)", lambda dump: dump.entries[0].group),
    _dump("from creation to completion, ms", 39.037, lambda dump: (dump.entries[0].waited_s or 0) * 1e3, 1e-4),
    _dump("last enqueued", 2, lambda dump: dump.progress[0].last_enqueued),
    _dump("last started", -1, lambda dump: dump.progress[0].last_started),
    _dump("last completed", 2, lambda dump: dump.progress[0].last_completed),
)
