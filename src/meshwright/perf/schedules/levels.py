"""Operations of orders sorted into levels: when each runs if every one takes a tick, all stages of all orders side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.perf.schedules.values import Ints

FAR = np.iinfo(np.int64).max
"""Level of a node that was not reached yet."""


class Lanes(NamedTuple):
    """Nodes that stand one behind the other in lanes, and what each awaits besides the one in front of it."""

    needs: Ints
    """``[what, node]``: numbers of nodes, -1 is nothing."""
    nodes: Ints
    """Numbers of the nodes, lane after lane."""
    lengths: Sequence[int]
    """Nodes of each lane."""


def levels_of(graphs: Sequence[Lanes]) -> list[Ints]:
    """Longest number of steps from the beginning to every node of each graph.

    Tick by tick the first node of each lane that has not run does so, if what it awaits has run before: a tick is a few calls of
    NumPy, however many lanes there are.

    Shapes:  of each graph ``[node]``.
    Units:   counts.
    Holds:   AssertionError, which names the lanes, where some wait for each other.
    Source:  none, bookkeeping.

    >>> two = Lanes(needs=np.array([[-1, 2, -1, -1]]), nodes=np.arange(4), lengths=(2, 2))
    >>> [each.tolist() for each in levels_of([two])]
    [[0, 1, 0, 1]]
    """
    if not graphs:
        return []
    size = sum(each.nodes.size + len(each.lengths) for each in graphs)
    nothing, never = size, size + 1
    level = np.full(size + 2, FAR)
    level[nothing] = -1
    needs = np.full((max(len(each.needs) for each in graphs), size), nothing)
    heads, places = [], []
    below = 0
    for each in graphs:
        lanes = np.arange(len(each.lengths))
        stops = np.cumsum(each.lengths) + lanes + below
        place = np.full(each.nodes.size + 1, nothing)
        place[each.nodes] = np.arange(each.nodes.size) + np.repeat(lanes, each.lengths) + below
        needs[: len(each.needs), place[:-1]] = place[each.needs]
        needs[:, stops] = never
        heads.append(np.concatenate(([below], stops[:-1] + 1)))
        places.append(place[:-1])
        below = int(stops[-1]) + 1
    head = np.concatenate(heads)
    left, tick = sum(each.nodes.size for each in graphs), 0
    one = needs[0] if len(needs) == 1 else None
    while left:
        ready = level.take(one.take(head)) < tick if one is not None else level.take(needs.take(head, axis=1)).max(axis=0) < tick
        now = head[ready]
        if not now.size:
            lane = np.concatenate([np.arange(len(each.lengths)) for each in graphs])
            stuck = sorted(set(lane[needs[0, head] != never].tolist()))
            raise AssertionError(f"deadlock: stages {stuck} wait for each other")
        level[now] = tick
        head += ready
        left -= now.size
        tick += 1
    return [level[place] for place in places]
