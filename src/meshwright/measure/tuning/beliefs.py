"""What the cost model thinks of every candidate before any has run, as columns over the candidates."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.catalog.calibrations import freedoms
from meshwright.domain.uncertainty import LEAST_PROBABILITY
from meshwright.estimate import estimate, evaluate
from meshwright.estimate.certainty import memory_curve
from meshwright.estimate.chance import SAID
from meshwright.estimate.evaluate import shown_bytes
from meshwright.estimate.trials import FULLEST_DEVICE, evaluate_trials
from meshwright.evidence.fit.kin import foretold
from meshwright.evidence.fit.likeness import words
from meshwright.evidence.fit.linear import STEP
from meshwright.perf.stalls import all_stalled_s, memory_pressure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.domain.calibration import Freedom
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout
    from meshwright.domain.memory_reading import MemoryReading
    from meshwright.evidence.fit.kin import Kin

    Floats = NDArray[np.float64]

NORMAL_90 = 1.645
"""Half-width of a 90 % interval, in standard deviations."""
UNKNOWN_SPREAD = math.log(2.0)
"""Standard deviation of a prediction without a calibration: a factor of two (docs/accuracy.md, priors alone)."""
SEEN_BY = {"all": "all", "family": "family", "framework": "framework", "cell": "cell"}
"""Level of pooling -> whose runs are counted (``domain.uncertainty.Uncertainty.seen``); the device's for all others."""
CERTAIN = 1e-3
"""Width, in log units, of the edge of the memory where nothing is known about the error: fits or does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beliefs:
    """Columns over n candidates; logs of seconds and bytes."""

    log_step: Floats
    """The predicted step."""
    spread: Floats
    """Standard deviation of the log of the measured step, from the interval of 0.9."""
    escape: Floats
    """Log of the share of the step that is left of a run whose pipeline messages do not stall though they should; 0 where none
    should, or where that lies inside the interval."""
    by: Floats
    """``[n, k]``: derivative of the log step by the log of each fitted constant, times how far runs have moved it."""
    by_new: Floats
    """``[n, k]``: the same, by what nobody has measured yet: of a device, framework or precision without runs."""
    words: Floats
    """``[n, f]``: the knobs, degrees as their log2; layouts are alike that differ in little."""
    log_need: Floats
    """Reserved bytes over the device's, less the edge at which half of the layouts run."""
    log_shown: Floats
    """The peak that the run's own counter is predicted to show."""
    terms: Floats
    """``[n, t]``: bytes of each term of memory on the fullest stage."""
    memory_width: float
    """Of the logistic curve of running by need."""
    failures: float
    """Share of the runs that fail for other reasons than memory."""
    legal: NDArray[np.bool_]
    gain: float = 0.0
    """Share of their errors that recorded runs of kin foretold of each other; 0 where none was asked."""

    def __len__(self) -> int:
        return len(self.log_step)

    @property
    def expected_s(self) -> Floats:
        """The plan's order: the step over the probability that it fits."""
        fits = 1.0 / (1.0 + np.exp(np.clip(self.log_need / self.memory_width, -60.0, 60.0)))
        return np.asarray(np.exp(self.log_step) / np.maximum(np.where(self.legal, fits, 0.0), LEAST_PROBABILITY))

    def told(self, kin: Kin, places: Floats) -> Beliefs:
        """The same with what recorded runs of kin foretell of each step: moved, and as much surer."""
        found = foretold(kin, places)
        return replace(
            self, log_step=self.log_step + found.error, spread=self.spread * found.spread_ratio, gain=found.gain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A layout of a case, and how the memory of its run is read."""

    case: Case
    layout: Layout
    reading: MemoryReading = FULLEST_DEVICE
    legal: bool = True


def beliefs(subjects: Sequence[Subject]) -> Beliefs:
    """What the calibrations of the subjects' cases say of them.

    Errors:  ``InputError`` where a layout cannot be estimated.
    """
    found: list[Estimate] = []
    shown: list[float] = []
    escape: list[float] = []
    for each in subjects:
        evaluation = evaluate(each.case, each.layout)
        found.append(estimate(each.case, each.layout, evaluation))
        escape.append(escape_of(each, found[-1], float(evaluation.time.stall_s)))
        shown.append(shown_bytes(each.case, evaluation, each.reading))
    curves = [memory_curve(each.case) for each in subjects]
    edges = [curve.edge if curve else math.log(each.case.capacity_bytes / each.case.offered_bytes)
             for curve, each in zip(curves, subjects, strict=True)]
    need = [math.log(each.memory_reserved_bytes / subject.case.offered_bytes)
            for each, subject in zip(found, subjects, strict=True)]
    seen, unseen = _derivatives(subjects)
    return Beliefs(
        log_step=np.log([each.step_s for each in found]), spread=np.array([_spread(each) for each in found]),
        escape=np.array(escape),
        by=seen, by_new=unseen, words=np.array([words(each.layout) for each in subjects]),
        log_need=np.array(need) - np.array(edges), log_shown=np.log(shown),
        terms=np.array([_terms(each) for each in found]),
        memory_width=max((curve.width for curve in curves if curve), default=CERTAIN),
        failures=max((curve.failures for curve in curves if curve), default=0.0),
        legal=np.array([each.legal for each in subjects], dtype=bool),
    )


def _spread(found: Estimate) -> float:
    if found.interval is None:
        return UNKNOWN_SPREAD
    low, high = found.interval.step_s
    return math.log(high / low) / 2.0 / NORMAL_90


def escape_of(subject: Subject, found: Estimate, stall_s: float) -> float:
    """``Beliefs.escape``.

        log((step - (stalled - met) every) / step),   where 1 - (1 - stalled) / (1 - met) is ``SAID`` at least

    Symbols: stalled the share of messages that stall; met that for want of memory alone; every the time of all of them.
    Holds:   where the host waits for every message (``Implementation.message_handshake``) and causes other than memory make most of
             them stall: an allocator at its edge leaves nothing to chance.
    Source:  the other side of ``estimate.chance.stall_of``; ``perf.stalls.stalled_share``.
    """
    case, layout = subject.case, subject.layout
    if not case.implementation.message_handshake or layout.pipeline_parallel == 1:
        return 0.0
    constants = case.calibration.constants
    every_s = float(all_stalled_s(float(layout.pipeline_parallel), float(layout.num_microbatches), constants))
    pressure = float(memory_pressure(found.memory_reserved_bytes, case.cluster.device.memory_bytes, constants))
    met, stalled = pressure * (1.0 - 1.0 / layout.num_microbatches), stall_s / max(every_s, 1e-12)
    if met >= SAID or 1.0 - (1.0 - stalled) / (1.0 - met) < SAID:
        return 0.0
    left = math.log(max(1.0 - (stalled - met) * every_s / found.step_s, LEAST_PROBABILITY))
    return left if left < -NORMAL_90 * _spread(found) else 0.0


def _derivatives(subjects: Sequence[Subject]) -> tuple[Floats, Floats]:
    """Of the log step by the log of each constant, times its spread: over levels of pooling that have runs, and over those without.

    Shapes:  ``[n, k]`` each.
    """
    constants = freedoms()
    names, groups = [each.name for each in constants], defaultdict(list)
    for index, each in enumerate(subjects):
        groups[id(each.case)].append(index)
    by, spreads = np.zeros((len(subjects), len(names))), np.zeros((2, len(subjects), len(names)))
    for members in groups.values():
        case = subjects[members[0]].case
        tried = {name: np.full(len(names) + 1, float(getattr(case.calibration.constants, name))) for name in names}
        for index, name in enumerate(names):
            tried[name][index + 1] *= math.exp(-STEP)
        steps = np.log(evaluate_trials(case, [subjects[index].layout for index in members], tried).step_s)
        by[members] = (steps[:, :1] - steps[:, 1:]) / STEP
        for number, known in enumerate((True, False)):
            spreads[number, members] = [_spread_over(each, case, known=known) for each in constants]
    return by * spreads[0], by * spreads[1]


def _spread_over(freedom: Freedom, case: Case, *, known: bool) -> float:
    """How far a constant may be from its prior by the levels that have runs, or by those that have none."""
    uncertainty = case.calibration.uncertainty
    seen = uncertainty.seen if uncertainty else {}
    has = {level: bool(uncertainty) and bool(seen.get(SEEN_BY.get(level, "device"), 1)) for level in freedom.spreads}
    return math.sqrt(sum(spread**2 for level, spread in freedom.spreads.items() if has[level] is known))


def _terms(found: Estimate) -> list[float]:
    """Terms of the stage that needs most."""
    memory = max((each.memory for each in found.stages), key=lambda each: each.reserved_bytes)
    return [
        memory.parameters, memory.gradients, memory.optimizer, memory.activations, memory.temporary, memory.overhead,
    ]
