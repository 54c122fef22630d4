"""Samples into micro-batches: by room, by cost, and one micro-batch into two.

A packing is held as the micro-batch of each sample, ``[samples]``; ``grouped`` makes lists of it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush, heapreplace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Bins = list[list[int]]
"""Indices of the samples of each micro-batch."""


def best_fit(lengths: NDArray[np.int64], max_tokens: int) -> Bins:
    """Longest sample first, each where it leaves the least room; none above the limit but those that alone exceed it.

    Units:   tokens; ``[samples]``.
    Source:  best fit decreasing; at most 11/9 of the fewest, and one.

    >>> best_fit(np.array([6, 5, 4, 3, 2]), 10)
    [[0, 2], [1, 3, 4]]
    """
    return grouped(fitted(lengths, max_tokens))


def fitted(lengths: NDArray[np.int64], max_tokens: int) -> NDArray[np.int64]:
    """``best_fit`` as the micro-batch of each sample.

    What is longer than half of the limit opens a micro-batch each. Alike samples go together: where the best room takes several
    of them, it takes them at once.
    """
    order = np.argsort(-lengths, kind="stable")
    ranked = lengths[order]
    if not len(ranked):
        return order
    sizes: list[int] = ranked.tolist()
    least, opened = sizes[-1], int(np.searchsorted(-ranked, -(max_tokens / 2), side="left"))
    owner = list(range(opened))
    waiting: dict[int, list[int]] = {}
    for index, room in enumerate((max_tokens - ranked[:opened]).tolist()):
        if room >= least:
            waiting.setdefault(room, []).append(index)
    rooms = list(waiting)
    starts = (np.flatnonzero(ranked[opened + 1 :] != ranked[opened:-1]) + opened + 1).tolist()
    place = opened
    for end in (*starts, len(sizes)) if opened < len(sizes) else ():
        length = sizes[place]
        while place < end:
            at = bisect_left(rooms, length)
            if at < len(rooms):
                room = rooms[at]
                held = waiting[room]
                index = held.pop()
                if not held:
                    del rooms[at], waiting[room]
            else:
                room, index = max_tokens, opened
                opened += 1
            if end - place == 1:
                owner.append(index)
                place, room = end, room - length
            else:
                taken = min(room // length, end - place)
                owner += [index] * taken
                place += taken
                room -= taken * length
            if room >= least:
                if room in waiting:
                    waiting[room].append(index)
                else:
                    insort(rooms, room)
                    waiting[room] = [index]
    return _unranked(owner, order)


def levelled(lengths: NDArray[np.int64], costs: NDArray[np.float64], count: int, max_tokens: int | None = None) -> Bins | None:
    """So many micro-batches of even cost: the dearest sample first into the cheapest that has room. None where one has no room.

    Holds:   without a limit there always is an answer; there are as many samples as micro-batches.
    Source:  longest processing time first, Graham 1969.

    >>> levelled(np.array([5, 4, 3, 3]), np.array([5.0, 4, 3, 3]), 2)
    [[0, 3], [1, 2]]
    """
    owner = level(lengths, costs, count, int(lengths.sum()) if max_tokens is None else max_tokens)
    return None if owner is None else grouped(owner)


def level(lengths: NDArray[np.int64], costs: NDArray[np.float64], count: int, max_tokens: int) -> NDArray[np.int64] | None:
    """``levelled`` as the micro-batch of each sample; none is empty."""
    order = np.argsort(-costs, kind="stable")
    sizes: list[int] = lengths[order].tolist()
    prices: list[float] = costs[order].tolist()
    rooms = [max_tokens - size for size in sizes[:count]]
    least = min(sizes)
    if min(rooms) < 0:
        return None
    heap = [(price, index) for index, price in enumerate(prices[:count]) if rooms[index] >= least]
    heapify(heap)
    parked: list[tuple[int, float, int]] = []
    owner = list(range(count))
    for size, more in zip(sizes[count:], prices[count:], strict=True):
        while parked and -parked[0][0] >= size:
            heappush(heap, heappop(parked)[1:])
        while heap and rooms[heap[0][1]] < size:
            price, index = heappop(heap)
            heappush(parked, (-rooms[index], price, index))
        if not heap:
            return None
        price, index = heap[0]
        owner.append(index)
        rooms[index] = room = rooms[index] - size
        if room >= least:
            heapreplace(heap, (price + more, index))
        else:
            heappop(heap)
    return _unranked(owner, order)


def split_to(owner: NDArray[np.int64], count: int, costs: NDArray[np.float64]) -> NDArray[np.int64]:
    """More micro-batches: the dearest that can be is halved by cost until there are so many. No half is larger.

    Holds:   there are as many samples as micro-batches.

    >>> split_to(np.array([0, 0, 0]), 2, np.array([3.0, 2, 1])).tolist()
    [0, 1, 1]
    """
    number = int(owner.max()) + 1
    if number == count:
        return owner
    found = owner.copy()
    price = np.bincount(owner, weights=costs).tolist()
    heap = [(-price[index], index) for index in np.flatnonzero(np.bincount(owner) > 1).tolist()]
    heapify(heap)
    while number < count:
        _, index = heappop(heap)
        samples = np.flatnonzero(found == index)
        halves: Bins = [[], []]
        prices = [0.0, 0.0]
        for item in samples[np.argsort(-costs[samples], kind="stable")].tolist():
            side = int(prices[1] < prices[0])
            halves[side].append(item)
            prices[side] += float(costs[item])
        found[halves[1]] = number
        for place, half in ((index, halves[0]), (number, halves[1])):
            if len(half) > 1:
                heappush(heap, (-float(costs[half].sum()), place))
        number += 1
    return found


def grouped(owner: NDArray[np.int64]) -> Bins:
    """The samples of each micro-batch, in their order.

    >>> grouped(np.array([1, 0, 1]))
    [[1], [0, 2]]
    """
    if not len(owner):
        return []
    flat: list[int] = np.argsort(owner, kind="stable").tolist()
    ends = np.cumsum(np.bincount(owner)).tolist()
    return [flat[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def owners(bins: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """The inverse of ``grouped``."""
    flat, index = flattened(bins)
    found = np.empty(len(flat), dtype=np.int64)
    found[flat] = index
    return found


def flattened(bins: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Samples one after the other, and the micro-batch of each."""
    counts = np.fromiter(map(len, bins), dtype=np.int64, count=len(bins))
    flat = np.fromiter(chain.from_iterable(bins), dtype=np.int64, count=int(counts.sum()))
    return flat, np.repeat(np.arange(len(bins)), counts)


def _unranked(owner: list[int], order: NDArray[np.int64]) -> NDArray[np.int64]:
    """What was found in an order, in that of the samples."""
    found = np.empty(len(order), dtype=np.int64)
    found[order] = owner
    return found
