"""ChatLearn: best fit to learn how many micro-batches there are, then levelled over so many, with no look at the limit."""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.packing.balance import Ranks
    from meshwright.packing.bins import Bins


def chatlearn(lengths: NDArray[np.int64], max_tokens: int, ranks: int, *, agreed: bool = True) -> Ranks:
    """Each rank packs its own samples; ``agreed``: the ranks have as many micro-batches as the one with most (expert parallelism).

    Source:  ``chatlearn/algorithm/grpo_utils/packing_utils.py`` (ChatLearn b7af31a9).
    """
    shares = [part.tolist() for part in np.array_split(np.arange(len(lengths)), ranks)]
    counts = [len(fitting(lengths[share], max_tokens)) for share in shares]
    most = [max(counts)] * ranks if agreed else counts
    return [
        [[share[item] for item in each] for each in level(lengths[share], count)] for share, count in zip(shares, most, strict=True)
    ]


def fitting(lengths: NDArray[np.int64], max_tokens: int) -> Bins:
    """The first pass: best fit, longest sample first. What would fill a micro-batch exactly opens a new one.

    >>> fitting(np.array([4096, 4096]), 8192), fitting(np.array([3000, 9000, 4096]), 8192)
    ([[0], [1]], [[1], [2, 0]])
    """
    bins: Bins = []
    rooms: list[tuple[int, int]] = []
    for item in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[item])
        place = bisect_right(rooms, (length, len(lengths)))
        room, index = rooms.pop(place) if place < len(rooms) else (max_tokens, len(bins))
        if index == len(bins):
            bins.append([])
        bins[index].append(item)
        insort(rooms, (room - length, index))
    return bins


def level(lengths: NDArray[np.int64], count: int) -> Bins:
    """The second pass: longest sample first into the least filled of so many; the fullest stands first.

    >>> level(np.array([5, 4, 3, 3]), 2)
    [[0, 3], [1, 2]]
    """
    bins: Bins = [[] for _ in range(count)]
    heap = [(0, index) for index in range(count)]
    for item in np.argsort(-lengths, kind="stable").tolist():
        filled, index = heap[0]
        heapq.heapreplace(heap, (filled + int(lengths[item]), index))
        bins[index].append(item)
    return [each for _, each in sorted(((int(lengths[each].sum()), each) for each in bins), reverse=True)]
