"""An order as a graph of operations, sorted into levels: the same for any times, so it is built once."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, structs

from meshwright.perf.schedules.dependencies import operations
from meshwright.perf.schedules.transfers import lines_of

if TYPE_CHECKING:
    from meshwright.perf.schedules.dependencies import Operations
    from meshwright.perf.schedules.operations import Order
    from meshwright.perf.schedules.values import Bools, Floats, Ints


UNKNOWN = -2
"""Level of a node that was not reached yet."""


class Graph(Struct, frozen=True, kw_only=True, eq=False):
    """A node is an operation, a pair that runs jointly, or a transfer that occupies both its ends; nodes stand level by level.
    Node i is row i + 1 of all end times; row 0 is nothing, ended at 0.

    `previous`: row of the node before it on its stage, `sent`: whether that one sends.
    `needs`: rows of what its operations await, [operation of the pair, node], one line where nothing is paired; `remote`: whether
    it comes from another stage.
    `place`: row in the durations, [kind stage chunk] flattened, then nothing, then a transfer; `second_place`: of the other half
    of a pair.
    `stage`: of each node; `levels`: bounds of the levels; `last`: last node of each stage.
    `node`: of each operation; `second`: whether the operation is the second of a pair.
    """

    operations: Operations
    stage: Ints
    previous: Ints
    needs: Ints
    sent: Floats
    remote: Floats
    place: Ints
    second_place: Ints
    levels: tuple[tuple[int, int], ...] = ()
    node: Ints
    second: Bools
    last: Ints

    @property
    def joint(self) -> bool:
        """Whether any operations run in pairs."""
        return len(self.needs) > 1


@lru_cache(maxsize=32)
def graph_of(order: Order, *, rendezvous: bool = False) -> Graph:
    """The graph of an order, kept for the next call; with `rendezvous`, transfers are nodes on the lines of both their stages.

    Shapes:  an Order -> Graph.
    Units:   counts.
    Holds:   orders without deadlock (AssertionError, which names the stages that wait). Its arrays are read-only.
    Source:  none, bookkeeping: longest paths by topological levels.

    >>> from meshwright.perf.schedules.gpipe import order_gpipe
    >>> graph_of(order_gpipe(2, 1)).levels
    ((0, 1), (1, 2), (2, 3), (3, 4))
    """
    ops = operations(order)
    for each in (ops.stage, ops.chunk, ops.microbatch, ops.kind):
        each.flags.writeable = False
    return _by_level(_with_transfers(order, ops) if rendezvous else _nodes(order, ops))


def _nodes(order: Order, ops: Operations) -> Graph:
    """Operations and pairs as nodes, stage by stage; -1 is nothing."""
    second = np.concatenate(([False], ops.paired[:-1]))
    head = np.flatnonzero(~second)
    tail = np.where(ops.paired[head], head + 1, -1)
    node = np.cumsum(~second) - 1
    stage = ops.stage[head]
    previous = np.where(np.diff(stage, prepend=-1) != 0, -1, np.arange(head.size) - 1)
    rows = 2 if ops.paired.any() else 1
    awaited = np.stack([ops.needs[head], np.where(tail >= 0, ops.needs[tail], -1)])[:rows]
    remote = np.stack([ops.remote[head], (tail >= 0) & ops.remote[tail]])[:rows]
    sends = ops.sends[head] | ((tail >= 0) & ops.sends[tail])
    place, nothing = _places(order, ops)
    return Graph(
        operations=ops,
        stage=stage,
        previous=previous,
        needs=np.where(awaited >= 0, node[awaited], -1),
        sent=((previous >= 0) & sends[previous]).astype(np.float64),
        remote=remote.astype(np.float64),
        place=place[head],
        second_place=np.where(tail >= 0, place[tail], nothing),
        node=node,
        second=second,
        last=node[ops.first[1:] - 1],
    )


def _with_transfers(order: Order, ops: Operations) -> Graph:
    """Operations as nodes, and behind them transfers, which follow what stands before them on both lines."""
    if ops.paired.any():
        raise ValueError(f"schedule {order.name!r} runs operations in pairs; their transfers have no place of their own.")
    total = ops.kind.size
    receivers = np.flatnonzero(ops.remote)
    number = np.arange(2 * total)
    number[total + receivers] = total + np.arange(receivers.size)
    stage = np.concatenate((ops.stage, ops.stage[receivers]))
    previous, needs = np.full((2, stage.size), -1)
    needs[:total] = np.where(ops.remote, -1, ops.needs)
    for at, line in enumerate(lines_of(order, ops)):
        for before, item in pairwise(number[line].tolist()):
            (previous if stage[item] == at else needs)[item] = before
    place, nothing = _places(order, ops)
    return Graph(
        operations=ops,
        stage=stage,
        previous=previous,
        needs=needs[None],
        sent=np.zeros(stage.size),
        remote=np.zeros((1, stage.size)),
        place=np.concatenate((place, np.full(receivers.size, nothing + 1))),
        second_place=np.full(stage.size, nothing),
        node=np.arange(total),
        second=np.zeros(total, dtype=np.bool_),
        last=ops.first[1:] - 1,
    )


def _places(order: Order, ops: Operations) -> tuple[Ints, int]:
    """Row of each operation in the table of durations, and the row of nothing."""
    place = (ops.kind * order.num_stages + ops.stage) * order.num_chunks + ops.chunk
    return place, 4 * order.num_stages * order.num_chunks


def _by_level(graph: Graph) -> Graph:
    """Sort the nodes of a graph into levels, and turn their numbers into rows."""
    level = _levels(np.vstack((graph.previous, graph.needs)), graph.stage)
    sequence = np.argsort(level, kind="stable")
    row = np.zeros(level.size + 1, dtype=np.int64)
    row[sequence] = np.arange(1, level.size + 1)
    bounds = np.concatenate(([0], np.cumsum(np.bincount(level))))
    return structs.replace(
        graph,
        stage=graph.stage[sequence],
        previous=row[graph.previous[sequence]],
        needs=row[graph.needs[:, sequence]],
        sent=graph.sent[sequence],
        remote=graph.remote[:, sequence],
        place=graph.place[sequence],
        second_place=graph.second_place[sequence],
        levels=tuple(pairwise(bounds.tolist())),
        node=row[graph.node] - 1,
        last=row[graph.last] - 1,
    )


def _levels(before: Ints, stage: Ints) -> Ints:
    """Longest number of steps from the beginning to every node, given its predecessors (-1: none), that on its stage first.

    Stages are followed as far as nothing that they await is missing; who waits goes on when it is there.
    """
    previous, *needs = before.tolist()
    (later,) = np.nonzero(before[0] >= 0)
    following = np.full(len(stage), -1)
    following[before[0][later]] = later
    after: list[int] = following.tolist()
    level = [UNKNOWN] * len(after) + [-1]  # the last is that of nothing, whose number is -1
    waiting: dict[int, list[int]] = {}
    for node in later[following[before[0][later]] != later].tolist():  # a transfer stands before nodes of both its stages
        waiting.setdefault(previous[node], []).append(node)
    ready: list[int] = np.flatnonzero(before[0] < 0).tolist()
    while ready:
        node = ready.pop()
        reached = level[previous[node]]
        while node >= 0:
            for need in needs:
                earlier = level[need[node]]
                if earlier > reached:
                    reached = earlier
                elif earlier == UNKNOWN:
                    waiting.setdefault(need[node], []).append(node)
                    break
            else:
                reached += 1
                level[node] = reached
                if node in waiting:
                    ready += waiting.pop(node)
                node = after[node]
                continue
            break
    del level[-1]
    stuck = sorted({int(stage[node]) for node, reached in enumerate(level) if reached == UNKNOWN})
    assert not stuck, f"deadlock: stages {stuck} wait for each other"
    return np.array(level, dtype=np.int64)
