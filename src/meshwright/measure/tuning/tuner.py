"""Ask and tell: which candidate is run next, and when no better one is likely."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from meshwright.evidence.fit.likeness import likeness
from meshwright.measure.chooser import Named
from meshwright.measure.tuning.running import Ran, Running, running
from meshwright.measure.tuning.scales import Scales, covariance, shipped_scales
from meshwright.measure.tuning.steps import NOISE, Steps, expected_improvement, update
from meshwright.words import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.measure.outcome import Outcome
    from meshwright.measure.tuning.beliefs import Beliefs

    Floats = NDArray[np.float64]


Candidate = TypeVar("Candidate", bound=Named)
BETTER = 0.01
"""What counts as better, as a share of the step."""
STOP_PROBABILITY = 0.05
"""That another one is better, below which nothing more is tried."""
DRAWS, NEGLIGIBLE = 4096, 1e-4
"""Joint draws: a probability of 5 % is known to 0.3 %. Gains of less than so much of ``BETTER`` are left out of them."""
NORMAL_80 = 1.2816
"""Half-width of an 80 % interval, in standard deviations."""
NOT_THE_LAYOUTS = ("node", "preempted", "cancelled", "user", "parse")
"""Endings that say nothing of the layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """What is left to find."""

    probability_better: float
    """That a candidate which was not tried is better than the best measured by more than ``BETTER``."""
    expected_gain_ratio: float
    """Mean of the share of the step that the best of them would save."""


@dataclass(eq=False)
class Tuner(Generic[Candidate]):
    """The calibrated model as the prior, each trial as evidence.

    ``stop_probability`` 0: until all candidates were tried. ``start_s`` and ``steps``: what a trial costs beside its steps, and
    how many it takes.
    """

    candidates: Sequence[Candidate]
    known: Beliefs
    scales: Scales = field(default_factory=shipped_scales)
    stop_probability: float = STOP_PROBABILITY
    start_s: float = 60.0
    steps: float = 10.0
    seed: int = 0
    told: list[tuple[int, Outcome]] = field(default_factory=list, init=False)
    _asked: set[int] = field(default_factory=set, init=False)
    _prior: Floats = field(init=False, repr=False)
    _alike: Floats = field(init=False, repr=False)
    _place: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._prior = covariance(self.known, self.scales)
        self._alike = likeness(self.known.words, self.scales.trouble_reach)
        self._place = {each.label: index for index, each in enumerate(self.candidates)}

    def ask(self) -> Candidate | None:
        """The next candidate; None where nothing is left, or nothing better is likely.

            expected improvement x probability that it runs / cost

        Holds:   the first is the plan's: the least step over the probability that it runs. A layout whose messages should stall may
                 escape: it is tried before one that is surely no better. To go on for that is no reason (``prospect``).
        """
        left = self.left
        if not left or self.done:
            return None
        value = self.value()
        chosen = max(left, key=lambda index: (value[index], -index))
        self._asked.add(chosen)
        return self.candidates[chosen]

    def take(self, candidate: Candidate) -> None:
        """It is run though it was not asked for now."""
        self._asked.add(self._place[candidate.label])

    @property
    def left(self) -> list[int]:
        """Candidates that were not asked for and may run."""
        runs = self.runs.runs
        return [index for index in range(len(self.candidates)) if index not in self._asked and runs[index] > 0.0]

    @property
    def done(self) -> bool:
        """Whether no better one is likely."""
        return self.best is not None and self.prospect.probability_better < self.stop_probability

    @property
    def enough(self) -> bool:
        """Whether what waits for devices need not be run: it is no likelier to be better than the rest."""
        return self.done

    @property
    def stopped(self) -> str:
        """Why nothing more is asked for; empty while there is something."""
        if self.done:
            return f"another layout is more than 1 % faster with a probability of {percent(self.prospect.probability_better)} only"
        return "" if self.left else "every layout that may run was tried"

    def tell(self, candidate: Candidate, outcome: Outcome) -> None:
        """What came of a candidate, whoever chose it."""
        index = self._place[candidate.label]
        self._asked.add(index)
        self.told.append((index, outcome))
        for name in ("steps_believed", "runs", "prospect"):
            self.__dict__.pop(name, None)

    def value(self) -> Floats:
        """What a trial of each candidate is worth."""
        steps, runs = self.steps_believed, self.runs.runs
        if self.best is None:
            return np.asarray(-steps.mean + np.log(np.maximum(runs, 1e-12)))
        deviation, best = np.sqrt(np.maximum(np.diag(steps.covariance), 0.0)), math.log(self.best[1])
        chance = np.where(self.known.escape < 0.0, self.scales.escape, 0.0)
        worth = sum(
            share * expected_improvement(mean, deviation, best) / (self.start_s + self.steps * np.exp(mean))
            for share, mean in ((1.0 - chance, steps.mean), (chance, steps.mean + self.known.escape))
        )
        return np.asarray(worth * runs)

    @property
    def best(self) -> tuple[int, float] | None:
        """The fastest that was measured, and its step in seconds."""
        timed = [(outcome.step_s, index) for index, outcome in self.told if outcome.measured and outcome.step_s is not None]
        return (min(timed)[1], min(timed)[0]) if timed else None

    @property
    def _best_aside(self) -> bool:
        """Whether the best measured took another time than it mostly does: what is believed of it is not what it took."""
        measured = [index for index, outcome in self.told if outcome.measured]
        return self.best is not None and bool(self.steps_believed.aside[measured.index(self.best[0])] > 0.5)

    @cached_property
    def steps_believed(self) -> Steps:
        """Step times after what was told."""
        timed = [(index, outcome) for index, outcome in self.told if outcome.measured]
        at = [index for index, _ in timed]
        return update(
            self.known.log_step, self._prior, at,
            np.array([math.log(outcome.step_s or 1.0) for _, outcome in timed]), np.array([_noise(each) for _, each in timed]),
            self.scales.luck_of(self.known, at), self.scales.cells, self.scales.shifted,
        )

    @cached_property
    def runs(self) -> Running:
        """Probabilities of running after what was told."""
        return running(self.known, self.scales, self._alike, self.trials())

    def trials(self) -> list[Ran]:
        """What was told, as far as it says anything of running."""
        stalled = iter(self.steps_believed.stalled)
        found = []
        for index, outcome in self.told:
            memory = math.log(outcome.memory_peak_bytes) if outcome.memory_peak_bytes else None
            if outcome.measured:
                found.append(Ran(candidate=index, stalled=float(next(stalled)), failed=False, log_memory=memory))
            elif outcome.status not in NOT_THE_LAYOUTS:
                cause = {"oom": True, "unknown": None}.get(outcome.status, False)
                found.append(Ran(candidate=index, stalled=0.0, failed=True, by_memory=cause))
        return found

    @cached_property
    def prospect(self) -> Prospect:
        """What is left to find, from joint draws of the steps of all candidates that were not tried.

            P(better) = mean over draws of 1 - prod over candidates below the mark of (1 - p_runs)

        Symbols: the mark is 1 % below the best measured, whose own step is drawn as far as noise leaves it open.
        Holds:   what one run may escape by chance is not counted: the next run of that layout may not.
        Holds:   the same on each run: the draws are.
        """
        if self.best is None:
            return Prospect(probability_better=1.0, expected_gain_ratio=1.0)
        steps, runs, best = self.steps_believed, self.runs.runs, math.log(self.best[1])
        deviation = np.sqrt(np.maximum(np.diag(steps.covariance), 0.0))
        gain = expected_improvement(steps.mean, deviation, best) * runs
        tried = [index for index, outcome in self.told if outcome.status != "cancelled"]
        gain[tried] = 0.0
        left = np.flatnonzero(gain > NEGLIGIBLE * BETTER)
        if not len(left):
            return Prospect(probability_better=0.0, expected_gain_ratio=0.0)
        together = np.array([self.best[0], *left])
        values, vectors = np.linalg.eigh(steps.covariance[np.ix_(together, together)])
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        dice = np.random.default_rng(self.seed)
        wide = np.sqrt(steps.degrees / dice.chisquare(steps.degrees, (DRAWS, 1)))
        drawn = steps.mean[together] + wide * (dice.standard_normal((DRAWS, len(together))) @ root.T)
        mark, drawn = (np.full((DRAWS, 1), best) if self._best_aside else drawn[:, :1]), drawn[:, 1:]
        runs = runs[left]
        missed = np.where(drawn < mark + math.log1p(-BETTER), np.log1p(-np.minimum(runs, 1.0 - 1e-12)), 0.0).sum(axis=1)
        order = np.argsort(drawn, axis=1)
        gains = np.maximum(-np.expm1(np.minimum(np.take_along_axis(drawn, order, axis=1) - mark, 0.0)), 0.0)
        first = runs[order] * np.cumprod(np.concatenate([np.ones((DRAWS, 1)), 1.0 - runs[order][:, :-1]], axis=1), axis=1)
        return Prospect(
            probability_better=float(1.0 - np.exp(missed).mean()), expected_gain_ratio=float((gains * first).sum(axis=1).mean())
        )


def _noise(outcome: Outcome) -> float:
    """Standard deviation of the log of a measured step."""
    if outcome.interval_s is None:
        return NOISE
    low, high = outcome.interval_s
    return max(math.log(high / low) / 2.0 / NORMAL_80, NOISE / 4.0)
