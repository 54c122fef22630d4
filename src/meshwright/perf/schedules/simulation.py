"""Event simulation of an operation order: the oracle of the closed forms, the timeline, and the judge of many placements."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from meshwright.perf.schedules.graph import graph_of
from meshwright.perf.schedules.held import held_per_operation
from meshwright.perf.schedules.timeline import Timeline

if TYPE_CHECKING:
    from meshwright.perf.schedules.graph import Graph
    from meshwright.perf.schedules.operations import Order
    from meshwright.perf.schedules.values import Floats, Ints

MOST_BYTES = 8 * 2**20
"""Of end times held at once; more columns are taken in turns. What fits the caches is fastest, too."""


class Wires(NamedTuple):
    """What nodes wait for, as rows of end times, of which row 0 is nothing and row i + 1 is node i; nodes stand level by level."""

    rows: Ints
    """``[what, node]``."""
    place: Ints
    """Row in the durations."""
    second_place: Ints | None
    """Row of the other half of a pair; None where nothing is paired."""
    levels: tuple[tuple[int, int], ...]
    delays: Floats | None = None
    """How much later than its end each awaited result is there, ``[what, node, 1]``; None: at once."""


def simulate(
    order: Order,
    *,
    forward_s: npt.ArrayLike,
    backward_input_s: npt.ArrayLike,
    backward_weight_s: npt.ArrayLike,
    hop_s: float = 0.0,
    blocking: bool = False,
    rendezvous: bool = False,
    activation: npt.ArrayLike = 1.0,
    kept_for_weight: float = 0.0,
) -> Timeline:
    """Run each stage through its order as early as dependencies allow.

        start = max(end of the previous operation on the stage, arrival of the awaited result)

    A result from another stage arrives `hop_s` after its operation (or pair) ends. `blocking`:
    the sender is also occupied for `hop_s` after each operation that sends. `rendezvous`: sender
    and receiver are both occupied, from when both are ready, in the order of transfers.lines_of.
    Activations are acquired when a forward starts and released when the backward ends; of a split
    backward, the share `kept_for_weight` stays until the weight gradient ends.

    Shapes:  times and activation broadcast to [num_stages][num_chunks], per microbatch and chunk.
    Units:   s -> s; activation in any unit, kept by `held` and `peak_held`.
    Holds:   buffers never block a sender; a pair lasts as long as its parts. AssertionError when
             the order deadlocks; by rendezvous also interleaved orders where P does not divide M.
             Time linear in the number of operations.
    Source:  none, the definition of a static schedule.

    >>> from meshwright.perf.schedules.one_f_one_b import order_1f1b
    >>> simulate(order_1f1b(4, 8), forward_s=1.0, backward_input_s=1.0,
    ...          backward_weight_s=1.0).makespan_s
    33.0
    """
    graph = graph_of(order, rendezvous=rendezvous)
    ops = graph.operations
    shape = (order.num_stages, order.num_chunks)
    table = durations(shape, forward_s, backward_input_s, backward_weight_s, hop_s)
    wires = _wires(graph, hop_s, blocking=blocking)
    first = _begins(ends(wires, table), _waits(wires), 0, len(wires.place))[graph.node, 0]
    duration = table[np.where(graph.second, graph.second_place[graph.node], graph.place[graph.node]), 0]
    start = first + np.where(graph.second, np.roll(duration, 1), 0.0)
    end = start + duration
    busy: Floats = np.bincount(ops.stage, weights=duration).astype(np.float64)
    makespan = float(end.max())
    sizes = np.broadcast_to(np.asarray(activation, dtype=np.float64), shape)
    held = held_per_operation(ops, sizes, kept_for_weight)
    return Timeline(
        stage=ops.stage,
        chunk=ops.chunk,
        microbatch=ops.microbatch,
        kind=ops.kind,
        start_s=start,
        end_s=end,
        held=held,
        makespan_s=makespan,
        busy_s=busy,
        bubble_s=np.asarray(makespan - busy),
        peak_held=np.maximum.reduceat(held, ops.first[:-1]),
    )


def makespans(
    order: Order,
    *,
    forward_s: npt.ArrayLike,
    backward_input_s: npt.ArrayLike,
    backward_weight_s: npt.ArrayLike,
    hop_s: float = 0.0,
    rendezvous: bool = False,
) -> Floats:
    """Length of the pipeline for many sets of times at once: simulate() of every column.

    Shapes:  times broadcast to [num_stages][num_chunks][column] -> [column]. Without a third
             dimension, one column.
    Units:   s -> s.
    Holds:   to the bit what simulate() says of a column; memory does not grow with the columns.
    Source:  simulate().

    >>> from meshwright.perf.schedules.one_f_one_b import order_1f1b
    >>> makespans(order_1f1b(2, 8), forward_s=[[[1.0, 2.0]], [[1.0, 1.0]]], backward_input_s=2.0,
    ...           backward_weight_s=0.0).tolist()
    [27.0, 34.0]
    """
    graph = graph_of(order, rendezvous=rendezvous)
    table = durations((order.num_stages, order.num_chunks), forward_s, backward_input_s, backward_weight_s, hop_s)
    columns, wires = table.shape[1], _wires(graph, hop_s)
    width = max(1, MOST_BYTES // (8 * (graph.place.size + 1)))
    found = [
        ends(wires, np.ascontiguousarray(table[:, at : at + width]))[graph.last + 1].max(axis=0)
        for at in range(0, columns, width)
    ]
    return np.concatenate(found) if found else np.empty(0)


def durations(
    shape: tuple[int, int], forward_s: npt.ArrayLike, input_s: npt.ArrayLike, weight_s: npt.ArrayLike, hop_s: float = 0.0
) -> Floats:
    """Times of all nodes of an order, as rows of columns.

    Shapes:  times broadcast to [num_stages][num_chunks][column] -> [kind stage chunk, column] in the order of the kinds' numbers,
             then nothing, then a transfer.
    Units:   s.
    Source:  none, bookkeeping.
    """
    times = [np.asarray(value, dtype=np.float64) for value in (forward_s, input_s, weight_s)]
    columns = max((each.shape[2] for each in times if each.ndim == 3), default=1)
    wide = (np.broadcast_to(each if each.ndim == 3 else each[..., None], (*shape, columns)) for each in times)
    forward, inputs, weights = wide
    stacked = np.stack((forward, inputs + weights, inputs, weights)).reshape(4 * shape[0] * shape[1], columns)
    return np.concatenate((stacked, np.full((1, columns), 0.0), np.full((1, columns), hop_s)))


def ends(wires: Wires, table: Floats) -> Floats:
    """When every node ends, one level after the other.

    Shapes:  [row, column].
    Units:   s.
    Source:  simulate().
    """
    found = np.empty((wires.place.size + 1, table.shape[1]))
    found[0] = 0.0
    np.take(table, wires.place, axis=0, out=found[1:], mode="clip")
    waits, second = _waits(wires), wires.second_place
    for start, stop in wires.levels:
        here = found[start + 1 : stop + 1]
        here += _begins(found, waits, start, stop)
        if second is not None:
            here += table[second[start:stop]]
    return found


def _wires(graph: Graph, hop_s: float, *, blocking: bool = False) -> Wires:
    """The wires of a graph; results are delayed where transfers take time."""
    delays = hop_s * np.vstack((graph.sent * blocking, graph.remote))[..., None] if hop_s else None
    return Wires(
        rows=np.vstack((graph.previous, graph.needs)), place=graph.place,
        second_place=graph.second_place if graph.joint else None, levels=graph.levels, delays=delays,
    )


def _waits(wires: Wires) -> list[tuple[Ints, Floats | None]]:
    """Rows of end times that nodes wait for, thing by thing, and how much later each is there; None: at once."""
    delays: list[Floats | None] = [None] * len(wires.rows)
    if wires.delays is not None:
        delays = [each if each.any() else None for each in wires.delays]
    return list(zip(wires.rows, delays, strict=True))


def _begins(found: Floats, waits: list[tuple[Ints, Floats | None]], start: int, stop: int) -> Floats:
    """When some nodes begin: as soon as their stage is free and what they await has arrived."""
    begin: Floats | None = None
    for row, delay in waits:
        there = found.take(row[start:stop], axis=0)
        if delay is not None:
            there += delay[start:stop]
        begin = there if begin is None else np.maximum(begin, there, out=begin)
    assert begin is not None, "a stage has a line"
    return begin
