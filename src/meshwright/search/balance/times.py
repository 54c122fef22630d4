"""What a placement costs: seconds of each chunk, the slot, the simulated pipeline, and bounds that no placement beats.

Everything broadcasts over columns of placements: counts are ``[body, treatment, chunk, stage]`` or with placements behind.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from meshwright.perf.schedules import ORDERS, Pipeline, makespans_of

if TYPE_CHECKING:
    from collections.abc import Sequence

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


class Shape(NamedTuple):
    """What the order of a pipeline depends on, whatever stands on its stages."""

    schedule: str
    stages: int
    microbatches: int
    chunks: int
    sequence_splits: int


def shape_of(problem: BalanceProblem) -> Shape:
    """The shape of a problem."""
    return Shape(problem.schedule, problem.stages, problem.microbatches, problem.chunks, problem.sequence_splits)


def order_of(problem: BalanceProblem | Shape, microbatches: int | None = None) -> Order:
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


def positions(problem: BalanceProblem | Shape) -> tuple[tuple[int, int], ...]:
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


def short_microbatches(problem: BalanceProblem | Shape) -> int:
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
    return several_times([(problem, times)], short=short)[0]


def several_times(asked: Sequence[tuple[BalanceProblem, ChunkTimes]], *, short: bool = False) -> list[Floats]:
    """The pipelines of several problems, simulated side by side.

    Shapes:  of each as ``simulated_times``.
    Units:   the problems'.
    Source:  ``simulated_times``.
    """
    lengths = [_lengths(problem, short=short) for problem, _ in asked]
    pipelines = [
        _pipeline(problem, times, length)
        for (problem, times), own in zip(asked, lengths, strict=True) for length in own
    ]
    spans = iter(makespans_of(pipelines))
    return [_told(problem, times, [next(spans) for _ in own]) for (problem, times), own in zip(asked, lengths, strict=True)]


def _lengths(problem: BalanceProblem, *, short: bool) -> tuple[int, ...]:
    """Numbers of micro-batches that are simulated: all, or fewer and one round more."""
    m, few = problem.microbatches, short_microbatches(problem)
    whole = m * problem.stages * problem.chunks * 2 <= WHOLE_OPERATIONS
    if m <= few + _unit(problem) or (whole and not short):
        return (m,)
    return few, few + _unit(problem)


def _unit(problem: BalanceProblem) -> int:
    """Micro-batches of a round."""
    return problem.stages * problem.sequence_splits


def _pipeline(problem: BalanceProblem, times: ChunkTimes, microbatches: int) -> Pipeline:
    forward, inputs, weight = times
    return Pipeline(
        order=order_of(problem, microbatches), forward_s=forward, backward_input_s=inputs, backward_weight_s=weight,
        hop_s=problem.hop_time,
    )


def _told(problem: BalanceProblem, times: ChunkTimes, spans: list[Floats]) -> Floats:
    """The whole pipeline from what was simulated of it."""
    base, *longer = [each[0] if times.forward.ndim == 2 else each for each in spans]
    if not longer:
        return np.asarray(base)
    busiest = (times.forward + times.backward).sum(axis=1).max(axis=0)
    rest = problem.microbatches - short_microbatches(problem)
    return np.asarray(base + rest * np.maximum((longer[0] - base) / _unit(problem), busiest))
