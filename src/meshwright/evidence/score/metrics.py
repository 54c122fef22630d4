"""How far predictions are from measurements: errors, intervals, probabilities. Sums are exact, so no order of rows matters."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING

import numpy as np

from meshwright.evidence.score.baselines import constant_hfu, noise_ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.evidence.score.scored import Scored

FACTOR, WIDE_FACTOR = 1.25, 2.0
MIN_RANKED = 3
"""Fewer rows have no rank correlation worth the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Rows that were given about the same probability to run."""

    low: float
    high: float
    n: int
    mean_probability: float
    ran_ratio: float


def scores(rows: Sequence[Scored], *, skipped: int = 0) -> Scores:
    """All metrics of some rows.

    Units:   ratios; ``step_bias_ratio`` is the mean of predicted / measured - 1.
    Source:  docs/sources.md#scores.
    """
    timed = [each for each in rows if each.timed]
    sized = [each for each in rows if each.sized]
    ended = [each for each in rows if each.status]
    legal = [each for each in ended if each.legal]
    bounded = [each for each in timed if each.step_interval_s is not None]
    memory_bounded = [each for each in sized if each.memory_interval_bytes is not None]
    ratios = [each.step_ratio for each in timed]
    memory = [each.memory_ratio for each in sized]
    factors = [max(each, 1.0 / each) for each in ratios]
    widths = [_width(each) for each in bounded]
    return Scores(
        n=sum(bool(each.status or each.measured_step_s) for each in rows), skipped=skipped, step_n=len(timed),
        step_mape_ratio=_mean([abs(each - 1.0) for each in ratios]),
        step_median_ape_ratio=median([abs(each - 1.0) for each in ratios]) if ratios else None,
        step_bias_ratio=_mean([each - 1.0 for each in ratios]),
        step_median_factor=median(factors) if factors else None,
        step_within_factor_1_25_ratio=_mean([each <= FACTOR for each in factors]),
        step_within_factor_2_ratio=_mean([each <= WIDE_FACTOR for each in factors]),
        spearman=spearman([each.predicted_step_s or 0.0 for each in timed], [each.measured_step_s or 0.0 for each in timed]),
        memory_n=len(sized), memory_mape_ratio=_mean([abs(each - 1.0) for each in memory]),
        memory_bias_ratio=_mean([each - 1.0 for each in memory]),
        fit_n=len(ended), fit_accuracy_ratio=_mean([_right(each) for each in ended]),
        fit_accuracy_memory_only_ratio=_mean([_right(each) for each in legal]),
        interval_n=len(bounded), interval_coverage_ratio=_mean([_covered(each) for each in bounded]),
        interval_width_median_ratio=median(widths) if widths else None,
        memory_interval_coverage_ratio=_mean([_memory_covered(each) for each in memory_bounded]),
        noise_ratio=noise_ratio(timed), constant_hfu_mape_ratio=constant_hfu(timed),
    )


def reliability(rows: Sequence[Scored], bins: int = 10) -> tuple[Bin, ...]:
    """Of the rows that were given about p, the share that ran; bins are centred on 0, 0.1 ... 1, empty ones left out.

    Units:   probabilities.
    """
    found = []
    ended = [each for each in rows if each.status]
    for index in range(bins + 1):
        low, high = (index - 0.5) / bins, (index + 0.5) / bins
        inside = [each for each in ended if low <= each.fit_probability < high]
        if inside:
            found.append(
                Bin(
                    low=max(0.0, low), high=min(1.0, high), n=len(inside),
                    mean_probability=fmean(each.fit_probability for each in inside),
                    ran_ratio=fmean(each.status == "ok" for each in inside),
                )
            )
    return tuple(found)


def spearman(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Rank correlation; ties share their mean rank. None where ranks do not vary or rows are fewer than three.

    Units:   -1 .. 1.
    """
    if len(a) < MIN_RANKED:
        return None
    pairs = np.array(sorted(zip(a, b, strict=True)), dtype=np.float64)  # sorted: the same bits in any order of rows
    first, second = ranks(pairs[:, 0]), ranks(pairs[:, 1])
    if np.ptp(first) == 0.0 or np.ptp(second) == 0.0:
        return None
    return float(np.corrcoef(first, second)[0, 1])


def ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 1; ties share their mean."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2.0)[inverse], dtype=np.float64)


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _right(each: Scored) -> bool:
    return each.predicted_fits == (each.status == "ok")


def _width(each: Scored) -> float:
    assert each.step_interval_s is not None
    assert each.predicted_step_s is not None
    return (each.step_interval_s[1] - each.step_interval_s[0]) / each.predicted_step_s


def _covered(each: Scored) -> bool:
    assert each.step_interval_s is not None
    assert each.measured_step_s is not None
    return each.step_interval_s[0] <= each.measured_step_s <= each.step_interval_s[1]


def _memory_covered(each: Scored) -> bool:
    assert each.memory_interval_bytes is not None
    assert each.measured_memory_bytes is not None
    return each.memory_interval_bytes[0] <= each.measured_memory_bytes <= each.memory_interval_bytes[1]
