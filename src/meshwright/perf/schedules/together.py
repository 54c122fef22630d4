"""Several pipelines of any orders simulated at once: their graphs side by side, level beside level."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from meshwright.perf.schedules.graph import graphs_of
from meshwright.perf.schedules.simulation import Wires, durations, ends

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.perf.schedules.graph import Graph
    from meshwright.perf.schedules.operations import Order
    from meshwright.perf.schedules.values import Floats, Ints

MOST_NODES = 2**18
"""Nodes times columns of pipelines that run side by side; more are taken in turns."""


class Pipeline(Struct, frozen=True, kw_only=True, eq=False):
    """An order and the times of its chunks, ``[stage, chunk(, column)]``."""

    order: Order
    forward_s: npt.ArrayLike
    backward_input_s: npt.ArrayLike
    backward_weight_s: npt.ArrayLike
    hop_s: float = 0.0


def makespans_of(pipelines: Sequence[Pipeline]) -> list[Floats]:
    """Lengths of pipelines: makespans() of each.

    A level of a graph is a few calls of NumPy whatever stands on it, so that many pipelines cost hardly more than the longest.

    Shapes:  ``[column]`` of each, as many as its times have.
    Units:   s -> s.
    Holds:   to the bit what makespans() says of each.
    Source:  makespans().

    >>> from meshwright.perf.schedules.one_f_one_b import order_1f1b
    >>> some = [Pipeline(order=order_1f1b(2, m), forward_s=1.0, backward_input_s=2.0, backward_weight_s=0.0) for m in (4, 8)]
    >>> [each.tolist() for each in makespans_of(some)]
    [[15.0], [27.0]]
    """
    graphs = graphs_of([each.order for each in pipelines])
    tables = [
        durations(
            (each.order.num_stages, each.order.num_chunks), each.forward_s, each.backward_input_s, each.backward_weight_s,
            each.hop_s,
        )
        for each in pipelines
    ]
    found: list[Floats] = [np.empty(0)] * len(pipelines)
    for turn in _turns(graphs, [table.shape[1] for table in tables]):
        own = [(graphs[number], tables[number], pipelines[number].hop_s) for number in turn]
        for number, spans in zip(turn, _run(own), strict=True):
            found[number] = spans
    return found


def _turns(graphs: Sequence[Graph], columns: Sequence[int]) -> list[list[int]]:
    """Pipelines that run side by side: those with about as many columns, the longest first."""
    order = sorted(range(len(graphs)), key=lambda number: (columns[number], -len(graphs[number].bounds), number))
    turns: list[list[int]] = []
    nodes = most = 0
    for number in order:
        own = graphs[number].place.size
        if not turns or columns[number] > most or (nodes + own) * columns[number] > MOST_NODES:
            turns.append([])
            nodes, most = 0, 2 * columns[number]
        turns[-1].append(number)
        nodes += own
    return turns


def _run(pipelines: Sequence[tuple[Graph, Floats, float]]) -> list[Floats]:
    """Lengths of pipelines side by side; columns that one has not are times of nothing."""
    columns = [table.shape[1] for _, table, _ in pipelines]
    wires, nodes = _side_by_side([graph for graph, _, _ in pipelines], [len(table) for _, table, _ in pipelines])
    every = np.zeros((sum(len(table) for _, table, _ in pipelines), max(columns)))
    below = 0
    for _, table, _ in pipelines:
        every[below : below + len(table), : table.shape[1]] = table
        below += len(table)
    delays = None
    if any(hop_s for *_, hop_s in pipelines):
        delays = np.zeros((*wires.rows.shape, 1))
        for (graph, _, hop_s), here in zip(pipelines, nodes, strict=True):
            delays[1 : 1 + len(graph.remote), here, 0] = hop_s * graph.remote
    done = ends(wires._replace(delays=delays), every)
    return [
        done[here[graph.last] + 1, :own].max(axis=0) for (graph, _, _), here, own in zip(pipelines, nodes, columns, strict=True)
    ]


def _side_by_side(graphs: Sequence[Graph], lengths: Sequence[int]) -> tuple[Wires, list[Ints]]:
    """One graph of several without a wire between them, and where the nodes of each stand in it.

    ``lengths``: rows of the durations of each, which stand one below the other.
    """
    bounds = [graph.bounds for graph in graphs]
    sizes = np.zeros((max(map(len, bounds)) - 1, len(graphs)), dtype=np.int64)
    for number, bound in enumerate(bounds):
        sizes[: len(bound) - 1, number] = np.diff(bound)
    total = np.cumsum(sizes)
    begins = (total - sizes.ravel()).reshape(sizes.shape)
    stops = total[len(graphs) - 1 :: len(graphs)].tolist()
    lines = max(len(graph.needs) for graph in graphs)
    paired = lines > 1
    rows = np.zeros((1 + lines, int(total[-1])), dtype=np.int64)
    place = np.zeros((1 + paired, int(total[-1])), dtype=np.int64)
    nodes: list[Ints] = []
    below = 0
    for number, (graph, bound, length) in enumerate(zip(graphs, bounds, lengths, strict=True)):
        deep = len(bound) - 1
        here = np.repeat(begins[:deep, number] - bound[:-1], sizes[:deep, number])
        here += np.arange(here.size)
        row = np.concatenate(([0], here + 1))
        rows[0, here] = row.take(graph.previous)
        rows[1 : 1 + len(graph.needs), here] = row.take(graph.needs)
        place[0, here] = graph.place + below
        if paired:
            place[1, here] = graph.second_place + below
        nodes.append(here)
        below += length
    levels = tuple(zip((0, *stops[:-1]), stops, strict=True))
    return Wires(rows=rows, place=place[0], second_place=place[1] if paired else None, levels=levels), nodes
