"""How few micro-batches could hold the samples: a bound in closed form, and the truth for small cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.packing.bins import Bins, best_fit

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_NODES = 200_000
"""Places that the exact search looks at before it gives up: a second or two."""


def lower_bound(lengths: NDArray[np.int64], max_tokens: int) -> int:
    """No packing has fewer micro-batches.

        max over alpha of |J1| + |J2| + max(0, ceil((sum J3 - (|J2| C - sum J2)) / C))
        J1: length > C - alpha;   J2: C - alpha >= length > C / 2;   J3: C / 2 >= length >= alpha

    Symbols: C the limit; alpha each length up to C / 2, and 0.
    Units:   tokens. Samples above the limit have a micro-batch each.
    Source:  Martello and Toth 1990, bound L2.

    >>> lower_bound(np.array([6, 6, 6, 4]), 10), lower_bound(np.array([4, 4, 4]), 10)
    (3, 2)
    """
    alone = int((lengths > max_tokens).sum())
    size = np.sort(lengths[lengths <= max_tokens])
    if not size.size:
        return alone
    upto = np.concatenate(([0], np.cumsum(size)))
    half = int(np.searchsorted(size, max_tokens / 2, side="right"))
    alpha = np.concatenate(([0], np.unique(size[:half])))
    first = np.searchsorted(size, alpha, side="left")
    large = np.searchsorted(size, max_tokens - alpha, side="right")
    large = np.maximum(large, half)
    middle, middle_sum = large - half, upto[large] - upto[half]
    left = (upto[half] - upto[np.minimum(first, half)]) - (middle * max_tokens - middle_sum)
    needed = (len(size) - large) + middle + np.maximum(0, -(-left // max_tokens))
    return alone + int(needed.max())


def exact(lengths: NDArray[np.int64], max_tokens: int, most_nodes: int = MOST_NODES) -> Bins | None:
    """A packing with the fewest micro-batches, proved by branch and bound; None where the search would take too long.

    Source:  depth first, longest sample first, into every micro-batch of another room and into a new one; cut by the tokens left.

    >>> exact(np.array([6, 5, 4, 4, 3, 3, 3, 2]), 10)
    [[0, 2], [1, 4, 7], [3, 5, 6]]
    """
    best = best_fit(lengths, max_tokens)
    least = lower_bound(lengths, max_tokens)
    order = np.argsort(-lengths, kind="stable").tolist()
    size = lengths[order].tolist()
    left = np.concatenate((np.cumsum(lengths[order][::-1])[::-1], [0])).tolist()
    nodes = 0

    def search(place: int, bins: Bins, rooms: list[int]) -> None:
        nonlocal nodes, best
        nodes += 1
        if place == len(size):
            best = [list(each) for each in bins] if len(bins) < len(best) else best
            return
        spare = sum(room for room in rooms if room > 0)
        if len(bins) + max(0, -(-(left[place] - spare) // max_tokens)) >= len(best) or nodes > most_nodes:
            return
        item, length = order[place], size[place]
        for index, room in enumerate(rooms):
            if room < length or room in rooms[:index]:
                continue
            bins[index].append(item)
            rooms[index] -= length
            search(place + 1, bins, rooms)
            bins[index].pop()
            rooms[index] += length
            if len(best) == least or room == length:  # what fills a room is never worse than another place
                return
        search(place + 1, [*bins, [item]], [*rooms, max_tokens - length])

    if len(best) > least:
        search(0, [], [])
    return None if nodes > most_nodes and len(best) > least else best
