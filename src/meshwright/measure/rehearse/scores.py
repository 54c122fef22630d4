"""Predicted beside measured: errors, order, regret, and how much of each is the noise of the measurement itself."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

DRAWS = 2000
SEED = 0
TAIL = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What repetitions say of the measurement itself."""

    spread_ratio: float
    """Median over layouts of (slowest - fastest repetition) / median."""
    regret_low_ratio: float
    """5 % and 95 % of the regret, over repetitions drawn again."""
    regret_high_ratio: float
    choice_regret_ratio: float
    """Regret of choosing by a measurement like this one instead of by the prediction: its mean over pairs of measurements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """How predictions of several layouts of one case stand beside what was measured."""

    layouts: int
    """Layouts with a measured time."""
    median_error_ratio: float
    """Median of |predicted / measured - 1|."""
    worst_error_ratio: float
    bias_ratio: float
    """Median of predicted / measured - 1: what is left of it after a common factor is the error of the comparison."""
    order: float | None
    """Spearman's rank correlation; None below three layouts, or where all are alike."""
    regret_ratio: float
    """Measured time of the chosen layout over that of the fastest measured, less 1."""
    noise: Noise | None
    """None where a layout was run once only: nobody knows."""


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Rank correlation; equal values share the mean of their ranks.

    Source:  Pearson's correlation of the ranks (Spearman 1904).

    >>> spearman([1.0, 2.0, 3.0], [10.0, 30.0, 20.0])
    0.5
    """
    if len(first) < 3:
        return None
    one, other = (_ranks(values) - (len(values) + 1) / 2 for values in (first, second))
    scale = float(np.sqrt((one**2).sum() * (other**2).sum()))
    return float((one * other).sum()) / scale if scale else None


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    column = np.asarray(values, dtype=np.float64)
    below = (column[None, :] < column[:, None]).sum(axis=1)
    equal = (column[None, :] == column[:, None]).sum(axis=1)
    ranks: NDArray[np.float64] = below + (equal + 1) / 2
    return ranks


def regret(choice: int, measured: Sequence[float]) -> float:
    """How much slower the chosen one is than the fastest."""
    return measured[choice] / min(measured) - 1.0


def spread(runs: Sequence[float]) -> float:
    """(slowest - fastest) / median of the repetitions of one layout."""
    return (max(runs) - min(runs)) / median(runs)


def scores(predicted: Sequence[float], runs: Sequence[Sequence[float]], choice: int | None = None) -> Scores | None:
    """Scores of layouts from their predicted seconds and the measured seconds of each repetition; None without any layout.

    ``choice``: place of the layout that was chosen; None: the one predicted fastest.

    Holds:   deterministic; every layout has at least one repetition.
    """
    if not predicted:
        return None
    measured = [median(each) for each in runs]
    errors = [one / other - 1.0 for one, other in zip(predicted, measured, strict=True)]
    choice = int(np.argmin(predicted)) if choice is None else choice
    return Scores(
        layouts=len(measured), median_error_ratio=median(abs(each) for each in errors),
        worst_error_ratio=max(errors, key=abs), bias_ratio=median(errors), order=spearman(predicted, measured),
        regret_ratio=regret(choice, measured), noise=_noise(choice, runs) if min(map(len, runs)) > 1 else None,
    )


def _noise(choice: int, runs: Sequence[Sequence[float]]) -> Noise:
    once, again = _drawn(runs, SEED), _drawn(runs, SEED + 1)
    regrets = once[:, choice] / once.min(axis=1) - 1.0
    picked = again[np.arange(DRAWS), once.argmin(axis=1)]
    low, high = np.quantile(regrets, (TAIL, 1.0 - TAIL))
    return Noise(
        spread_ratio=median(spread(each) for each in runs),
        regret_low_ratio=float(low),
        regret_high_ratio=float(high),
        choice_regret_ratio=float((picked / again.min(axis=1) - 1.0).mean()),
    )


def _drawn(runs: Sequence[Sequence[float]], seed: int) -> NDArray[np.float64]:
    """Medians of repetitions drawn with replacement, ``[draw, layout]``."""
    random = np.random.default_rng(seed)
    columns = [np.median(random.choice(np.asarray(each), size=(DRAWS, len(each))), axis=1) for each in runs]
    return np.stack(columns, axis=1)
