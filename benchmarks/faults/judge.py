"""Whether the first finding above advice is the fault that was put in."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.faults.campaign import Told

RIGHT: dict[str, tuple[str, ...]] = {
    "slow-rank": ("ranks.uneven",),
    "starved-loader": ("data.loading",),
    "synchronising-calls": ("host.sync",),
    "crossed-tp": ("communication.tp",),
    "padding-waste": ("data.padding",),
    "late-collective": ("ranks.late",),
    "missing-collective": ("hang.missing", "hang.mismatch"),
    "memory-leak": ("memory.leak",),
    "gc-pauses": ("host.gc",),
    "recompiles": ("compile.recompiled",),
    "wrong-threads": ("host.threads",),
}
"""Fault -> findings of which one must come first."""
OF_A_RANK = ("slow-rank", "late-collective")
"""Faults whose finding must name the rank."""


def right(told: Told) -> bool:
    """Whether what was said first is so; of a clean run: whether nothing was."""
    case, first = told.case, told.first
    if case.kind == "clean" or first is None:
        return case.kind == "clean" and first is None
    wanted = RIGHT.get(case.kind, (f"communication.{case.dimension}",))
    if first.id not in wanted:
        return False
    if case.kind == "missing-collective" and first.id == "hang.missing":
        return first.message.values["ranks"] == f"rank {case.rank}"
    return case.kind not in OF_A_RANK or first.message.values["rank"] == case.rank
