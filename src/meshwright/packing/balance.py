"""Micro-batches for the ranks of data parallelism: the limit of tokens kept, and costs as even as exchanges make them."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from meshwright.errors import fault
from meshwright.packing.bins import fitted, grouped, level, owners, split_to
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
    step = data_parallel * multiple if equal else 1
    owner = _placed(sizes, costs, max_tokens, step, data_parallel)
    each = np.bincount(owner, weights=costs) + price.microbatch_s
    table = Table(owner, deal(each, data_parallel, equal=equal), sizes, costs, max_tokens, each)
    table.even_out()
    ranks: Ranks = [[] for _ in range(data_parallel)]
    bins, rank_of = grouped(table.owner), table.rank_of.tolist()
    for index in np.argsort(-table.tokens, kind="stable").tolist():
        ranks[rank_of[index]].append(bins[index])
    return ranks


def fewest(lengths: NDArray[np.int64], max_tokens: int) -> NDArray[np.int64]:
    """The micro-batch of each sample, as few as best fit finds, for few samples as there can be."""
    owner = fitted(lengths, max_tokens)
    if len(lengths) > FEW or int(owner.max()) + 1 == lower_bound(lengths, max_tokens):
        return owner
    bins = exact(lengths, max_tokens, FEW_NODES)
    return owner if bins is None else owners(bins)


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


def _placed(
    sizes: NDArray[np.int64], costs: NDArray[np.float64], max_tokens: int, step: int, ranks: int
) -> NDArray[np.int64]:
    """The micro-batch of each sample: levelled by cost over as few as there can be, where the limit lets them be; else over as few
    as best fit finds, and where not even that goes, as best fit packs them, split until ranks share them.

    Errors:  ``InputError`` for fewer samples than micro-batches are needed.
    """
    tokens, large = int(np.minimum(sizes, max_tokens).sum()), int(np.count_nonzero(2 * sizes > max_tokens))
    least = _shared(max(-(-tokens // max_tokens), large), step, ranks)
    if (owner := _levelled(sizes, costs, least, max_tokens)) is not None:
        return owner
    owner = fewest(sizes, max_tokens)
    count = _shared(int(owner.max()) + 1, step, ranks)
    if count > len(sizes):
        raise fault(
            "pack.few", "{samples:,} samples do not make the {count:,} micro-batches that {ranks:,} ranks need: have fewer ranks, "
            "or a higher limit", samples=len(sizes), count=count, ranks=ranks,
        )
    even = _levelled(sizes, costs, count, max_tokens) if count > least else None
    return split_to(owner, count, costs) if even is None else even


def _shared(count: int, step: int, ranks: int) -> int:
    """So many micro-batches at least, as ranks share them."""
    return max(-(-count // step) * step, ranks)


def _levelled(sizes: NDArray[np.int64], costs: NDArray[np.float64], count: int, max_tokens: int) -> NDArray[np.int64] | None:
    """The samples over exactly so many micro-batches by cost; None where there is no room for it. Long ones stay alone."""
    if not count <= len(sizes) <= LEVELLED:
        return None
    whole = sizes <= max_tokens
    if whole.all():
        return level(sizes, costs, count, max_tokens) if int(sizes.sum()) <= FULL * max_tokens * count else None
    held, alone = np.flatnonzero(whole), np.flatnonzero(~whole)
    left = count - len(alone)
    if not 0 < left <= len(held) or int(sizes[held].sum()) > FULL * max_tokens * left:
        return None
    even = level(sizes[held], costs[held], left, max_tokens)
    if even is None:
        return None
    owner = np.empty(len(sizes), dtype=np.int64)
    owner[alone], owner[held] = np.arange(len(alone)), even + len(alone)
    return owner
