"""Samples into micro-batches: by room, by cost, and one micro-batch into two."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Bins = list[list[int]]
"""Indices of the samples of each micro-batch."""


def best_fit(lengths: NDArray[np.int64], max_tokens: int) -> Bins:
    """Longest sample first, each where it leaves the least room; none above the limit but those that alone exceed it.

    Alike samples go together: where the best room takes several of them, it takes them at once.

    Units:   tokens; ``[samples]``.
    Source:  best fit decreasing; at most 11/9 of the fewest, and one.

    >>> best_fit(np.array([6, 5, 4, 3, 2]), 10)
    [[0, 2], [1, 3, 4]]
    """
    order = np.argsort(-lengths, kind="stable")
    ranked = lengths[order]
    items: list[int] = order.tolist()
    sizes: list[int] = ranked.tolist()
    starts = np.flatnonzero(np.concatenate(([True], ranked[1:] != ranked[:-1]))).tolist()
    ends = [*starts[1:], len(items)]
    least = sizes[-1] if items else 0
    bins: Bins = []
    rooms: list[int] = []
    waiting: dict[int, list[int]] = {}
    for start, end in zip(starts, ends, strict=True):
        length, place = sizes[start], start
        while place < end:
            at = bisect_left(rooms, length)
            if at < len(rooms):
                room = rooms[at]
                index = waiting[room].pop()
                if not waiting[room]:
                    del rooms[at], waiting[room]
            else:
                room, index = max(max_tokens, length), len(bins)
                bins.append([])
            if end - place == 1:
                bins[index].append(items[place])
                place, room = end, room - length
            else:
                taken = min(room // length, end - place)
                bins[index] += items[place : place + taken]
                place += taken
                room -= taken * length
            if room >= least:
                if room not in waiting:
                    insort(rooms, room)
                    waiting[room] = []
                waiting[room].append(index)
    return bins


def levelled(lengths: NDArray[np.int64], costs: NDArray[np.float64], count: int, max_tokens: int | None = None) -> Bins | None:
    """So many micro-batches of even cost: the dearest sample first into the cheapest that has room. None where one has no room.

    Holds:   without a limit there always is an answer; samples above the limit are not among them.
    Source:  longest processing time first, Graham 1969.

    >>> levelled(np.array([5, 4, 3, 3]), np.array([5.0, 4, 3, 3]), 2)
    [[0, 3], [1, 2]]
    """
    bins: Bins = [[] for _ in range(count)]
    sizes: list[int] = lengths.tolist()
    prices: list[float] = costs.tolist()
    rooms = [max_tokens if max_tokens is not None else sum(sizes)] * count
    heap = [(0.0, index) for index in range(count)]
    for item in np.argsort(-costs, kind="stable").tolist():
        full: list[tuple[float, int]] = []
        while heap and rooms[heap[0][1]] < sizes[item]:
            full.append(heapq.heappop(heap))
        if not heap:
            return None
        price, index = heap[0]
        heapq.heapreplace(heap, (price + prices[item], index))
        bins[index].append(item)
        rooms[index] -= sizes[item]
        for each in full:
            heapq.heappush(heap, each)
    return bins


def split_to(bins: Bins, count: int, costs: NDArray[np.float64]) -> Bins:
    """More micro-batches: the dearest that can be is halved by cost until there are so many. No half is larger.

    Holds:   there are as many samples as micro-batches.

    >>> split_to([[0, 1, 2]], 2, np.array([3.0, 2, 1]))
    [[0], [1, 2]]
    """
    found = list(bins)
    flat, owner = flattened(bins)
    price = np.bincount(owner, weights=costs[flat], minlength=len(bins)).tolist()
    heap = [(-price[index], index) for index, each in enumerate(found) if len(each) > 1]
    heapq.heapify(heap)
    while len(found) < count:
        _, index = heapq.heappop(heap)
        halves: Bins = [[], []]
        prices = [0.0, 0.0]
        for item in sorted(found[index], key=lambda item: -costs[item]):
            side = int(prices[1] < prices[0])
            halves[side].append(item)
            prices[side] += float(costs[item])
        found[index] = halves[0]
        found.append(halves[1])
        for place, half in ((index, halves[0]), (len(found) - 1, halves[1])):
            if len(half) > 1:
                heapq.heappush(heap, (-float(costs[half].sum()), place))
    return found


def flattened(bins: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Samples one after the other, and the micro-batch of each."""
    counts = np.fromiter(map(len, bins), dtype=np.int64, count=len(bins))
    flat = np.fromiter((item for each in bins for item in each), dtype=np.int64, count=int(counts.sum()))
    return flat, np.repeat(np.arange(len(bins)), counts)
