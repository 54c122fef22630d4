"""Bounds that no run of a pipeline beats, as sums of the times of its chunks: what the programme minimises."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from meshwright.perf.schedules import BACKWARD, BACKWARD_INPUT, FORWARD, WEIGHT
from meshwright.search.balance.times import ChunkTimes, Shape, order_of, positions, shape_of, short_microbatches

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.domain.balance import BalanceProblem

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]


def pipeline_rows(problem: BalanceProblem | Shape) -> tuple[Floats, Ints]:
    """Coefficients of linear lower bounds of the pipeline's time, and how many hops each crosses.

        C_s = forwards before the first operation of s + all work of s + input gradients after its last backward
        D_s = all forwards + input gradients that come back to s + all work of s from its first backward on + the same end

    Shapes:  rows ``[bound, forward | input gradient | weight gradient, place]``, two per stage; places in the model's order.
    Holds:   any schedule whose stages keep their order, any times: the first operation waits for what it needs, a stage does one
             thing at a time, and what it returns last must still reach the first place.
    Source:  the path and resource bounds of a flow shop; for uniform 1F1B D_s is (m + P - 1)(F + B), which is exact.
    """
    places, few = positions(problem), short_microbatches(problem)
    order = order_of(problem, few)
    stages, every = np.arange(problem.stages), np.arange(len(places))
    stage_of = np.array([stage for _, stage in places])
    own = np.empty((problem.stages, problem.chunks), dtype=np.int64)
    own[stage_of, [chunk for chunk, _ in places]] = every
    crossings = np.concatenate(([0], np.cumsum(np.diff(stage_of) != 0)))

    lengths = np.array(order.lengths)
    stops = np.cumsum(lengths)
    stage, (kind, _, chunk) = np.repeat(stages, lengths), order.operations.T
    back = np.flatnonzero((kind == BACKWARD) | (kind == BACKWARD_INPUT))
    returns = np.searchsorted(stage[back], stages)  # the first backward of each stage
    first, last = back[returns], back[np.append(returns[1:], back.size) - 1]
    begin, returned, end = (own[stages, chunk[each]] for each in (stops - lengths, first, last))
    waits = last < stops - 1  # for a weight gradient: nothing is returned behind it
    split = 0.0 if (kind[stops[-1] - lengths[-1] :] == BACKWARD_INPUT).any() else 1.0

    def work(chosen: Ints) -> Floats:
        """How often the chunks of each stage run a forward, an input gradient and a weight gradient among operations."""
        at = (stage[chosen] * 4 + kind[chosen]) * problem.chunks + chunk[chosen]
        number = np.bincount(at, minlength=4 * own.size).reshape(problem.stages, 4, problem.chunks)
        total = np.zeros((problem.stages, 3, len(places)))
        each = (number[:, FORWARD], number[:, BACKWARD] + number[:, BACKWARD_INPUT], number[:, BACKWARD] + number[:, WEIGHT])
        total[stages[:, None, None], np.arange(3)[:, None], own[:, None]] = np.stack(each, axis=1) + problem.microbatches - few
        return total

    whole = np.arange(kind.size)
    rows = np.stack((work(whole), work(whole[whole >= first[stage]])), axis=1)
    home, behind = (every < end[:, None]) & ~waits[:, None], every > returned[:, None]
    rows[:, 0, 0] += every < begin[:, None]
    rows[:, 1, 0] += 1.0
    gradients = np.stack((home, home.astype(np.float64) + behind), axis=1)
    rows[:, :, 1] += gradients
    rows[:, :, 2] += split * gradients
    tail = np.where(waits, 0, crossings[end])
    hops = np.stack((crossings[begin] + tail, 2 * crossings[-1] - crossings[returned] + tail), axis=1)
    return rows.reshape(-1, 3, len(places)), hops.ravel()


def bound_rows(problem: BalanceProblem) -> tuple[Floats, Floats]:
    """All of ``pipeline_rows`` together: coefficients ``[row, 3 x place]``, and the seconds of their hops."""
    amounts, hops = _rows(shape_of(problem))
    return amounts, problem.hop_time * hops


@lru_cache(maxsize=64)
def _rows(shape: Shape) -> tuple[Floats, Floats]:
    """Coefficients, and numbers of hops: the same for all that pipelines of a shape may hold."""
    rows, hops = pipeline_rows(shape)
    return rows.reshape(len(rows), -1), hops.astype(np.float64)


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
    operations = order_of(problem, few).stage(problem.stages // 2)
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
