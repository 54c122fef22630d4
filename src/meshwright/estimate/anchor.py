"""A measured peak of memory takes the place of a predicted one: what a probe showed corrects what the formulas say.

Parameters, gradients and optimizer state are exact, so the difference is the activations' and the working set's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.errors import fault
from meshwright.estimate.certainty import LEVEL, around, fitting, memory_curve
from meshwright.estimate.memory import fragmentation_bytes
from meshwright.estimate.single import upper_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate, Stage, StageMemory

SUREST = 1e-6
"""No width is smaller: a step is never measured more precisely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A probe's peak: what was predicted for the stage it ran, and what it showed."""

    stage: int
    """Stage of the plan that it stands for."""
    predicted: StageMemory
    """Of the probe itself: the plan's own stage, or a smaller model's."""
    peak_bytes: float
    """Peak of the tensors, as the framework's counter shows it (``max_memory_allocated``)."""
    same: bool = True
    """Whether the probe was a rank of the plan itself."""


def anchored(case: Case, estimate: Estimate, probes: Sequence[Probe]) -> Estimate:
    """The estimate with memory as the probes saw it.

        k = (peak - states) / (activations + temporary);   activations and temporary of every stage times k

    Symbols: peak measured; states, activations and temporary predicted for the probe.
    Units:   bytes.
    Shapes:  k of the nearest probed stage; the device's context and communicators are those of the cost model, because fake
             and small runs have none.
    Holds:   peaks above the states. The interval and the probability to fit are those of the share of the reserved memory that no
             probe showed:  w (1 - min(allocated, largest peak) / reserved).
    Errors:  ``InputError`` for a stage that the plan does not have and a peak below what the states alone need.
    """
    ratios = {probe.stage: _ratio(probe) for probe in probes}
    if odd := set(ratios) - {stage.stage for stage in estimate.stages}:
        raise fault(
            "anchor.stage", "the plan has no stage {stage}: it has {known}",
            stage=min(odd), known=", ".join(str(stage.stage) for stage in estimate.stages),
        )
    if not ratios:
        return estimate
    stages = tuple(
        _scaled(case, stage, ratios[min(ratios, key=lambda known: abs(known - stage.stage))]) for stage in estimate.stages
    )
    fullest = max(stages, key=lambda stage: stage.memory.reserved_bytes)
    reserved, allocated = fullest.memory.reserved_bytes, fullest.memory.allocated_bytes
    shown = min(allocated, max(probe.peak_bytes for probe in probes)) / reserved
    curve = memory_curve(case)
    curve = None if curve is None else replace(curve, width=max(curve.width * (1.0 - shown), SUREST))
    fits = fitting(case, reserved, curve)
    varying = np.array([stage.memory.activations + stage.memory.temporary for stage in stages])
    own = any(probe.same and probe.stage == fullest.stage for probe in probes)
    return replace(
        estimate, stages=stages, peak_stage=fullest.stage, memory_peak_bytes=allocated, memory_reserved_bytes=reserved,
        memory_upper_bytes=upper_bytes(case, np.array([stage.memory.reserved_bytes for stage in stages]), varying, curve),
        fits=fits.fits, memory_fit_probability=fits.memory_probability, fit_probability=fits.probability,
        grades={**(estimate.grades or {}), "memory_peak_bytes": "measured" if own else "interpolated"},
        interval=None if estimate.interval is None or curve is None else replace(
            estimate.interval, memory_peak_bytes=around(allocated, curve.half_width(LEVEL)),
            memory_reserved_bytes=around(reserved, curve.half_width(LEVEL)),
        ),
    )


def _ratio(probe: Probe) -> float:
    """How much more than predicted the activations and the working set of a probe took."""
    memory = probe.predicted
    states = memory.parameters + memory.gradients + memory.optimizer
    if probe.peak_bytes <= states:
        raise fault(
            "anchor.low", "a peak of {peak:.2f} GiB on stage {stage} is not above the {states:.2f} GiB of parameters, gradients "
            "and optimizer state: is it the peak of a whole step?",
            peak=probe.peak_bytes / 2**30, stage=probe.stage, states=states / 2**30,
        )
    return (probe.peak_bytes - states) / max(1.0, memory.activations + memory.temporary)


def _scaled(case: Case, stage: Stage, ratio: float) -> Stage:
    """A stage whose activations and working set are so many times as large; fragmentation grows with them."""
    memory = stage.memory
    more = (ratio - 1.0) * (memory.activations + memory.temporary)
    return replace(stage, memory=replace(
        memory, activations=memory.activations * ratio, temporary=memory.temporary * ratio,
        overhead=memory.overhead + float(fragmentation_bytes(case, more)),
    ))
