"""The scales by maximum likelihood, from cells whose rows the calibration had not seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from meshwright.evidence.fit.likeness import likeness
from meshwright.measure.tuning.running import GRID, LOGISTIC_SD
from meshwright.measure.tuning.scales import Scales, covariance
from meshwright.measure.tuning.steps import NOISE, STALLED, Steps, update

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.measure.tuning.beliefs import Beliefs

    Floats = NDArray[np.float64]

START = Scales(
    common=0.5, physics=0.3, alike=0.5, reach=4.0, own=0.5, cells=5.0, shifted=0.01, trouble=0.05, trouble_growth=0.5,
    trouble_reach=2.0, trouble_weight=4.0, escape=0.03, need_common=0.3,
)
STEPS = ("common", "physics", "alike", "reach", "own", "cells")
TROUBLE = ("trouble", "trouble_growth", "trouble_reach", "trouble_weight")
LOOKED_AT, LEAST_RUNS = 2.0, 3
"""Layouts that are predicted to be so many times as slow as the fastest are not looked at by a tuner and teach nothing; a cell of
fewer runs has no spread. Our judgement."""
LEAST, MOST = 0.02, 30.0
"""Bounds of the search for each scale."""
HALVINGS = (1.5, 1.2, 1.08)
"""Factors by which a scale is tried larger and smaller, until none is better."""
ROUNDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A cell that was measured: what was believed, and what came."""

    known: Beliefs
    at: NDArray[np.int64]
    """Candidates that ran."""
    log_step: Floats
    failed: NDArray[np.int64]
    """Candidates that failed, nobody says why."""


def within(cell: Seen, factor: float = LOOKED_AT) -> Seen:
    """The part of a cell that a tuner looks at: what is predicted to be at most so much slower than its fastest run."""
    log_step = cell.known.log_step[cell.at]
    kept = log_step <= log_step.min() + math.log(factor)
    return replace(cell, at=cell.at[kept], log_step=cell.log_step[kept])


def learn(cells: Sequence[Seen], escape: float) -> Scales:
    """The scales under which the cells are most likely, of each what a tuner looks at (``within``); each counts as the square root
    of its runs. ``escape``: that scale, which is counted (``escapes``).

    Holds:   deterministic: searches along each scale from fixed values. No cell is off as a whole by more than ``common`` says: how
             likely the next one is follows by the rule of succession, 1 / (n + 2).
    """
    found = replace(START, escape=escape)
    cells = [each for each in map(within, cells) if len(each.at) >= LEAST_RUNS]
    for _ in range(ROUNDS):
        steps = [_steps(each, found) for each in cells]
        found = _climb(found, TROUBLE, partial(_trouble_likelihood, cells, [each.stalled for each in steps]))
        found = _climb(found, STEPS, partial(_step_likelihood, cells, [each.aside for each in steps]))
    shares = np.linspace(0.0, 0.95, 20)
    found = replace(found, need_common=float(max(shares, key=lambda each: _memory_likelihood(cells, float(each)))))
    return _rounded(replace(found, shifted=1.0 / (len(cells) + 2.0)))


def _rounded(found: Scales) -> Scales:
    return Scales(**{name: round(float(getattr(found, name)), 4) for name in Scales.__slots__})


def _climb(start: Scales, names: Sequence[str], objective: Callable[[Scales], float]) -> Scales:
    best, value = start, objective(start)
    for factor in HALVINGS:
        better = True
        while better:
            better = False
            for name in names:
                for move in (factor, 1.0 / factor):
                    tried = replace(best, **{name: min(max(getattr(best, name) * move, LEAST), MOST)})
                    if (found := objective(tried)) > value + 1e-6:
                        best, value, better = tried, found, True
    return best


def escapes(shift: Floats, above: Floats) -> float:
    """How many runs whose messages should stall are nearer to the time of one whose do not, by the rule of succession.

    ``shift``: ``Beliefs.escape`` of each, below 0; ``above``: log(measured / predicted).
    """
    free = np.abs(above - shift) < np.abs(above)
    return float((1.0 + free.sum()) / (2.0 + len(free)))


def _steps(cell: Seen, scales: Scales) -> Steps:
    noise, at = np.full(len(cell.at), NOISE), cell.at.tolist()
    prior = covariance(cell.known, scales)
    return update(cell.known.log_step, prior, at, cell.log_step, noise, scales.luck_of(cell.known, at), scales.cells)


def _step_likelihood(cells: Sequence[Seen], aside: Sequence[Floats], scales: Scales) -> float:
    """Of the runs that took what their layouts mostly do, and of the others as any factor up to ``STALLED``."""
    total = 0.0
    for cell, held in zip(cells, aside, strict=True):
        kept = cell.at[held < 0.5]
        residual = cell.log_step[held < 0.5] - cell.known.log_step[kept]
        root = np.linalg.cholesky(covariance(cell.known, scales)[np.ix_(kept, kept)] + NOISE**2 * np.eye(len(kept)))
        white = np.linalg.solve(root, residual)
        degrees, count = scales.cells, len(kept)
        own = math.lgamma((degrees + count) / 2.0) - math.lgamma(degrees / 2.0) - 0.5 * count * math.log(degrees * math.pi)
        own -= float(np.log(np.diag(root)).sum()) + 0.5 * (degrees + count) * math.log1p(float(white @ white) / degrees)
        chance = scales.trouble_of(cell.known.spread[cell.at])
        own += float(np.where(held < 0.5, np.log1p(-chance), np.log(chance / STALLED)).sum())
        total += own / math.sqrt(len(held))
    return total


def _memory_likelihood(cells: Sequence[Seen], share: float) -> float:
    """Of which candidates ran and which failed, where a share of the variance of the need is the cell's."""
    total = 0.0
    for cell in cells:
        if not len(cell.failed):
            continue
        known = cell.known
        deviation = known.memory_width * LOGISTIC_SD * math.sqrt(share)
        own = known.memory_width * math.sqrt(1.0 - share)
        ran = (1.0 - known.failures) / (1.0 + np.exp(np.clip((known.log_need[:, None] + GRID * deviation) / own, -60.0, 60.0)))
        log = np.log(np.maximum(ran[cell.at], 1e-9)).sum(axis=0) + np.log(np.maximum(1.0 - ran[cell.failed], 1e-9)).sum(axis=0)
        weight = np.exp(-0.5 * np.square(GRID))
        total += (float(log.max()) + math.log(float((np.exp(log - log.max()) * weight).sum() / weight.sum()))) / math.sqrt(
            len(cell.at) + len(cell.failed)
        )
    return total


def _trouble_likelihood(cells: Sequence[Seen], stalled: Sequence[Floats], scales: Scales) -> float:
    """Of each run's trouble by what the others of its cell had (leave one out)."""
    total = 0.0
    for cell, held in zip(cells, stalled, strict=True):
        alike = likeness(cell.known.words[cell.at], scales.trouble_reach)
        np.fill_diagonal(alike, 0.0)
        prior = scales.trouble_of(cell.known.spread[cell.at])
        chance = (scales.trouble_weight * prior + alike @ held) / (scales.trouble_weight + alike.sum(axis=1))
        chance = np.clip(chance, 1e-6, 1.0 - 1e-6)
        total += float((held * np.log(chance) + (1.0 - held) * np.log1p(-chance)).sum()) / math.sqrt(len(held))
    return total
