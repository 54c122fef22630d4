"""What a placement costs: seconds of each chunk, the slot, the simulated pipeline, and bounds that no placement beats.

Everything broadcasts over columns of placements: counts are ``[body, treatment, chunk, stage]`` or with placements behind.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from meshwright.perf.schedules import ORDERS, makespans

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.domain.balance import BalanceProblem
    from meshwright.perf.schedules import Order

    Floats = NDArray[np.float64]
    Counts = NDArray[np.int64]

WHOLE_OPERATIONS = 100_000
"""Operations that are simulated one by one; longer pipelines are followed until they repeat themselves, then continued."""
ROUNDS = 3
"""Rounds of as many micro-batches as stages after which a pipeline repeats itself."""


class ChunkTimes(NamedTuple):
    """Forward, input gradient and weight gradient of every chunk, ``[stage, chunk(, placement)]``."""

    forward: Floats
    backward_input: Floats
    weight: Floats

    @property
    def backward(self) -> Floats:
        """Both gradients."""
        return self.backward_input + self.weight


def order_of(problem: BalanceProblem, microbatches: int | None = None) -> Order:
    """The order of operations of a problem's schedule, for another number of micro-batches on demand."""
    m = problem.microbatches if microbatches is None else microbatches
    return _order(problem.schedule, problem.stages, m, problem.chunks, problem.sequence_splits)


@lru_cache(maxsize=64)
def _order(schedule: str, stages: int, microbatches: int, chunks: int, splits: int) -> Order:
    return ORDERS[schedule](stages, microbatches, num_chunks=chunks, num_splits=splits)


def ends(problem: BalanceProblem) -> tuple[tuple[int, int], tuple[int, int]]:
    """Where the model begins and where it ends: (stage, chunk) of its first and of its last position."""
    places = positions(problem)
    return (places[0][1], places[0][0]), (places[-1][1], places[-1][0])


def positions(problem: BalanceProblem) -> tuple[tuple[int, int], ...]:
    """(chunk, stage) of every position of the model, in its order."""
    return _positions(problem.schedule, problem.stages, short_microbatches(problem), problem.chunks, problem.sequence_splits)


@lru_cache(maxsize=64)
def _positions(schedule: str, stages: int, microbatches: int, chunks: int, splits: int) -> tuple[tuple[int, int], ...]:
    table = _order(schedule, stages, microbatches, chunks, splits).virtual_stage_table()
    places = np.argsort(table, axis=None)
    return tuple((int(place % table.shape[1]), int(place // table.shape[1])) for place in places)


def backward_table(problem: BalanceProblem) -> Floats:
    """Backward of one layer, ``[body, treatment]``; what a body has not is infinite."""
    return np.array([body.backward_times for body in problem.bodies], dtype=np.float64)


def chunk_times(problem: BalanceProblem, counts: Counts) -> ChunkTimes:
    """Times of every chunk of placements.

        F = sum x f (+ end);   B = sum x b_r (+ end);   W = sum x w (+ end)

    Shapes:  counts ``[body, treatment, chunk, stage(, placement)]`` -> ``[stage, chunk(, placement)]``.
    Units:   the problem's.
    Source:  docs/sources.md#stage-balance.
    """
    of_body = counts.sum(axis=1)
    table = backward_table(problem)
    table = np.where(np.isfinite(table), table, 0.0)
    forward = np.einsum("b,b...->...", np.array([body.forward_time for body in problem.bodies], dtype=np.float64), of_body)
    weight = np.einsum("b,b...->...", np.array([body.weight_time for body in problem.bodies], dtype=np.float64), of_body)
    backward = np.einsum("bt,bt...->...", table, counts)
    forward, backward, weight = (np.swapaxes(each, 0, 1).copy() for each in (forward, backward, weight))
    for place, end in zip(ends(problem), (problem.first, problem.last), strict=True):
        forward[place] += end.forward_time
        backward[place] += end.backward_time
        weight[place] += end.weight_time
    return ChunkTimes(forward, backward - weight, weight)


def slot_times(times: ChunkTimes) -> Floats:
    """The steady slot: the longest forward plus the longest backward of chunks of one stage, of the slowest stage.

    Shapes:  ``[stage, chunk(, placement)]`` -> ``[placement]`` or no dimension.
    Source:  SAPP's constraint T >= F[vf][s] + B[vb][s] for all pairs of chunks.
    """
    return np.asarray((times.forward.max(axis=1) + times.backward.max(axis=1)).max(axis=0))


def short_microbatches(problem: BalanceProblem) -> int:
    """As many micro-batches as show all that a schedule does; groups of chunks that do not come out even depend on all of them."""
    m, unit = problem.microbatches, problem.stages * problem.sequence_splits
    return m if problem.chunks > 1 and m % unit else min(m, ROUNDS * unit + m % unit)


def simulated_times(problem: BalanceProblem, times: ChunkTimes, *, short: bool = False) -> Floats:
    """The pipeline of one step by event simulation, for all placements at once.

        makespan(m);   of long pipelines makespan(m') + (m - m') max((makespan(m' + P) - makespan(m')) / P, W)

    Symbols: m micro-batches; m' ``short_microbatches``; W work of the busiest stage, which early rounds may still hide.
    Shapes:  ``[stage, chunk(, placement)]`` -> ``[placement]`` or no dimension.
    Units:   the problem's.
    Holds:   exact up to ``WHOLE_OPERATIONS`` operations; ``short``: always by continuation, for comparing neighbours.
    Source:  ``perf.schedules.makespans``.
    """
    m, few = problem.microbatches, short_microbatches(problem)
    unit = problem.stages * problem.sequence_splits
    whole = m * problem.stages * problem.chunks * 2 <= WHOLE_OPERATIONS
    if m <= few + unit or (whole and not short):
        return _makespans(problem, times, m)
    base, longer = _makespans(problem, times, few), _makespans(problem, times, few + unit)
    busiest = (times.forward + times.backward).sum(axis=1).max(axis=0)
    return np.asarray(base + (m - few) * np.maximum((longer - base) / unit, busiest))


def _makespans(problem: BalanceProblem, times: ChunkTimes, microbatches: int) -> Floats:
    alone = times.forward.ndim == 2
    columns = ChunkTimes(*(each[..., None] for each in times)) if alone else times
    found = makespans(
        order_of(problem, microbatches), forward_s=columns.forward, backward_input_s=columns.backward_input,
        backward_weight_s=columns.weight, hop_s=problem.hop_time,
    )
    return np.asarray(found[0]) if alone else found
