"""Rank correlation from its definition: Pearson's correlation of mean ranks, in plain Python."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def spearman_by_hand(a: Sequence[float], b: Sequence[float]) -> float | None:
    """The correlation, or None where it is not defined."""

    def ranked(values: Sequence[float]) -> list[float]:
        return [sum(other < each for other in values) + (1 + sum(other == each for other in values)) / 2 for each in values]

    x, y = ranked(a), ranked(b)
    mean_x, mean_y = fmean(x), fmean(y)
    both = sum((p - mean_x) * (q - mean_y) for p, q in zip(x, y, strict=True))
    spread = (sum((p - mean_x) ** 2 for p in x) * sum((q - mean_y) ** 2 for q in y)) ** 0.5
    return both / spread if spread else None
