"""How sure a median is, and how noisy a machine. Pure."""

from __future__ import annotations

from functools import cache
from math import comb
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from meshwright.domain.sample import Sample

CONFIDENCE = 0.95
FEWEST_BLOCKS = 6
"""Fewer blocks have no interval: (1/2)^5 on either side is 6 %."""
NOISY_RATIO, TOO_NOISY_RATIO = 1.5, 3.0
"""Worst over best block of a product, median over products: above the first a profile is marked, above the second no cluster
file is written unless forced."""


@cache
def interval_ranks(count: int, confidence: float = CONFIDENCE) -> tuple[int, int]:
    """Order statistics (from 0) between which the median lies: the inmost pair that holds it so often.

    Formula: P(x_(k) <= m <= x_(n-1-k)) = 1 - 2 sum_{i<=k} C(n, i) / 2^n, for any continuous distribution.
    Range:   ``count`` >= 1; (0, count - 1) where even that pair holds it less often.
    Source:  David and Nagaraja, Order Statistics, 3rd ed., section 7.1.
    """
    tail, low = 0.0, 0
    for k in range((count + 1) // 2):
        tail += comb(count, k) / 2**count
        if 1.0 - 2.0 * tail < confidence:
            break
        low = k
    return low, count - 1 - low


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """(median, lower, upper end of its interval) of at least one value."""
    ordered = sorted(values)
    low, high = interval_ranks(len(ordered), confidence)
    return median(ordered), ordered[low], ordered[high]


def tight(values: Sequence[float], tolerance: float) -> bool:
    """Whether half of the median's interval is within a share of it; never with fewer blocks than have an interval."""
    if len(values) < FEWEST_BLOCKS:
        return False
    middle, low, high = median_interval(values)
    return high - low <= 2.0 * tolerance * abs(middle)


def too_noisy(sample: Sample) -> bool:
    """Whether a product's blocks differ so much that it is worth measuring again."""
    return sample.bench == "product" and sample.worst_s > TOO_NOISY_RATIO * sample.best_s


def noise_ratio(samples: Iterable[Sample]) -> float:
    """Worst over best block, the median over products; 1 where there are none."""
    ratios = [each.worst_s / each.best_s for each in samples if each.bench == "product" and each.best_s > 0]
    return median(ratios) if ratios else 1.0
