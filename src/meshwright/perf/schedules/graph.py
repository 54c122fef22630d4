"""An order as a graph of operations, sorted into levels: the same for any times, so it is built once."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, field, structs

from meshwright.perf.schedules.dependencies import operations
from meshwright.perf.schedules.levels import Lanes, levels_of
from meshwright.perf.schedules.transfers import lines_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.perf.schedules.dependencies import Operations
    from meshwright.perf.schedules.operations import Order
    from meshwright.perf.schedules.values import Bools, Floats, Ints


MOST_KEPT = 64
"""Graphs that are kept for the next call, those that were built last."""


class Graph(Struct, frozen=True, kw_only=True, eq=False):
    """A node is an operation, a pair that runs jointly, or a transfer that occupies both its ends; nodes stand level by level.
    Node i is row i + 1 of all end times; row 0 is nothing, ended at 0.

    `previous`: row of the node before it on its stage, `sent`: whether that one sends.
    `needs`: rows of what its operations await, [operation of the pair, node], one line where nothing is paired; `remote`: whether
    it comes from another stage.
    `place`: row in the durations, [kind stage chunk] flattened, then nothing, then a transfer; `second_place`: of the other half
    of a pair.
    `stage`: of each node; `bounds`: of the levels; `last`: last node of each stage.
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
    bounds: Ints = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    node: Ints
    second: Bools
    last: Ints

    @property
    def levels(self) -> tuple[tuple[int, int], ...]:
        """Where each level begins and ends."""
        return tuple(pairwise(self.bounds.tolist()))

    @property
    def joint(self) -> bool:
        """Whether any operations run in pairs."""
        return len(self.needs) > 1


_kept: dict[tuple[Order, bool], Graph] = {}


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
    return graphs_of([order], rendezvous=rendezvous)[0]


def graphs_of(orders: Sequence[Order], *, rendezvous: bool = False) -> list[Graph]:
    """The graphs of several orders, of which those that are not known are sorted into levels together.

    Shapes:  Orders -> Graphs.
    Units:   counts.
    Source:  ``graph_of``.
    """
    known = {order: _kept.get((order, rendezvous)) for order in orders}
    found = {order: graph for order, graph in known.items() if graph is not None}
    new = [order for order in known if order not in found]
    unsorted = [_with_transfers(order) if rendezvous else _nodes(order) for order in new]
    for order, (graph, _), level in zip(new, unsorted, levels_of([lanes for _, lanes in unsorted]), strict=True):
        found[order] = _kept[order, rendezvous] = _by_level(graph, level)
    for old in list(_kept)[: max(0, len(_kept) - MOST_KEPT)]:
        _kept.pop(old, None)
    return [found[order] for order in orders]


def _operations(order: Order) -> Operations:
    """The operations of an order, read-only."""
    ops = operations(order)
    for each in (ops.stage, ops.chunk, ops.microbatch, ops.kind):
        each.flags.writeable = False
    return ops


def _nodes(order: Order) -> tuple[Graph, Lanes]:
    """Operations and pairs as nodes, stage by stage; -1 is nothing."""
    ops = _operations(order)
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
    needs = np.where(awaited >= 0, node[awaited], -1)
    place, nothing = _places(order, ops)
    graph = Graph(
        operations=ops,
        stage=stage,
        previous=previous,
        needs=needs,
        sent=((previous >= 0) & sends[previous]).astype(np.float64),
        remote=remote.astype(np.float64),
        place=place[head],
        second_place=np.where(tail >= 0, place[tail], nothing),
        node=node,
        second=second,
        last=node[ops.first[1:] - 1],
    )
    return graph, Lanes(needs=needs, nodes=np.arange(stage.size), lengths=np.bincount(stage).tolist())


def _with_transfers(order: Order) -> tuple[Graph, Lanes]:
    """Operations as nodes, and behind them transfers, which follow what stands before them on both lines."""
    ops = _operations(order)
    if ops.paired.any():
        raise ValueError(f"schedule {order.name!r} runs operations in pairs; their transfers have no place of their own.")
    total = ops.kind.size
    receivers = np.flatnonzero(ops.remote)
    number = np.arange(2 * total)
    number[total + receivers] = total + np.arange(receivers.size)
    stage = np.concatenate((ops.stage, ops.stage[receivers]))
    previous, needs = np.full((2, stage.size), -1)
    needs[:total] = np.where(ops.remote, -1, ops.needs)
    lines = [number[line] for line in lines_of(order, ops)]
    for at, line in enumerate(lines):
        for before, item in pairwise(line.tolist()):
            (previous if stage[item] == at else needs)[item] = before
    lanes = [line[stage[line] == at] for at, line in enumerate(lines)]
    place, nothing = _places(order, ops)
    graph = Graph(
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
    return graph, Lanes(needs=np.vstack((previous, needs)), nodes=np.concatenate(lanes), lengths=[each.size for each in lanes])


def _places(order: Order, ops: Operations) -> tuple[Ints, int]:
    """Row of each operation in the table of durations, and the row of nothing."""
    place = (ops.kind * order.num_stages + ops.stage) * order.num_chunks + ops.chunk
    return place, 4 * order.num_stages * order.num_chunks


def _by_level(graph: Graph, level: Ints) -> Graph:
    """The nodes of a graph sorted by their levels, their numbers turned into rows."""
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
        bounds=bounds,
        node=row[graph.node] - 1,
        last=row[graph.last] - 1,
    )
