"""Whether the layout fits, stage by stage, and how near the edge it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.check.context import finding
from meshwright.search.plan import TIGHT
from meshwright.units import gib
from meshwright.words import percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.check.context import Context
    from meshwright.domain.estimate import Estimate
    from meshwright.frameworks.settings import Finding, Severity

UNLIKELY, UNCERTAIN = 0.5, 0.9
"""Probabilities of fitting below which a layout is an error, or a warning."""


def memory(context: Context) -> Iterator[Finding]:
    """The fullest stage against what the trainer may use of a device, and a node against its host memory."""
    found, case = context.estimate, context.case
    if found is None or case is None:
        return
    if found.memory_fit_probability < UNLIKELY or not found.fits:
        yield _stage(found, "error", "check.memory", "")
    elif found.memory_fit_probability < UNCERTAIN or _near(found):
        yield _stage(found, "warning", "check.memory-tight", "; near the edge the allocator retries and throughput collapses")
    need, have = found.host_memory_per_node_bytes, case.cluster.host_memory_bytes
    if found.layout.offload and need > have:
        yield finding(
            "warning", "check.host-memory",
            "with offload and an asynchronous checkpoint a node needs {need} of host memory; it has {have}",
            value=round(need), expected=have, need=gib(need), have=gib(have), path=context.knob_place("offload") or "layout",
            source=f"prediction, calibration {found.calibration}",
        )


def _near(found: Estimate) -> bool:
    """Whether a layout runs at the edge; where no probability says so, whether its upper bound is beyond it."""
    bound = found.memory_capacity_bytes
    return found.memory_reserved_bytes > TIGHT * bound or (found.interval is None and found.memory_upper_bytes > bound)


def _stage(found: Estimate, severity: Severity, id: str, end: str) -> Finding:
    """The fullest stage with its largest parts, and how many do not fit."""
    stages, capacity = found.stages, found.memory_capacity_bytes
    fullest = stages[found.peak_stage].memory
    parts = {
        "parameters": fullest.parameters, "gradients": fullest.gradients, "optimizer": fullest.optimizer,
        "activations": fullest.activations,
    }
    largest = sorted(parts.items(), key=lambda part: -part[1])[:2]
    over = sum(each.memory.reserved_bytes > capacity for each in stages)
    return finding(
        severity, id,
        "stage {stage} needs {need} of the {capacity} that may be used ({largest}){over}; it fits with probability {probability}"
        "{end}",
        path="layout", value=round(found.memory_reserved_bytes), expected=round(capacity), stage=found.peak_stage,
        need=gib(found.memory_reserved_bytes), capacity=gib(capacity), end=end,
        largest=", ".join(f"{name} {gib(size)}" for name, size in largest),
        over=f"; {over} of {len(stages)} stages do not fit" if over and len(stages) > 1 else "",
        probability=percent(found.memory_fit_probability, 0), source=f"prediction, calibration {found.calibration}",
    )
