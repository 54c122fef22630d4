"""Costs of ranks made even by exchanges: whole micro-batches, then samples, of the dearest rank with a cheap one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

EVEN = 1e-5
"""Ranks are even where the dearest is above the mean by this share: a thousandth of what a step varies by."""
PARTNERS = 4
"""Cheap ranks that the dearest is set beside, the cheapest first."""
LOOKED_AT = 192
"""Samples of a rank, or micro-batches, that may change places in one exchange; of more, evenly spaced ones."""
TRIES = 4
"""Pairs that are tried one by one before all are held to the limit at once."""


class _Pair(NamedTuple):
    """What changes places: one of the dear rank, one of the cheap; and how far it is from moving what was wanted."""

    off: float
    theirs: int
    ours: int


class Table:
    """A packing with the tokens and the cost of each micro-batch, and the rank that each is of. Exchanges keep the figures."""

    def __init__(
        self, owner: NDArray[np.int64], rank_of: NDArray[np.int64], sizes: NDArray[np.int64], costs: NDArray[np.float64],
        max_tokens: int, price: NDArray[np.floating], before: NDArray[np.float64] | None = None,
    ) -> None:
        self.owner, self.rank_of, self.sizes, self.costs, self.price = owner, rank_of, sizes, costs, price
        self.max_tokens = max_tokens
        self.tokens = np.bincount(owner, weights=sizes, minlength=len(price)).astype(np.int64)
        self.spent = np.bincount(rank_of, weights=price) if before is None else (
            np.bincount(rank_of, weights=price, minlength=len(before)) + before
        )
        self.looked: dict[int, NDArray[np.int64]] = {}

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
            if not (self._exchanged(dear, int(self.spent.argmin())) or any(self._exchanged(dear, each) for each in self._cheap())):
                break

    def _cheap(self) -> list[int]:
        """The ranks that follow the cheapest."""
        few = min(PARTNERS, len(self.spent))
        cheap = np.argpartition(self.spent, few - 1)[:few]
        found: list[int] = cheap[np.argsort(self.spent[cheap], kind="stable")].tolist()
        return found[1:]

    def _exchanged(self, dear: int, cheap: int) -> bool:
        """Make the exchange that brings two ranks nearest to each other; False where none does."""
        dearer = float(self.spent[dear])
        wanted, near = (dearer - float(self.spent[cheap])) / 2, EVEN * dearer
        if 2 * wanted <= near:
            return False
        enough = wanted * (1 - 1e-6)
        here, there = self._samples(dear), self._samples(cheap)
        if not (len(here) and len(there)):  # what a rank has of other kinds is not exchanged
            return False
        one = self._samples_to_swap(here, there, wanted)
        if one.off < min(near, enough):
            self._swap_samples(dear, one.theirs, cheap, one.ours)
            return True
        theirs, ours = (_some(np.flatnonzero(self.rank_of == rank)) for rank in (dear, cheap))
        whole = _nearest(_off(self.price[theirs], self.price[ours], wanted))
        if min(whole.off, one.off) >= enough:
            return False
        if whole.off <= one.off:
            self._swap_bins(int(theirs[whole.theirs]), int(ours[whole.ours]))
        else:
            self._swap_samples(dear, one.theirs, cheap, one.ours)
        return True

    def _samples(self, rank: int) -> NDArray[np.int64]:
        """Samples of a rank, of some of its micro-batches where it has many."""
        found = self.looked.get(rank)
        if found is None:
            chosen = self.rank_of == rank
            if len(self.rank_of) > LOOKED_AT:
                bins = _some(np.flatnonzero(chosen))
                chosen[:] = False
                chosen[bins] = True
            found = self.looked[rank] = _some(np.flatnonzero(chosen[self.owner])).copy()
        return found

    def _samples_to_swap(self, here: NDArray[np.int64], there: NDArray[np.int64], wanted: float) -> _Pair:
        """The pair of samples that moves nearest to what is wanted, and keeps both micro-batches under the limit."""
        off = _off(self.costs[here], self.costs[there], wanted)
        for _ in range(TRIES):
            found = _nearest(off)
            one, other = here[found.theirs], there[found.ours]
            more = self.sizes[one] - self.sizes[other]
            if -self._room(one) <= more <= self._room(other):
                return found
            off[found.theirs, found.ours] = np.inf
        more = self.sizes[here][:, None] - self.sizes[there][None, :]
        rooms = self.max_tokens - self.tokens
        fits = (more <= rooms[self.owner[there]][None, :]) & (-more <= rooms[self.owner[here]][:, None])
        return _nearest(np.where(fits, off, np.inf))

    def _room(self, sample: np.int64) -> int:
        """Tokens that the micro-batch of a sample has left."""
        return int(self.max_tokens - self.tokens[self.owner[sample]])

    def _swap_bins(self, one: int, other: int) -> None:
        moved = self.price[one] - self.price[other]
        ranks = self.rank_of[[one, other]]
        for rank, change in zip(ranks.tolist(), (-moved, moved), strict=True):
            self.spent[rank] += change
            self.looked.pop(rank, None)
        self.rank_of[[one, other]] = ranks[::-1]

    def _swap_samples(self, dear: int, theirs: int, cheap: int, ours: int) -> None:
        """Samples at two places of what was looked at of two ranks."""
        here, there = self.looked[dear], self.looked[cheap]
        one, other = here[theirs], there[ours]
        of_one, of_other = self.owner[one], self.owner[other]
        for index, rank, old, new in ((of_one, dear, one, other), (of_other, cheap, other, one)):
            self.owner[new] = index
            self.tokens[index] += self.sizes[new] - self.sizes[old]
            self.price[index] += self.costs[new] - self.costs[old]
            self.spent[rank] += self.costs[new] - self.costs[old]
        here[theirs], there[ours] = other, one


def _some(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """At most so many, evenly spaced."""
    return values[:: max(1, -(-len(values) // LOOKED_AT))]


def _off(theirs: NDArray[np.floating], ours: NDArray[np.floating], wanted: float) -> NDArray[np.float64]:
    """How far from what is wanted each exchange moves; ``[theirs, ours]``."""
    off: NDArray[np.float64] = np.abs(np.subtract.outer(theirs - wanted, ours))
    return off


def _nearest(off: NDArray[np.float64]) -> _Pair:
    """The pair that is least off."""
    row, column = divmod(int(off.argmin()), off.shape[1])
    return _Pair(float(off[row, column]), row, column)
