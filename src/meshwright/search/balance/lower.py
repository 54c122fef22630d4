"""Bounds that no run of a pipeline beats, as sums of the times of its chunks: what the programme minimises."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from meshwright.perf.schedules import BACKWARD, BACKWARD_INPUT, FORWARD, WEIGHT, flattened
from meshwright.search.balance.times import ChunkTimes, Shape, order_of, positions, shape_of, short_microbatches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from meshwright.domain.balance import BalanceProblem

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


def pipeline_rows(problem: BalanceProblem | Shape) -> Iterator[tuple[Floats, int]]:
    """Coefficients of linear lower bounds of the pipeline's time, and how many hops each crosses.

        C_s = forwards before the first operation of s + all work of s + input gradients after its last backward
        D_s = all forwards + input gradients that come back to s + all work of s from its first backward on + the same end

    Shapes:  rows ``[forward | input gradient | weight gradient, place]``, two per stage; places in the model's order.
    Holds:   any schedule whose stages keep their order, any times: the first operation waits for what it needs, a stage does one
             thing at a time, and what it returns last must still reach the first place.
    Source:  the path and resource bounds of a flow shop; for uniform 1F1B D_s is (m + P - 1)(F + B), which is exact.
    """
    places = positions(problem)
    few = short_microbatches(problem)
    order = order_of(problem, few)
    more = problem.microbatches - few
    index = {place: number for number, place in enumerate(places)}
    stage_of = np.array([stage for _, stage in places])
    crossings = np.concatenate(([0], np.cumsum(np.diff(stage_of) != 0)))
    splits = any(kind == BACKWARD_INPUT for kind, _, _ in order.stages[-1])
    stops = np.cumsum([len(operations) for operations in order.stages])
    for stage, operations in enumerate(np.split(flattened(order), stops[:-1])):
        own = [index[chunk, stage] for chunk in range(problem.chunks)]
        begin = index[int(operations[0, 2]), stage]
        back = np.flatnonzero((operations[:, 0] == BACKWARD) | (operations[:, 0] == BACKWARD_INPUT))
        last = index[int(operations[back[-1], 2]), stage]
        ends_with_weight = bool(back[-1] < len(operations) - 1)
        whole = _work(operations, own, len(places))
        whole[:, own] += more
        until = np.zeros((3, len(places)))
        if not ends_with_weight:
            until[1, :last] += 1.0
            until[2, :last] += 0.0 if splits else 1.0
        first = np.zeros((3, len(places)))
        first[0, :begin] += 1.0
        tail_hops = 0 if ends_with_weight else int(crossings[last])
        yield first + whole + until, int(crossings[begin]) + tail_hops

        returned = index[int(operations[back[0], 2]), stage]
        path = np.zeros((3, len(places)))
        path[0] += 1.0
        path[1, returned + 1 :] += 1.0
        path[2, returned + 1 :] += 0.0 if splits else 1.0
        rest = _work(operations[back[0] :], own, len(places))
        rest[:, own] += more
        hops = int(crossings[-1]) + int(crossings[-1] - crossings[returned]) + tail_hops
        yield path + rest + until, hops


def _work(operations: Ints, own: list[int], places: int) -> Floats:
    """How often each chunk's forward, input gradient and weight gradient stand among operations."""
    kind, _, chunk = operations.T
    number = np.bincount(kind * len(own) + chunk, minlength=4 * len(own)).reshape(4, len(own))
    total = np.zeros((3, places))
    total[:, own] = number[FORWARD], number[BACKWARD] + number[BACKWARD_INPUT], number[BACKWARD] + number[WEIGHT]
    return total


def bound_rows(problem: BalanceProblem) -> tuple[Floats, Floats]:
    """All of ``pipeline_rows`` together: coefficients ``[row, 3 x place]``, and the seconds of their hops."""
    amounts, hops = _rows(shape_of(problem))
    return amounts, problem.hop_time * hops


@lru_cache(maxsize=64)
def _rows(shape: Shape) -> tuple[Floats, Floats]:
    """Coefficients, and numbers of hops: the same for all that pipelines of a shape may hold."""
    rows = list(pipeline_rows(shape))
    return np.stack([amounts.ravel() for amounts, _ in rows]), np.array([hops for _, hops in rows], dtype=np.float64)


def lower_bounds(problem: BalanceProblem, times: ChunkTimes) -> Floats:
    """The largest of the bounds for given times.

    Shapes:  ``[stage, chunk(, placement)]`` -> ``[placement]`` or no dimension.
    """
    places = positions(problem)
    chunks, stages = [chunk for chunk, _ in places], [stage for _, stage in places]
    stacked = np.concatenate([each[stages, chunks] for each in times])
    amounts, hops = bound_rows(problem)
    bounds = amounts @ stacked + hops.reshape(-1, *(1,) * (stacked.ndim - 1))
    return np.asarray(np.max(bounds, axis=0))


def lockstep_pairs(problem: BalanceProblem) -> dict[tuple[int | None, int | None], float]:
    """How often a stage runs a forward of one chunk beside a backward of another, or either alone: its steps in lockstep.

    Holds:   an estimate for telling placements of one slot apart; taken from the stage in the middle.
    """
    return _pairs(shape_of(problem))


@lru_cache(maxsize=64)
def _pairs(problem: Shape) -> dict[tuple[int | None, int | None], float]:
    """The steps of pipelines of a shape."""
    few = short_microbatches(problem)
    operations = order_of(problem, few).stages[problem.stages // 2]
    more = (problem.microbatches - few) / max(few, 1)
    steps: dict[tuple[int | None, int | None], float] = {}
    ahead: int | None = None
    for kind, _, chunk in (*operations, (FORWARD, 0, 0)):
        if kind == FORWARD:
            if ahead is not None:
                steps[ahead, None] = steps.get((ahead, None), 0.0) + 1.0
            ahead = chunk
        elif kind != WEIGHT:
            number = 1.0 + (more if ahead is not None else 0.0)
            steps[ahead, chunk] = steps.get((ahead, chunk), 0.0) + number
            ahead = None
    return steps
