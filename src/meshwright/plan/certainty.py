"""How sure a prediction is: its regime, its interval, and what stands behind it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain import estimate as values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.domain.uncertainty import Uncertainty
    from meshwright.perf.arrays import Array

LEVEL = 0.9
"""Level of the intervals."""

MFU_BANDS = (0.02, 0.05, 0.10, 0.20, 0.30, 0.40)
NODE_BANDS = (1, 8, 31)
EDGE = 0.85
"""Share of the memory from which allocators begin to retry."""


def regime(case: Case, layout: Layout, *, mfu_ratio: float, reserved_bytes: float) -> Mapping[str, str]:
    """The features that the width of an interval depends on.

    Units:   ratio, bytes -> names of bands.
    Source:  residuals of the corpus by regime (docs/accuracy.md).
    """
    nodes = layout.world / case.cluster.devices_per_node
    precision = case.training.precision.name
    framework = case.implementation.family
    sort = f"{'moe' if case.model.is_moe else 'dense'} {'16-bit' if precision in ('bf16', 'fp16') else precision[:3]}"
    across = layout.tensor_parallel > case.cluster.scale_up_devices
    return {
        "framework": framework,
        "cell": f"{framework} {case.cluster.device.name} {sort}",
        "sort": sort,
        "mfu": str(sum(mfu_ratio >= edge for edge in MFU_BANDS)),
        "nodes": str(sum(nodes > edge for edge in NODE_BANDS)),
        "parallel": " ".join(
            word for word, on in (
                ("tp", layout.tensor_parallel > 1), ("across", across), ("pp", layout.pipeline_parallel > 1),
            ) if on
        ),
        "memory": "edge" if reserved_bytes > EDGE * case.cluster.device.memory_bytes else "free",
    }  # fmt: skip


def interval(
    known: Uncertainty | None, features: Mapping[str, str], step_s: float, allocated_bytes: float
) -> values.Interval | None:
    """Where the measured figures lie with probability 0.9; None where nothing is known about the error.

        [x / e^h, x e^h],   h the half-width of the regime

    Units:   s, bytes.
    Source:  ``domain.uncertainty.Scale``.
    """
    if known is None:
        return None
    time, memory = math.exp(known.step.half_width(features, LEVEL)), math.exp(known.memory.half_width(features, LEVEL))
    return values.Interval(
        level=LEVEL, step_s=(step_s / time, step_s * time),
        memory_peak_bytes=(allocated_bytes / memory, allocated_bytes * memory),
    )  # fmt: skip


def expected_s(case: Case, step_s: Array, reserved_bytes: Array) -> Array:
    """Step time over the probability that the layout runs: what a planner that pays for failed runs minimises.

    Shapes:  columns of layouts.
    Units:   s.
    Holds:   the step time itself where the calibration knows no probabilities.
    """
    known = case.calibration.uncertainty
    if known is None:
        return step_s
    return step_s / np.maximum(known.fit.memory_probability(reserved_bytes, case.offered_bytes), 1e-3)


def grades(known: Uncertainty | None) -> Mapping[str, values.Grade]:
    """What stands behind time and memory: runs of this device under this framework, runs of kin, or formulas alone."""
    if known is None:
        grade: values.Grade = "analytic"
    elif known.seen.get("cell", 0):
        grade = "calibrated"
    elif known.seen.get("device", 0) or known.seen.get("framework", 0):
        grade = "kin"
    else:
        grade = "analytic"
    return {"step_s": grade, "memory_peak_bytes": grade}
