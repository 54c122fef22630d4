"""TRL: best fit of a thousand samples at a time, long ones cut to the limit; packs are dealt as they come."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict, deque
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.packing.balance import Ranks
    from meshwright.packing.bins import Bins

TOGETHER = 1000
"""Rows that ``datasets`` hands to a batched map at a time, where nothing else is said."""


def trl(lengths: NDArray[np.int64], max_tokens: int, ranks: int, *, together: int = TOGETHER) -> Ranks:
    """``strategy="bfd"``: one pack a micro-batch; packs go to the ranks in turn, and what does not come out even is left over.

    Holds:   a sample above the limit counts as the limit: the rest of it is dropped.
    Source:  ``trl/data_utils.py`` (TRL f2cd577): ``pack_dataset``.
    """
    cut = np.minimum(lengths, max_tokens)
    packs = [
        [start + item for item in each]
        for start in range(0, len(cut), together) for each in best_fit_of_rows(cut[start : start + together], max_tokens)
    ]
    return [packs[rank::ranks] for rank in range(ranks)]


def best_fit_of_rows(lengths: NDArray[np.int64], max_tokens: int) -> Bins:
    """Longest first, each where it leaves the least room; of packs with as much room the oldest is taken.

    >>> best_fit_of_rows(np.array([6, 5, 4, 3, 2]), 10)
    [[0, 2], [1, 3, 4]]
    """
    bins: Bins = []
    rooms: list[int] = []
    waiting: dict[int, deque[int]] = defaultdict(deque)
    for item in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[item])
        place = bisect_left(rooms, length)
        room = rooms[place] if place < len(rooms) else max_tokens
        if place < len(rooms):
            index = waiting[room].popleft()
            if not waiting[room]:
                rooms.pop(place)
        else:
            index = len(bins)
            bins.append([])
        bins[index].append(item)
        left = room - length
        if left and not waiting[left]:
            insort(rooms, left)
        waiting[left].append(index)
    return bins
