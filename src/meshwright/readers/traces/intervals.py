"""Times that are covered: unions of intervals, and how much of a window they cover."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Cover:
    """A union of closed intervals: disjoint, in order of time.

    ``starts``, ``ends``: of each piece; ``done``: what the pieces before it cover, its length one more than theirs.
    """

    starts: Floats
    ends: Floats
    done: Floats

    @property
    def total(self) -> float:
        """All that is covered."""
        return float(self.done[-1])

    def before(self, at: Floats | float) -> Floats:
        """What is covered before each time."""
        times = np.asarray(at, dtype=np.float64)
        if not len(self.starts):
            return np.zeros(times.shape)
        index = np.searchsorted(self.starts, times, side="right") - 1
        inside = np.minimum(times, self.ends[index]) - self.starts[index]
        return np.where(index < 0, 0.0, self.done[index] + inside)

    def within(self, start: Floats | float, end: Floats | float) -> Floats:
        """What is covered of each window; nothing of one that ends before it begins."""
        return np.maximum(0.0, self.before(end) - self.before(start))

    def gaps(self) -> tuple[Floats, Floats]:
        """Where each gap between two pieces begins and ends."""
        return self.ends[:-1], self.starts[1:]


def union(starts: Floats, ends: Floats) -> Cover:
    """The union of intervals in any order; those that end before they begin are points.

    >>> cover = union(np.array([4.0, 0.0, 1.0]), np.array([5.0, 2.0, 3.0]))
    >>> cover.total, float(cover.within(2.5, 4.5))
    (4.0, 1.0)
    """
    order = np.argsort(starts, kind="stable")
    begin = starts[order]
    reach = np.maximum.accumulate(np.maximum(begin, ends[order])) if len(order) else begin
    first = np.ones(len(begin), dtype=bool)
    first[1:] = begin[1:] > reach[:-1]
    last = np.flatnonzero(np.append(first[1:], True)) if len(begin) else np.zeros(0, dtype=np.int64)
    lower, upper = begin[first], reach[last]
    return Cover(lower, upper, np.concatenate(([0.0], np.cumsum(upper - lower))))


def together(covers: Sequence[Cover]) -> Cover:
    """The union of unions."""
    return union(np.concatenate([each.starts for each in covers]), np.concatenate([each.ends for each in covers]))
