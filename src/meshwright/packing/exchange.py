"""Costs of ranks made even by exchanges: whole micro-batches, then samples, of the dearest rank with a cheap one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from meshwright.packing.bins import Bins, flattened

if TYPE_CHECKING:
    from numpy.typing import NDArray

EVEN = 1e-5
"""Ranks are even where the dearest is above the mean by this share: a thousandth of what a step varies by."""
PARTNERS = 4
"""Cheap ranks that the dearest is set beside, the cheapest first."""
LOOKED_AT = 192
"""Samples of a rank, or micro-batches, that may change places in one exchange; of more, evenly spaced ones."""


class _Pair(NamedTuple):
    """What changes places: one of the dear rank, one of the cheap; and how far from even that leaves the two."""

    off: float
    theirs: int
    ours: int


class Table:
    """Micro-batches with the tokens and the cost of each, and the rank that each is of. Exchanges keep the figures."""

    def __init__(
        self, bins: Bins, rank_of: NDArray[np.int64], sizes: NDArray[np.int64], costs: NDArray[np.float64], max_tokens: int,
        microbatch_s: float = 0.0,
    ) -> None:
        self.bins, self.rank_of, self.sizes, self.costs, self.max_tokens = bins, rank_of, sizes, costs, max_tokens
        flat, owner = flattened(bins)
        self.tokens = np.bincount(owner, weights=sizes[flat], minlength=len(bins)).astype(np.int64)
        self.price = np.bincount(owner, weights=costs[flat], minlength=len(bins)) + microbatch_s
        self.spent = np.bincount(rank_of, weights=self.price)

    def even_out(self) -> None:
        """Exchange until the dearest rank is hardly above the mean, or no exchange brings it nearer.

        Holds:   no micro-batch gets above the limit; ranks keep as many micro-batches, these as many samples; the dearest rank
                 never gets dearer.
        """
        mean = float(self.spent.mean())
        for _ in range(32 + 4 * len(self.spent)):
            dear = int(self.spent.argmax())
            if self.spent[dear] <= mean * (1 + EVEN):
                break
            few = min(PARTNERS, len(self.spent))
            cheap = np.argpartition(self.spent, few - 1)[:few]
            if not any(self._exchanged(dear, int(each)) for each in cheap[np.argsort(self.spent[cheap], kind="stable")]):
                break

    def _exchanged(self, dear: int, cheap: int) -> bool:
        """Make the exchange that brings two ranks nearest to each other; False where none does."""
        gap = float(self.spent[dear] - self.spent[cheap])
        near, enough = EVEN * float(self.spent[dear]), gap / 2 * (1 - 1e-6)
        if gap <= near:
            return False
        theirs, ours = (_some(np.flatnonzero(self.rank_of == rank)) for rank in (dear, cheap))
        whole = _nearest(self.price[theirs], self.price[ours], gap)
        if whole.off < min(near, enough):
            self._swap_bins(int(theirs[whole.theirs]), int(ours[whole.ours]))
            return True
        (here, of_here), (there, of_there) = self._samples(theirs), self._samples(ours)
        more = self.sizes[here][:, None] - self.sizes[there][None, :]
        rooms = self.max_tokens - self.tokens
        fits = (more <= rooms[of_there][None, :]) & (-more <= rooms[of_here][:, None])
        one = _nearest(self.costs[here], self.costs[there], gap, fits)
        if min(whole.off, one.off) >= enough:
            return False
        if whole.off <= one.off:
            self._swap_bins(int(theirs[whole.theirs]), int(ours[whole.ours]))
        else:
            self._swap_samples(int(here[one.theirs]), int(of_here[one.theirs]), int(there[one.ours]), int(of_there[one.ours]))
        return True

    def _samples(self, bins: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Samples of some micro-batches, and the micro-batch of each."""
        flat, owner = flattened([self.bins[index] for index in bins.tolist()])
        return _some(flat), bins[_some(owner)]

    def _swap_bins(self, one: int, other: int) -> None:
        moved = self.price[one] - self.price[other]
        self.spent[self.rank_of[one]] -= moved
        self.spent[self.rank_of[other]] += moved
        self.rank_of[[one, other]] = self.rank_of[[other, one]]

    def _swap_samples(self, one: int, of_one: int, other: int, of_other: int) -> None:
        for index, old, new in ((of_one, one, other), (of_other, other, one)):
            held = self.bins[index]
            held[held.index(old)] = new
            self.tokens[index] += self.sizes[new] - self.sizes[old]
            self.price[index] += self.costs[new] - self.costs[old]
            self.spent[self.rank_of[index]] += self.costs[new] - self.costs[old]


def _some(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """At most so many, evenly spaced."""
    return values[:: -(-len(values) // LOOKED_AT)]


def _nearest(
    theirs: NDArray[np.floating], ours: NDArray[np.floating], gap: float, fits: NDArray[np.bool_] | None = None
) -> _Pair:
    """The pair whose exchange moves half of the gap, or as near to that as there is."""
    off = np.abs(theirs[:, None] - ours[None, :] - gap / 2)
    if fits is not None:
        off = np.where(fits, off, np.inf)
    row, column = divmod(int(off.argmin()), off.shape[1])
    return _Pair(float(off[row, column]), row, column)
