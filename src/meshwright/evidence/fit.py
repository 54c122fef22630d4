"""Fitting the physical constants to measured runs: robust Gauss-Newton on the log scale with partial pooling.

    minimise  sum over runs of  w_g rho((log measured - log predicted(c)) / s_g)  +  1/2 sum over offsets of (z / sd)^2
    log c(key) = log prior + sum over levels of z(level, value)

Symbols: c constants; z offsets; sd their spread (``catalog.freedoms``); s_g noise of a kind of runs, estimated from the
         residuals themselves; rho Student-t with nu degrees, so that a mistaken row has a bounded pull; w_g shares the weight
         of re-measurements of one configuration.
Source:  partial pooling as in Gelman and Hill 2007, chapter 12; Student-t weights: Lange et al. 1989.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from meshwright.evidence.linear import Linear, Runs
from meshwright.evidence.noise import kinds_of_runs, noise_of_kinds, student_loss, student_weights
from meshwright.evidence.pooling import Pooling, pooling
from meshwright.evidence.workers import workers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from meshwright.domain.calibration import Freedom, Offsets
    from meshwright.evidence.linear import Workers
    from meshwright.evidence.rows import Run

    Floats = NDArray[np.float64]

DEGREES = 4.0
"""Degrees of freedom of the Student-t: the tails of real logs."""
LARGEST_STEP, LARGEST_DAMPING, MAX_ROUNDS = 0.5, 100.0, 16
TOLERANCE = 1e-3
"""Gain in log likelihood per run at which the fit ends; and the move of an offset at which a refit ends."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted set of offsets and how it was reached."""

    runs: Runs
    pool: Pooling
    offsets: Floats
    ceilings: Floats
    linear: Linear
    corrections: Floats
    weight: Floats
    rounds: int
    converged: bool

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
    progress: Callable[[str, int, int], None] | None = None,
) -> Fit:  # fmt: skip
    """Fit all constants to all runs.

    Shapes:  runs of any cases; ``groups`` names what each run re-measures (same name, same configuration).
    Errors:  none; a run without a figure pulls at nothing.
    Holds:   deterministic: no random numbers, the order of runs changes sums only in the last bits.
    """
    space = Runs(runs, [freedom.name for freedom in freedoms])
    pool = pooling(freedoms, space.keys)
    ceilings = np.array([freedom.maximum or np.inf for freedom in freedoms])
    weight = _shares(groups or [str(index) for index in range(len(runs))])
    offsets, everyone = np.zeros(pool.size), np.ones(len(runs), dtype=bool)
    rounds, converged, damping = 0, False, 0.01
    with workers(space) as helpers:
        state = _evaluate(space, pool, ceilings, offsets, progress, 0, helpers)
        best = _objective(space, pool, state, offsets, weight)
        while rounds < MAX_ROUNDS and not converged:
            rounds += 1
            moved = _solve(space, pool, state, offsets, weight, everyone, damping=damping)
            tried = offsets + np.clip(moved - offsets, -LARGEST_STEP, LARGEST_STEP)
            found = _evaluate(space, pool, ceilings, tried, progress, rounds, helpers)
            value = _objective(space, pool, found, tried, weight)
            if value > best:
                damping *= 10.0
                converged = damping > LARGEST_DAMPING
                continue
            converged = best - value < TOLERANCE * len(runs)
            offsets, state, best, damping = tried, found, value, damping / 5.0
    return Fit(
        runs=space, pool=pool, offsets=offsets, ceilings=ceilings, weight=weight, linear=state[0], corrections=state[1],
        rounds=rounds, converged=converged,
    )  # fmt: skip


def refit(whole: Fit, keep: NDArray[np.bool_], *, inner: int = 10) -> Floats:
    """Offsets without some runs, by Gauss-Newton on the linear model of the whole fit.

    Shapes:  ``keep`` over the runs -> offsets.
    Holds:   to second order in how far the offsets move: nothing of a run that is left out enters but the point of expansion.
    """
    offsets = whole.offsets
    for _ in range(inner):
        moved = _solve(whole.runs, whole.pool, (whole.linear, whole.corrections), offsets, whole.weight, keep, at=whole.offsets)
        done = float(np.abs(moved - offsets).max()) < TOLERANCE
        offsets = moved
        if done:
            break
    return offsets


def _solve(
    space: Runs, pool: Pooling, state: tuple[Linear, Floats], offsets: Floats, weight: Floats, keep: NDArray[np.bool_],
    at: Floats | None = None, damping: float = 0.0,
) -> Floats:  # fmt: skip
    """One Levenberg-Marquardt step: the offsets that minimise the weighted squares of the linear model plus the priors'."""
    linear, corrections = state
    moved = pool.multipliers(offsets) - pool.multipliers(at) if at is not None else np.zeros((len(pool.keys), len(pool.freedoms)))
    shift = moved[space.key_of]
    kinds = kinds_of_runs(space, linear.step)
    normal, right = np.diag(1.0 / np.square(pool.spreads)), -offsets / np.square(pool.spreads)
    step = space.log_step - (linear.step + corrections + (linear.step_by * shift).sum(axis=1))
    memory = space.log_memory - (linear.memory + (linear.memory_by * shift).sum(axis=1))
    for residual, by, names in ((step, linear.step_by, kinds.step), (memory, linear.memory_by, kinds.memory)):
        used = np.flatnonzero(np.isfinite(residual) & keep)
        if not len(used):
            continue
        noise = noise_of_kinds(residual[used], names[used])
        factor = weight[used] * student_weights(residual[used] / noise) / np.square(noise)
        design = pool.spread_out(by[used], space.key_of[used])
        scaled = design * factor[:, None]
        normal = normal + scaled.T @ design
        right = right + scaled.T @ residual[used]
    damped = normal + damping * np.diag(np.diag(normal))
    return np.asarray(offsets + np.linalg.solve(damped, right))


def _objective(space: Runs, pool: Pooling, state: tuple[Linear, Floats], offsets: Floats, weight: Floats) -> float:
    """Negative log likelihood of the Student-t with the noise of each kind, plus the priors."""
    linear, corrections = state
    kinds = kinds_of_runs(space, linear.step)
    total = 0.5 * float(np.square(offsets / pool.spreads).sum())
    for residual, names in (
        (space.log_step - linear.step - corrections, kinds.step),
        (space.log_memory - linear.memory, kinds.memory),
    ):
        used = np.flatnonzero(np.isfinite(residual))
        if len(used):
            noise = noise_of_kinds(residual[used], names[used])
            total += float((weight[used] * student_loss(residual[used], noise)).sum())
    return total


def _evaluate(
    space: Runs,
    pool: Pooling,
    ceilings: Floats,
    offsets: Floats,
    progress: Callable[[str, int, int], None] | None,
    turn: int,
    helpers: Workers | None,
) -> tuple[Linear, Floats]:
    done = 0

    def tick(count: int) -> None:
        nonlocal done
        done += count
        if progress:
            progress(f"round {turn}", done, len(space.runs))

    multipliers = pool.multipliers(offsets)
    return space.linear(multipliers, ceilings, tick, helpers), space.corrections(multipliers, ceilings)


def _shares(groups: Sequence[str]) -> Floats:
    """Weight of a run: n re-measurements of one configuration count as the square root of n together."""
    _, inverse, counts = np.unique(np.array(groups), return_inverse=True, return_counts=True)
    return np.asarray(1.0 / np.sqrt(counts[inverse]))
