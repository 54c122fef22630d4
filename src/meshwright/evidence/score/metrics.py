"""How far predictions are from measurements: errors, intervals, probabilities. Sums are exact, so no order of rows matters."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.evidence.score.baselines import constant_hfu, middle, noise_ratio
from meshwright.evidence.score.columns import BLANK, view_of
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.evidence.score.columns import View
    from meshwright.evidence.score.scored import Scored

    Floats = NDArray[np.float64]

FACTOR, WIDE_FACTOR = 1.25, 2.0
MIN_RANKED = 3
"""Fewer rows have no rank correlation worth the name."""


class Scores(Value, frozen=True, kw_only=True):
    """Metrics of a set of rows, named as in the contract; None where there is nothing to compare."""

    n: int
    """Rows that count: predicted, without a flag, with a result or a status."""
    skipped: int = 0
    step_n: int = 0
    step_mape_ratio: float | None = None
    step_median_ape_ratio: float | None = None
    step_bias_ratio: float | None = None
    """Mean of predicted / measured - 1."""
    step_median_factor: float | None = None
    """Median of the larger of predicted / measured and its inverse."""
    step_within_factor_1_25_ratio: float | None = None
    step_within_factor_2_ratio: float | None = None
    spearman: float | None = None
    memory_n: int = 0
    memory_mape_ratio: float | None = None
    memory_bias_ratio: float | None = None
    fit_n: int = 0
    fit_accuracy_ratio: float | None = None
    fit_accuracy_memory_only_ratio: float | None = None
    """Of the rows that pass legality."""
    interval_n: int = 0
    interval_coverage_ratio: float | None = None
    interval_width_median_ratio: float | None = None
    """Median of (high - low) / predicted."""
    memory_interval_coverage_ratio: float | None = None
    noise_ratio: float | None = None
    """How much re-measurements of one configuration differ: median over configurations (``baselines.noise_ratio``)."""
    constant_hfu_mape_ratio: float | None = None
    """What one constant efficiency reaches on the same rows, fitted on the other folds (``baselines.constant_hfu``)."""


class Bin(Value, frozen=True, kw_only=True):
    """Rows that were given about the same probability to run."""

    low: float
    high: float
    n: int
    mean_probability: float
    ran_ratio: float


def scores(rows: View | Sequence[Scored], *, skipped: int = 0) -> Scores:
    """All metrics of some rows.

    Units:   ratios; ``step_bias_ratio`` is the mean of predicted / measured - 1.
    Source:  docs/sources.md#scores.
    """
    view = view_of(rows)
    timed, sized, ended = view.timed, view.sized, view.where(view.status != BLANK)
    right = ended.fits == ended.ok
    bounded = timed.where(~np.isnan(timed.low_step_s))
    memory_bounded = sized.where(~np.isnan(sized.low_memory_bytes))
    ratios, memory = timed.predicted_step_s / timed.measured_step_s, sized.predicted_memory_bytes / sized.measured_memory_bytes
    factors = np.maximum(ratios, 1.0 / ratios)
    return Scores(
        n=int(((view.status != BLANK) | (np.nan_to_num(view.measured_step_s) != 0.0)).sum()), skipped=skipped, step_n=len(timed),
        step_mape_ratio=_mean(np.abs(ratios - 1.0)), step_median_ape_ratio=middle(np.abs(ratios - 1.0)),
        step_bias_ratio=_mean(ratios - 1.0), step_median_factor=middle(factors),
        step_within_factor_1_25_ratio=_mean(factors <= FACTOR), step_within_factor_2_ratio=_mean(factors <= WIDE_FACTOR),
        spearman=spearman(timed.predicted_step_s, timed.measured_step_s),
        memory_n=len(sized), memory_mape_ratio=_mean(np.abs(memory - 1.0)), memory_bias_ratio=_mean(memory - 1.0),
        fit_n=len(ended), fit_accuracy_ratio=_mean(right), fit_accuracy_memory_only_ratio=_mean(right[ended.legal == 1]),
        interval_n=len(bounded),
        interval_coverage_ratio=_mean(
            (bounded.low_step_s <= bounded.measured_step_s) & (bounded.measured_step_s <= bounded.high_step_s)
        ),
        interval_width_median_ratio=middle((bounded.high_step_s - bounded.low_step_s) / bounded.predicted_step_s),
        memory_interval_coverage_ratio=_mean(
            (memory_bounded.low_memory_bytes <= memory_bounded.measured_memory_bytes)
            & (memory_bounded.measured_memory_bytes <= memory_bounded.high_memory_bytes)
        ),
        noise_ratio=noise_ratio(timed), constant_hfu_mape_ratio=constant_hfu(timed),
    )


def reliability(rows: View | Sequence[Scored], bins: int = 10) -> tuple[Bin, ...]:
    """Of the rows that were given about p, the share that ran; bins are centred on 0, 0.1 ... 1, empty ones left out.

    Units:   probabilities.
    """
    view = view_of(rows)
    ended = view.where(view.status != BLANK)
    given, ran, found = ended.fit_probability, ended.ok, []
    for index in range(bins + 1):
        low, high = (index - 0.5) / bins, (index + 0.5) / bins
        inside = (low <= given) & (given < high)
        if inside.any():
            found.append(
                Bin(
                    low=max(0.0, low), high=min(1.0, high), n=int(inside.sum()),
                    mean_probability=_mean(given[inside]) or 0.0, ran_ratio=_mean(ran[inside]) or 0.0,
                )
            )
    return tuple(found)


def spearman(a: Sequence[float] | Floats, b: Sequence[float] | Floats) -> float | None:
    """Rank correlation; ties share their mean rank. None where ranks do not vary or rows are fewer than three.

    Units:   -1 .. 1.
    """
    if len(a) < MIN_RANKED:
        return None
    one, other = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    order = np.lexsort((other, one))  # sorted: the same bits in any order of rows
    first, second = ranks(one[order]), ranks(other[order])
    if np.ptp(first) == 0.0 or np.ptp(second) == 0.0:
        return None
    return float(np.corrcoef(first, second)[0, 1])


def ranks(values: Floats) -> Floats:
    """Ranks from 1; ties share their mean."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2.0)[inverse], dtype=np.float64)


def _mean(values: NDArray[Any]) -> float | None:
    """The mean, its sum exact."""
    return fsum(values.tolist()) / len(values) if len(values) else None
