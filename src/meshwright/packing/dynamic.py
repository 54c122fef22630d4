"""Dynamic context parallelism: each sample on as many ranks as its length needs, and ranks of even cost whatever the lengths are.

Ranks of DP x CP are halved again and again: a group is an aligned block of 1, 2, 4, ... of them. Every rank runs its micro-batches
from the largest group to the smallest, so that all ranks of a group have run the same before it, and none waits for another.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.errors import fault
from meshwright.packing.bins import fitted, grouped, split_to
from meshwright.packing.context import alignment, dynamic_degrees
from meshwright.packing.cost import TOKENS, Cost
from meshwright.packing.exchange import Table
from meshwright.packing.lengths import prepared, whole
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

WIDER = 64
"""So many samples at most are given to more ranks than they need, where that makes the step shorter."""
WIDER_AT_ONCE = 6
"""Samples of the dearest rank that are tried for each, the largest parts first."""
LEVEL = 1.002
"""Ranks are even enough where the dearest is above the mean by no more than this ratio."""


class Group(Value, frozen=True, kw_only=True):
    """A micro-batch on a group of ranks: each rank has its part of every sample."""

    first_rank: int
    degree: int
    """Context parallelism: ranks of the group."""
    samples: tuple[int, ...]
    rank_tokens: int
    """Of one rank, padding to the alignment included."""


class Step(Value, frozen=True, kw_only=True):
    """An optimizer step: groups in the order in which ranks run them."""

    groups: tuple[Group, ...]
    loads: tuple[float, ...]
    """Cost of each rank."""

    @property
    def imbalance_ratio(self) -> float:
        """The dearest rank over the mean."""
        return max(self.loads) / (sum(self.loads) / len(self.loads))

    def of_rank(self, rank: int) -> list[Group]:
        """What one rank runs."""
        return [each for each in self.groups if each.first_rank <= rank < each.first_rank + each.degree]


def by_degree(ranks: int, cost: Cost = TOKENS) -> dict[int, Cost]:
    """The cost of a rank in groups of each size, where sharing a sample costs nothing: a part of it each.

    >>> by_degree(4)[4].token_s
    0.25
    """
    return {
        degree: Cost(token_s=cost.token_s / degree, square_s=cost.square_s / degree, microbatch_s=cost.microbatch_s)
        for degree in (1 << power for power in range(ranks.bit_length()))
    }


def dynamic(
    lengths: Sequence[int] | NDArray[np.int64], rank_tokens: int, ranks: int, costs: Mapping[int, Cost] | None = None, *,
    tensor_parallel: int = 1,
) -> Step:
    """Samples on groups of ranks, at most so many tokens of a rank in a micro-batch; costs of ranks as even as that lets them be.

    A sample has the power of two of ranks that brings its part under the limit; the longest of the dearest rank get more where
    that makes the step shorter. Samples on one rank are packed.

    ``costs``: seconds of a rank in a group of each size; by default a sample costs a rank its part of the tokens.

    Units:   tokens; lengths ``[samples]``; ``ranks`` of data and context parallelism together.
    Holds:   the same on every call; no micro-batch has more than ``rank_tokens`` of a rank; ranks of a group have run the same
             before it.
    Errors:  ``InputError`` for lengths and limits that make no sense, and for a sample that the ranks together cannot hold.
    Source:  Megatron-LM's dynamic context parallelism, ``megatron/core/pipeline_parallel/hybrid_cp_schedule.py``: degrees and even
             groups are its; that groups nest, so that no barrier stands between them, and that short samples are packed, is not.

    >>> [(each.first_rank, each.degree, each.samples) for each in dynamic([30, 12, 9, 9, 8, 4], 10, 4).groups]
    [(0, 4, (0,)), (0, 4, (4,)), (0, 2, (1,)), (2, 1, (2,)), (3, 1, (3,)), (0, 1, (5,))]
    """
    ranks, rank_tokens = whole(ranks, "ranks"), whole(rank_tokens, "rank_tokens")
    pieces = alignment(tensor_parallel, 2) // 2
    if ranks < 1:
        raise fault("pack.dynamic-ranks", "{ranks} ranks: at least 1 is needed", ranks=ranks)
    sizes = prepared(lengths, rank_tokens, oversize="alone")
    most = 1 << (ranks.bit_length() - 1)
    if (tensor_parallel > 1 or sizes.max() > rank_tokens) and rank_tokens % pieces:
        raise fault("pack.dynamic-align", "{limit:,} tokens of a rank are no multiple of 2 x tp = {align}", limit=rank_tokens,
                    align=pieces)
    if sizes.max() > rank_tokens * most:
        raise fault("pack.dynamic-long", "a sample of {length:,} tokens does not fit on {most:,} ranks of {limit:,}", most=most,
                    length=int(sizes.max()), limit=rank_tokens)
    known = by_degree(ranks) if costs is None else costs
    needed = dynamic_degrees(sizes, rank_tokens, most)
    if short := sorted({int(each) for each in needed} - set(known)):
        raise fault("pack.dynamic-cost", "the cost of groups of {degree:,} ranks is missing", degree=short[0])
    place = _Placing(sizes=sizes, rank_tokens=rank_tokens, ranks=ranks, costs=known, tensor_parallel=tensor_parallel)
    return _widened(place, needed, most)


class _Placing(Value, frozen=True, kw_only=True):
    """Everything but the degrees."""

    sizes: NDArray[np.int64]
    rank_tokens: int
    ranks: int
    costs: Mapping[int, Cost]
    tensor_parallel: int

    def step(self, degrees: NDArray[np.int64]) -> Step:
        """The dearest sample first on the group that has run least, from the largest groups to the smallest; then the packs."""
        loads = np.zeros(self.ranks)
        groups: list[Group] = []
        for degree in sorted({int(each) for each in degrees} - {1}, reverse=True):
            held = np.flatnonzero(degrees == degree)
            cost = self.costs[degree]
            spent = (cost.of_samples(self.sizes[held]) + cost.microbatch_s).tolist()
            blocks = [(float(loads[first]), first) for first in range(0, self.ranks - degree + 1, degree)]
            heapify(blocks)
            for place in np.argsort(-self.sizes[held], kind="stable").tolist():
                load, first = blocks[0]
                heapreplace(blocks, (load + spent[place], first))
                loads[first : first + degree] += spent[place]
                groups.append(self._group(first, degree, (int(held[place]),)))
        held = np.flatnonzero(degrees == 1)
        if len(held):
            groups += self._packs(held, loads)
        return Step(groups=tuple(groups), loads=tuple(loads.tolist()))

    def _packs(self, held: NDArray[np.int64], loads: NDArray[np.float64]) -> list[Group]:
        """Samples on one rank, packed and dealt to the ranks by what these have run; the loads become those with them."""
        align = alignment(self.tensor_parallel, 1)
        sizes, cost = -(-self.sizes[held] // align) * align, self.costs[1]
        owner, price = fitted(sizes, self.rank_tokens), cost.of_samples(sizes)
        fewest = int(owner.max()) + 1
        tables = [
            self._dealt(split_to(owner, count, price), sizes, price, loads)
            for count in sorted({fewest, min(fewest + self.ranks, len(held))})
        ]
        table = min(tables, key=lambda each: float(each.spent.max()))
        loads[:] = table.spent
        bins = grouped(table.owner)
        return [
            self._group(int(table.rank_of[pack]), 1, tuple(held[bins[pack]].tolist()))
            for pack in np.argsort(-table.tokens, kind="stable").tolist()
        ]

    def _dealt(
        self, owner: NDArray[np.int64], sizes: NDArray[np.int64], price: NDArray[np.float64], loads: NDArray[np.float64]
    ) -> Table:
        """Packs on the ranks, the dearest first on that which has run least, and evened out."""
        spent = np.bincount(owner, weights=price) + self.costs[1].microbatch_s
        heap = [(load, rank) for rank, load in enumerate(loads.tolist())]
        heapify(heap)
        rank_of = np.zeros(len(spent), dtype=np.int64)
        for pack in np.argsort(-spent, kind="stable").tolist():
            load, rank = heap[0]
            heapreplace(heap, (load + float(spent[pack]), rank))
            rank_of[pack] = rank
        table = Table(owner, rank_of, sizes, price, self.rank_tokens, spent, before=loads)
        table.even_out()
        return table

    def _group(self, first: int, degree: int, samples: tuple[int, ...]) -> Group:
        align = alignment(self.tensor_parallel, degree)
        tokens = -(-self.sizes[list(samples)] // align) * align // degree
        return Group(first_rank=first, degree=degree, samples=samples, rank_tokens=int(tokens.sum()))


def _widened(place: _Placing, degrees: NDArray[np.int64], most: int) -> Step:
    """More ranks for the longest samples of the dearest rank, one after the other, while that makes the step shorter."""
    best = place.step(degrees)
    degrees = degrees.copy()
    for _ in range(WIDER):
        if best.imbalance_ratio <= LEVEL:
            break
        dear = int(np.argmax(best.loads))
        mine = {sample for group in best.of_rank(dear) for sample in group.samples if 2 * group.degree in place.costs
                and 2 * group.degree <= most}
        for sample in sorted(mine, key=lambda item: (-int(place.sizes[item]) / int(degrees[item]), item))[:WIDER_AT_ONCE]:
            degrees[sample] *= 2
            wider = place.step(degrees)
            if max(wider.loads) < max(best.loads) * (1 - 1e-9):
                best = wider
                break
            degrees[sample] //= 2
        else:
            break
    return best
