"""The tuning guides' thresholds beside what was observed, each with its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.catalog.guides import guides

if TYPE_CHECKING:
    from meshwright.diagnose.run import Run

THRESHOLDS = (
    ("megatron.utilisation-90", "utilization_ratio", 0.90, True),
    ("megatron.memory-80", "memory_ratio", 0.80, True),
    ("megatron.communication-20", "communication_ratio", 0.20, False),
    ("megatron.communication-15", "communication_ratio", 0.15, False),
    ("mindspore.linearity-above-0.8", "linearity_ratio", 0.80, True),
)
"""Rule, what it is about, its bound, and whether the observed figure must be above it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuideFigure:
    """One threshold."""

    rule: str
    says: str
    source: str
    bound_ratio: float
    observed_ratio: float | None
    """None where the files do not tell; the least that it is where ``holds`` is None."""
    holds: bool | None


def guide_figures(run: Run) -> tuple[GuideFigure, ...]:
    """Every threshold, with what was observed."""
    seen = {
        "utilization_ratio": _utilization(run),
        "memory_ratio": _memory(run),
        "communication_ratio": _communication(run),
        "linearity_ratio": None,
    }
    rows = []
    for id_, about, bound, above in THRESHOLDS:
        known, value = guides().rule(id_), seen[about]
        holds = None if value is None else value >= bound if above else value <= bound
        if holds and about == "communication_ratio" and run.split is not None and not run.split.every_exchange:
            holds = None
        rows.append(
            GuideFigure(
                rule=id_,
                says=known.says,
                source=", ".join(each.place for each in known.passages),
                bound_ratio=bound,
                observed_ratio=value,
                holds=holds,
            )
        )
    return tuple(rows)


def _utilization(run: Run) -> float | None:
    """Share of the time with any kernel on the device: of samples, else of traces."""
    means = [each.means["utilization_ratio"] for file in run.counters for each in file.devices if "utilization_ratio" in each.means]
    if not means:
        means = [1.0 - each.split.idle_s / each.split.window_s for each in run.traces if each.split.window_s]
    return sum(means) / len(means) if means else None


def _memory(run: Run) -> float | None:
    """Of the device, on the fullest; of a trainer that shares it with an engine nobody knows from its own figures."""
    shares = [
        each.most["memory_used_bytes"] / each.means["memory_total_bytes"]
        for file in run.counters
        for each in file.devices
        if each.most.get("memory_used_bytes") and each.means.get("memory_total_bytes")
    ]
    if shares:
        return max(shares)
    used, case = run.memory_bytes, run.case
    return None if used is None or case is None or run.phases is not None else used / case.cluster.device.memory_bytes


def _communication(run: Run) -> float | None:
    """Exposed communication over the step."""
    split = run.split
    return None if split is None else split.collectives_ratio
