"""Fitting the physical constants to measured runs: robust Gauss-Newton on the log scale with partial pooling.

    minimise  sum over runs of  w_g rho((log measured - log predicted(c)) / s_g)  +  1/2 sum over offsets of (z / sd)^2
    log c(key) = log prior + sum over levels of z(level, value)

Symbols: c constants; z offsets; sd their spread (``catalog.freedoms``); s_g noise of a kind of runs, estimated from the
         residuals themselves; rho Student-t with nu degrees, so that a mistaken row has a bounded pull; w_g shares the weight
         of re-measurements of one configuration.
Holds:   step times of runs that nobody tuned say how such runs are launched, not what a machine can do: the constants of launches
         alone are fitted to them, in a second phase, after all constants were fitted to the others.
Source:  partial pooling as in Gelman and Hill 2007, chapter 12; Student-t weights: Lange et al. 1989; two phases instead of one
         joint fit where a part of the model is doubtful: Liu, Bayarri and Berger 2009 (modularization).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from meshwright.errors import fault
from meshwright.evidence.fit.bounded import bounded, room_of
from meshwright.evidence.fit.linear import Linear, Runs
from meshwright.evidence.fit.noise import kinds_of_runs, noise_of_kinds, student_loss, student_weights
from meshwright.evidence.fit.pooling import Pooling, ceilings_of, pooling
from meshwright.evidence.fit.workers import workers
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from meshwright.domain.calibration import Freedom, Offsets
    from meshwright.evidence.fit.linear import Workers
    from meshwright.evidence.rows.run import Run

    Floats = NDArray[np.float64]

DEGREES = 4.0
"""Degrees of freedom of the Student-t: the tails of real logs."""
LARGEST_STEP, LEAST_DAMPING, LARGEST_DAMPING, MAX_ROUNDS, MAX_TURNS = 0.5, 0.02, 1000.0, 25, 3
SETTLED = 0.01
"""Change of a simulated step time, as a log, below which a turn is the last."""
MAX_RUNS = 20_000
"""Runs that a fit takes: it evaluates all of them many times."""
INNER_ROUNDS = 6
TOLERANCE, STILL = 3e-4, 1e-3
"""Gain in log likelihood per run at which a turn ends; the move of an offset at which a linear optimum is found."""


class Phase(Value, frozen=True):
    """One part of a fit: whose step times teach, and which offsets they move."""

    teaches: NDArray[np.bool_]
    """Over the runs."""
    free: NDArray[np.bool_]
    """Over the offsets."""
    step_noise: float | None = None
    """Of every step, in log units, where it is known; None: it is judged by the residuals."""


def phases_of(space: Runs, pool: Pooling, step_noise: float | None = None) -> tuple[Phase, ...]:
    """All constants by the runs that are not called untuned, then those of launches by all; one phase where none is untuned."""
    untuned = np.array([run.untuned for run in space.runs], dtype=bool)
    launching = np.array([pool.freedoms[constant].launch for constant, _, _ in pool.columns], dtype=bool)
    whole = Phase(teaches=~untuned, free=np.ones(pool.size, dtype=bool), step_noise=step_noise)
    if not untuned.any():
        return (whole,)
    return whole, Phase(teaches=np.ones(len(untuned), dtype=bool), free=launching, step_noise=step_noise)


@dataclass(frozen=True)
class Fit:
    """A fitted set of offsets and how it was reached."""

    runs: Runs
    pool: Pooling
    offsets: Floats
    ceilings: Floats
    """``[key, constant]``."""
    linear: Linear
    corrections: Floats
    weight: Floats
    phases: tuple[Phase, ...]
    rounds: int
    converged: bool

    @cached_property
    def linear_optimum(self) -> Floats:
        """Minimum of the linear model for all runs."""
        return linear_optimum(self, np.ones(len(self.runs.runs), dtype=bool))

    def named_offsets(self) -> dict[str, Offsets]:
        """What the fit learnt, by constant."""
        return self.pool.offsets_by_name(self.offsets)

    def step_residuals(self) -> Floats:
        """log(measured / predicted) step time of every run of the fit."""
        return np.asarray(self.runs.log_step - self.linear.step - self.corrections)

    def memory_residuals(self) -> Floats:
        """log(measured / predicted) memory of every run of the fit."""
        return np.asarray(self.runs.log_memory - self.linear.memory)


def fit(
    runs: Sequence[Run], freedoms: Sequence[Freedom], *, groups: Sequence[str] | None = None,
    shares: Mapping[str, float] | None = None, step_noise: float | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Fit:
    """Fit all constants to all runs.

    Shapes:  runs of any cases; ``groups`` names what each run re-measures (same name, same configuration); ``shares``: see
             ``pooling``; ``step_noise``: see ``Phase``.
    Errors:  ``InputError`` for more than ``MAX_RUNS``; a run without a figure pulls at nothing.
    Holds:   deterministic: no random numbers, the order of runs changes sums only in the last bits.
    """
    if len(runs) > MAX_RUNS:
        raise fault("fit.many", "{count:,} runs are more than a fit takes: {limit:,}", count=len(runs), limit=MAX_RUNS)
    space = Runs(runs, [freedom.name for freedom in freedoms])
    ceilings = ceilings_of(freedoms, space.keys)
    pool = replace(pooling(freedoms, space.keys, shares), room=room_of(space, ceilings))
    weight = _shares(groups or [str(index) for index in range(len(runs))])
    phases = phases_of(space, pool, step_noise)
    search = _Search(space=space, pool=pool, ceilings=ceilings, weight=weight, phases=phases, progress=progress)
    with workers(space) as helpers:
        search.run(helpers)
    offsets, linear, corrections = search.offsets, search.linear, search.corrections
    return Fit(
        runs=space, pool=pool, offsets=offsets, ceilings=ceilings, weight=weight, linear=linear, corrections=corrections,
        phases=phases, rounds=search.rounds, converged=search.converged,
    )


def refit(whole: Fit, keep: NDArray[np.bool_]) -> Floats:
    """Offsets without some runs: those of the whole fit, less what these runs contribute to them on its linear model.

        z(without) = z + (argmin of the linear model without them - argmin of the linear model with all)

    Shapes:  ``keep`` over the runs -> offsets.
    Holds:   to second order in how far the offsets move; exact for a linear model that has converged. Where the whole fit stopped
             short of its optimum, both minimisers share the way that is left, and their difference does not. Where a large share
             of the runs goes and is predicted otherwise then, the linear model is taken again at what was found.
    Source:  the infinitesimal jackknife for cross-validation: Giordano et al. 2019; its second order by a further Newton step.
    """
    offsets = np.asarray(whole.offsets + linear_optimum(whole, keep, start=whole.linear_optimum) - whole.linear_optimum)
    for _ in range(FURTHER_STEPS if _goes_far(whole, keep, offsets) else 0):
        linear = whole.runs.linear(whole.pool.multipliers(offsets), whole.ceilings)
        offsets = linear_optimum(replace(whole, offsets=offsets, linear=linear), keep)
    return offsets


LARGE, FAR, FURTHER_STEPS = 0.05, 0.1, 2
"""Share of the runs' weight, and mean change of the log step of those that go, from which one linear model is not enough; how often
it is taken again. Our judgement: sources of hundreds of runs, not folds at random."""


def _goes_far(whole: Fit, keep: NDArray[np.bool_], offsets: Floats) -> bool:
    """Whether a fit without some runs is too far from the whole one for one linear model."""
    gone = ~keep & np.isfinite(whole.runs.log_step)
    if whole.weight[gone].sum() < LARGE * whole.weight.sum():
        return False
    shift = (whole.pool.multipliers(offsets) - whole.pool.multipliers(whole.offsets))[whole.runs.key_of[gone]]
    return float(np.abs((whole.linear.step_by[gone] * shift).sum(axis=1)).mean()) > FAR


def linear_optimum(whole: Fit, keep: NDArray[np.bool_], start: Floats | None = None) -> Floats:
    """Where the linear model of a fit has its minimum for some of the runs, weights iterated.

    ``start``: offsets near it; without them those of the fit.
    """
    offsets, state = whole.offsets if start is None else start, (whole.linear, whole.corrections)
    for phase in whole.phases:
        for _ in range(INNER_ROUNDS):
            moved = _solve(whole.runs, whole.pool, state, offsets, whole.weight, phase, keep, at=whole.offsets)
            done = float(np.abs(moved - offsets).max()) < STILL
            offsets = moved
            if done:
                break
    return offsets


def _solve(
    space: Runs, pool: Pooling, state: tuple[Linear, Floats], offsets: Floats, weight: Floats, phase: Phase,
    keep: NDArray[np.bool_], at: Floats | None = None, damping: float = 0.0,
) -> Floats:
    """One Levenberg-Marquardt step: the offsets that minimise the weighted squares of the linear model plus the priors', with
    every constant at its ceiling or below.

    Holds:   offsets that are not free in the phase stay.
    """
    linear, corrections = state
    moved = pool.multipliers(offsets) - pool.multipliers(at) if at is not None else np.zeros((len(pool.keys), len(pool.freedoms)))
    shift = moved[space.key_of]
    kinds = kinds_of_runs(space, linear.step)
    normal, right = np.diag(1.0 / np.square(pool.spreads)), -offsets / np.square(pool.spreads)
    step = space.log_step - (linear.step + corrections + (linear.step_by * shift).sum(axis=1))
    memory = space.log_memory - (linear.memory + (linear.memory_by * shift).sum(axis=1))
    for residual, by, names, teaches, known in (
        (step, linear.step_by, kinds.step, keep & phase.teaches, phase.step_noise),
        (memory, linear.memory_by, kinds.memory, keep, None),
    ):
        used = np.flatnonzero(np.isfinite(residual) & teaches)
        if not len(used):
            continue
        noise = noise_of_kinds(residual[used], names[used], known)
        factor = weight[used] * student_weights(residual[used] / noise) / np.square(noise)
        matrix, side = pool.normal_equations(by[used], space.key_of[used], factor, residual[used])
        normal, right = normal + matrix, right + side
    return bounded(normal + damping * np.diag(np.diag(normal)), right, offsets, pool, phase.free)


def _objective(
    space: Runs, pool: Pooling, state: tuple[Linear, Floats], offsets: Floats, weight: Floats, teaches: NDArray[np.bool_],
    step_noise: float | None = None,
) -> float:
    """Negative log likelihood of the Student-t with the noise of each kind, plus the priors."""
    linear, corrections = state
    kinds = kinds_of_runs(space, linear.step)
    total = 0.5 * float(np.square(offsets / pool.spreads).sum())
    for residual, names, chosen, known in (
        (space.log_step - linear.step - corrections, kinds.step, teaches, step_noise),
        (space.log_memory - linear.memory, kinds.memory, np.ones(len(space.runs), dtype=bool), None),
    ):
        used = np.flatnonzero(np.isfinite(residual) & chosen)
        if len(used):
            noise = noise_of_kinds(residual[used], names[used], known)
            total += float((weight[used] * student_loss(residual[used], noise)).sum())
    return total


class _Search:
    """Levenberg-Marquardt in turns: the bubbles of unequal stages are simulated at the start of a turn and held during it."""

    def __init__(
        self, *, space: Runs, pool: Pooling, ceilings: Floats, weight: Floats, phases: Sequence[Phase],
        progress: Callable[[str, int, int], None] | None,
    ) -> None:
        self.space, self.pool, self.ceilings, self.weight, self.progress = space, pool, ceilings, weight, progress
        self.offsets, self.corrections, self.phases = np.zeros(pool.size), np.zeros(len(space.runs)), phases
        self.linear: Linear
        self.rounds, self.converged, self.damping = 0, False, LEAST_DAMPING

    def run(self, helpers: Workers | None) -> None:
        """Each phase to its end: the turn after which simulated bubbles stay where they were."""
        measured = np.isfinite(self.space.log_step)
        self.linear = self._evaluate(self.offsets, helpers)
        for phase in self.phases:
            for turn in range(MAX_TURNS):
                before = self.corrections
                multipliers = self.pool.multipliers(self.offsets)
                self.corrections = self.space.corrections(multipliers, self.ceilings, measured, helpers)
                if turn and float(np.abs(self.corrections - before).max()) < SETTLED:
                    break
                self._turn(phase, helpers)

    def _turn(self, phase: Phase, helpers: Workers | None) -> None:
        everyone = np.ones(len(self.space.runs), dtype=bool)
        best, self.converged, end = self._objective(self.linear, self.offsets, phase), False, self.rounds + MAX_ROUNDS
        self.damping = LEAST_DAMPING
        while self.rounds < end and not self.converged:
            self.rounds += 1
            state = (self.linear, self.corrections)
            moved = _solve(self.space, self.pool, state, self.offsets, self.weight, phase, everyone, damping=self.damping)
            tried = self.offsets + np.clip(moved - self.offsets, -LARGEST_STEP, LARGEST_STEP)
            found = self._evaluate(tried, helpers)
            value = self._objective(found, tried, phase)
            if value > best:
                self.damping *= 5.0
                self.converged = self.damping > LARGEST_DAMPING
                continue
            self.converged = best - value < TOLERANCE * len(self.space.runs)
            self.offsets, self.linear, best = tried, found, value
            self.damping = max(self.damping / 2.0, LEAST_DAMPING)

    def _objective(self, linear: Linear, offsets: Floats, phase: Phase) -> float:
        return _objective(self.space, self.pool, (linear, self.corrections), offsets, self.weight, phase.teaches, phase.step_noise)

    def _evaluate(self, offsets: Floats, helpers: Workers | None) -> Linear:
        done, count = 0, len(self.space.runs)

        def tick(more: int) -> None:
            nonlocal done
            done += more
            if self.progress:
                self.progress(f"round {self.rounds}", done, count)

        return self.space.linear(self.pool.multipliers(offsets), self.ceilings, tick, helpers)


def _shares(groups: Sequence[str]) -> Floats:
    """Weight of a run: n re-measurements of one configuration count as the square root of n together."""
    _, inverse, counts = np.unique(np.array(groups), return_inverse=True, return_counts=True)
    return np.asarray(1.0 / np.sqrt(counts[inverse]))
