"""Micro-batches for the ranks of data parallelism: the limit of tokens kept, and costs as even as exchanges make them."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from meshwright.errors import fault
from meshwright.packing.bins import Bins, best_fit, levelled, split_to
from meshwright.packing.bounds import exact, lower_bound
from meshwright.packing.cost import TOKENS, Cost
from meshwright.packing.exchange import Table
from meshwright.packing.lengths import Oversize, prepared, whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Ranks = list[list[list[int]]]
"""``[rank][micro-batch][sample]``: indices into the lengths."""
FEW = 24
"""So many samples are packed by the exact search where best fit is above the bound."""
FEW_NODES = 20_000
FULL = 0.98
"""Micro-batches that are fuller are not levelled: there is no room for it."""
LEVELLED = 16_384
"""So many samples at most are levelled over the micro-batches; of more the sums of a rank are even without that."""


def pack(
    lengths: Sequence[int] | NDArray[np.int64], max_tokens: int, data_parallel: int = 1, cost: Cost | None = None, *,
    equal: bool = True, multiple: int = 1, align: int = 1, oversize: Oversize = "error",
) -> Ranks:
    """Micro-batches of at most so many tokens for each rank, of even cost over the ranks, and the same on every call.

    ``equal``: every rank has as many micro-batches, a multiple of ``multiple``, as pipelines need.

    Units:   tokens; lengths ``[samples]``; the fullest micro-batch of a rank stands first, so that the peak comes first.
    Holds:   no micro-batch is above the limit but a sample that is ``alone`` there.
    Errors:  ``InputError`` for lengths and limits that make no sense, and for fewer samples than micro-batches are needed.

    >>> pack([6, 5, 4, 3, 2], 10, 2)
    [[[0, 2]], [[1, 3, 4]]]
    """
    sizes = prepared(lengths, max_tokens, align=align, oversize=oversize)
    max_tokens, data_parallel = whole(max_tokens, "max_tokens"), whole(data_parallel, "data_parallel")
    multiple = whole(multiple, "multiple")
    if data_parallel < 1 or multiple < 1:
        raise fault("pack.ranks", "{ranks} ranks with a multiple of {multiple} micro-batches: both must be at least 1",
                    ranks=data_parallel, multiple=multiple)
    price = TOKENS if cost is None else cost
    if not isinstance(price, Cost):
        raise fault("pack.cost-kind", "cost is {value}: a meshwright.packing.Cost is needed", value=price)
    with np.errstate(over="ignore"):
        costs = price.of_samples(sizes)
        total = costs.sum() + price.microbatch_s
    if not (costs >= 0).all() or not 0 <= total < np.inf:
        raise fault("pack.cost", "{price}: a sample costs less than nothing, or what is no number", price=price)
    bins = fewest(sizes, max_tokens)
    step = data_parallel * multiple if equal else 1
    count = max(-(-len(bins) // step) * step, data_parallel)
    if count > len(sizes):
        raise fault(
            "pack.few", "{samples:,} samples do not make the {count:,} micro-batches that {ranks:,} ranks need: have fewer ranks, "
            "or a higher limit", samples=len(sizes), count=count, ranks=data_parallel,
        )
    bins = _counted(bins, count, sizes, costs, max_tokens)
    table = Table(bins, np.zeros(len(bins), dtype=np.int64), sizes, costs, max_tokens, price.microbatch_s)
    table.rank_of = deal(table.price, data_parallel, equal=equal)
    table.spent = np.bincount(table.rank_of, weights=table.price, minlength=data_parallel)
    table.even_out()
    ranks: Ranks = [[] for _ in range(data_parallel)]
    for index in np.argsort(-table.tokens, kind="stable").tolist():
        table.bins[index].sort()
        ranks[table.rank_of[index]].append(table.bins[index])
    return ranks


def fewest(lengths: NDArray[np.int64], max_tokens: int) -> Bins:
    """As few micro-batches as best fit finds, for few samples as there can be."""
    bins = best_fit(lengths, max_tokens)
    if len(lengths) > FEW or len(bins) == lower_bound(lengths, max_tokens):
        return bins
    return exact(lengths, max_tokens, FEW_NODES) or bins


def deal(price: NDArray[np.floating], ranks: int, *, equal: bool = True) -> NDArray[np.int64]:
    """The rank of each micro-batch: the dearest first to the cheapest rank, where all have as many to the cheapest with a place.

    >>> deal(np.array([5.0, 4, 3, 1]), 2).tolist()
    [0, 1, 1, 0]
    """
    most = len(price) // ranks if equal else len(price)
    rank_of = np.zeros(len(price), dtype=np.int64)
    places = [most] * ranks
    heap = [(0.0, rank) for rank in range(ranks)]
    prices = price.tolist()
    for index in np.argsort(-price, kind="stable").tolist():
        spent, rank = heapq.heappop(heap)
        rank_of[index] = rank
        places[rank] -= 1
        if places[rank]:
            heapq.heappush(heap, (spent + prices[index], rank))
    return rank_of


def _counted(bins: Bins, count: int, sizes: NDArray[np.int64], costs: NDArray[np.float64], max_tokens: int) -> Bins:
    """The samples in exactly so many micro-batches: levelled by cost where the limit lets them be, else the packed ones split."""
    whole = sizes <= max_tokens
    alone = np.flatnonzero(~whole).tolist()
    if len(sizes) <= LEVELLED and int(sizes[whole].sum()) <= FULL * max_tokens * (count - len(alone)):
        held = np.flatnonzero(whole)
        even = levelled(sizes[held], costs[held], count - len(alone), max_tokens)
        if even is not None and all(even):
            return [*([item] for item in alone), *(held[each].tolist() for each in even)]
    return split_to(bins, count, costs)

