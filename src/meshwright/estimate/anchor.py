"""A measured peak of memory takes the place of a predicted one: what a probe showed corrects what the formulas say.

Parameters, gradients and optimizer state are exact, so the difference is the activations' and the working set's.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.errors import fault
from meshwright.estimate.certainty import LEVEL, around, fitting, memory_curve
from meshwright.estimate.memory import fragmentation_bytes
from meshwright.estimate.single import upper_bytes
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate, Stage, StageMemory

SUREST = 1e-6
"""No width is smaller: a step is never measured more precisely."""
MULTIPLE, FIXED, SHARED = 0.276, 0.151, 0.854
"""How far measured peaks are from predicted ones, as shares of the activations and the working set and of the states, and how much
of both another layout of the same model has, too: the likeliest under heavy tails of 638 pairs of recorded runs of nanotron, whose
hundreds of such pairs no other source has. ``python -m benchmarks.anchor_constants`` (docs/few-shot.md, *Constants of anchored
memory*)."""
NINETY = 3.60
"""Half-width of an interval of 0.9 in units of these shares, whose tails are heavy: what holds nine of ten pairs of models that the
shares were not fitted to, by the same command."""
LEAST_RATIO = 0.1
"""Of activations: a probe never takes away more of them than so much. Our judgement."""


class Probe(Value, frozen=True, kw_only=True):
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
    Shapes:  k of the nearest probed stage of the plan itself; where none is, what all probes say together (``inferred``). The
             device's context and communicators are those of the cost model, because fake and small runs have none.
    Holds:   peaks above the states. The interval and the probability to fit are those of the share of the reserved memory that no
             probe showed,  w (1 - min(allocated, largest peak) / reserved),  and of what another layout's peak leaves open.
    Errors:  ``InputError`` for a stage that the plan does not have and a peak below what the states alone need.
    """
    if odd := {probe.stage for probe in probes} - {stage.stage for stage in estimate.stages}:
        raise fault(
            "anchor.stage", "the plan has no stage {stage}: it has {known}",
            stage=min(odd), known=", ".join(str(stage.stage) for stage in estimate.stages),
        )
    if not probes:
        return estimate
    every = [_ratio(probe) for probe in probes]
    ratios = {probe.stage: ratio for probe, ratio in zip(probes, every, strict=True) if probe.same}
    open_bytes = [0.0] * len(estimate.stages)
    if not ratios:
        errors, open_bytes = inferred([stage.memory for stage in estimate.stages], probes)
        ratios = {
            stage.stage: max(LEAST_RATIO, 1.0 + error / max(1.0, _varying(stage.memory)))
            for stage, error in zip(estimate.stages, errors, strict=True)
        }
    stages = tuple(
        _scaled(case, stage, ratios[min(ratios, key=lambda known: abs(known - stage.stage))]) for stage in estimate.stages
    )
    place = max(range(len(stages)), key=lambda index: stages[index].memory.reserved_bytes)
    fullest = stages[place]
    reserved, allocated = fullest.memory.reserved_bytes, fullest.memory.allocated_bytes
    shown = (allocated if open_bytes[place] else min(allocated, max(probe.peak_bytes for probe in probes))) / reserved
    left_open = NINETY * open_bytes[place] / reserved / math.log((1.0 + LEVEL) / (1.0 - LEVEL))
    curve = memory_curve(case)
    curve = None if curve is None else replace(curve, width=max(math.hypot(curve.width * (1.0 - shown), left_open), SUREST))
    fits = fitting(case, reserved, curve)
    varying = np.array([_varying(stage.memory) for stage in stages])
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


def inferred(stages: Sequence[StageMemory], probes: Sequence[Probe]) -> tuple[list[float], list[float]]:
    """What peaks of other layouts say of the stages of a plan: the mean of their error, and its standard deviation.

        d = peak - predicted;   Cov(d_i, d_j) = r (m^2 v_i v_j + f^2 s_i s_j)   for i other than j
        Var(d_i) = m^2 v_i^2 + f^2 s_i^2;   conditioned on the probes

    Symbols: v activations and working set, s states of a layout; m ``MULTIPLE``, f ``FIXED``, r ``SHARED``.
    Shapes:  one number a stage.
    Units:   bytes.
    Holds:   a probe with few activations says little of a plan with many: its difference may as well be fixed.
    Source:  Gaussian conditioning, Rasmussen and Williams 2006, (A.6).
    """
    memory = [*(probe.predicted for probe in probes), *stages]
    varying, states = (np.array([count(each) for each in memory]) for count in (_varying, _states))
    cov = SHARED * (MULTIPLE**2 * np.outer(varying, varying) + FIXED**2 * np.outer(states, states))
    np.fill_diagonal(cov, np.diag(cov) / SHARED)
    known = len(probes)
    shown = np.array([probe.peak_bytes - probe.predicted.allocated_bytes for probe in probes])
    gain = np.linalg.solve(cov[:known, :known], cov[:known, known:]).T
    left = np.diag(cov)[known:] - (gain * cov[known:, :known]).sum(axis=1)
    return list(gain @ shown), list(np.sqrt(np.maximum(left, 0.0)))


def _varying(memory: StageMemory) -> float:
    return float(memory.activations + memory.temporary)


def _states(memory: StageMemory) -> float:
    return float(memory.parameters + memory.gradients + memory.optimizer)


def _ratio(probe: Probe) -> float:
    """How much more than predicted the activations and the working set of a probe took."""
    memory = probe.predicted
    states = _states(memory)
    if probe.peak_bytes <= states:
        raise fault(
            "anchor.low", "a peak of {peak:.2f} GiB on stage {stage} is not above the {states:.2f} GiB of parameters, gradients "
            "and optimizer state: is it the peak of a whole step?",
            peak=probe.peak_bytes / 2**30, stage=probe.stage, states=states / 2**30,
        )
    return (probe.peak_bytes - states) / max(1.0, _varying(memory))


def _scaled(case: Case, stage: Stage, ratio: float) -> Stage:
    """A stage whose activations and working set are so many times as large; fragmentation grows with them."""
    memory = stage.memory
    more = (ratio - 1.0) * (memory.activations + memory.temporary)
    return replace(stage, memory=replace(
        memory, activations=memory.activations * ratio, temporary=memory.temporary * ratio,
        overhead=memory.overhead + float(fragmentation_bytes(case, more)),
    ))
