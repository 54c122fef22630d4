"""What every stage holds under a placement, at the fullest moment of its order of operations."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from meshwright.perf.schedules import held_vectors
from meshwright.search.balance.times import Shape, ends, order_of, short_microbatches

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.domain.balance import BalanceProblem

    Floats = NDArray[np.float64]
    Counts = NDArray[np.int64]

CELLS = 2**16
"""Moments of stages times placements that are evaluated at once: so many stay in the caches."""


def held(problem: BalanceProblem) -> tuple[Floats, ...]:
    """For each stage the numbers of micro-batches that its chunks hold at once, ``[vector, chunk]``: the largest combinations.

    Source:  ``perf.schedules.held_vectors`` of the schedule's order; what is in flight does not grow after a few rounds, but in
             GPipe, which holds all.
    """
    return _held(_shape(problem))


def _shape(problem: BalanceProblem) -> Shape:
    """The shape of a pipeline that holds what a problem's does."""
    m = problem.microbatches if problem.schedule == "gpipe" else short_microbatches(problem)
    return Shape(problem.schedule, problem.stages, m, problem.chunks, problem.sequence_splits)


@lru_cache(maxsize=64)
def _held(shape: Shape) -> tuple[Floats, ...]:
    return tuple(np.asarray(each, dtype=np.float64) for each in held_vectors(order_of(shape), until_weight=True))


def _moments(problem: BalanceProblem) -> Floats:
    """``held`` of all stages in one array, ``[stage, vector, chunk]``; a stage with fewer vectors holds nothing in the others."""
    return _stacked(_shape(problem))


@lru_cache(maxsize=64)
def _stacked(shape: Shape) -> Floats:
    vectors = _held(shape)
    found = np.zeros((shape.stages, max(map(len, vectors)), shape.chunks))
    for stage, own in enumerate(vectors):
        found[stage, : len(own)] = own
    return found


def static_table(problem: BalanceProblem) -> Floats:
    """Static memory of one layer by body."""
    return np.array([body.static_memory for body in problem.bodies], dtype=np.float64)


def activation_table(problem: BalanceProblem) -> Floats:
    """What one layer keeps for one micro-batch, ``[body, treatment]``."""
    return _table(problem, [body.activation_memory for body in problem.bodies])


def transient_table(problem: BalanceProblem) -> Floats:
    """Working set while a layer runs, ``[body, treatment]``."""
    return _table(problem, [body.transient_memory for body in problem.bodies])


def _table(problem: BalanceProblem, rows: list[tuple[float, ...]]) -> Floats:
    kinds = len(problem.treatments)
    return np.array([row or (0.0,) * kinds for row in rows], dtype=np.float64)


def fixed_memory(problem: BalanceProblem) -> Floats:
    """What every stage holds without any layer: its constant and the parameters of the ends, ``[stage]``."""
    fixed = np.array(problem.constant_memory or (0.0,) * problem.stages, dtype=np.float64)
    (begin, _), (end, _) = ends(problem)
    fixed[begin] += problem.first.static_memory
    fixed[end] += problem.last.static_memory
    return fixed


def chunk_activation(problem: BalanceProblem, counts: Counts) -> Floats:
    """What every chunk keeps for one micro-batch in flight, the ends included.

    Shapes:  ``[body, treatment, chunk, stage(, placement)]`` -> ``[chunk, stage(, placement)]``.
    """
    kept = np.einsum("bt,bt...->...", activation_table(problem), counts)
    for (stage, chunk), end in zip(ends(problem), (problem.first, problem.last), strict=True):
        kept[chunk, stage] += end.activation_memory
    return np.asarray(kept)


def stage_memory(problem: BalanceProblem, counts: Counts) -> Floats:
    """Peak memory of every stage.

        M_s = const_s + sum n par + max over h in held_s of sum_v h_v act_v + largest working set

    Symbols: h micro-batches in flight by chunk at one moment; act what a chunk keeps for one of them.
    Shapes:  ``[body, treatment, chunk, stage(, placement)]`` -> ``[stage(, placement)]``.
    Units:   the problem's.
    Holds:   exact for the schedule's order (no cap or average over chunks).
    Source:  docs/sources.md#stage-balance (memory at every prefix of the schedule).
    """
    return np.asarray(kept_memory(problem, counts) + working_set(problem, counts))


def working_set(problem: BalanceProblem, counts: Counts) -> Floats:
    """The largest working set of every stage's layers, and of the ends.

    Shapes:  ``[body, treatment, chunk, stage(, placement)]`` -> ``[stage(, placement)]``.
    """
    largest = np.zeros(counts.shape[3:])
    for body, row in enumerate(transient_table(problem)):
        for treatment, size in enumerate(row):
            if size:
                largest = np.maximum(largest, np.where(counts[body, treatment].sum(axis=0) > 0, size, 0.0))
    for (stage, _), end in zip(ends(problem), (problem.first, problem.last), strict=True):
        largest[stage] = np.maximum(largest[stage], end.transient_memory)
    return largest


def kept_memory(problem: BalanceProblem, counts: Counts) -> Floats:
    """``stage_memory`` without the largest working set.

    Shapes:  ``[body, treatment, chunk, stage(, placement)]`` -> ``[stage(, placement)]``.
    """
    static = np.einsum("b,b...->...", static_table(problem), counts.sum(axis=(1, 2)))
    activation = chunk_activation(problem, counts)
    if problem.chunks == 1:  # one vector for each stage
        most = np.concatenate(held(problem))
        flying = most.reshape(-1, *(1,) * (activation.ndim - 2)) * activation[0]
    else:
        flying = _fullest(_moments(problem), activation)
    return np.asarray(static + flying + fixed_memory(problem).reshape(-1, *(1,) * (static.ndim - 1)))


def excess(problem: BalanceProblem, memory: Floats) -> Floats:
    """How much the stages exceed their bounds, summed over stages; rounding is no excess.

    Shapes:  ``[stage(, placement)]`` -> ``[placement]`` or no dimension.
    """
    bounds = np.array(problem.memory_bounds, dtype=np.float64).reshape(-1, *(1,) * (memory.ndim - 1))
    over = memory - bounds
    return np.asarray(np.where(over > 1e-9 * np.maximum(np.abs(bounds), 1.0), over, 0.0).sum(axis=0))


def _fullest(moments: Floats, activation: Floats) -> Floats:
    """The most that stages' micro-batches in flight hold at any moment, some stages at once.

    Shapes:  ``[stage, vector, chunk]``, ``[chunk, stage(, placement)]`` -> ``[stage(, placement)]``.
    """
    together = max(1, CELLS // max(1, moments.shape[1] * activation[0, 0].size))
    found = [
        np.einsum("shv,vs...->sh...", moments[begin : begin + together], activation[:, begin : begin + together]).max(axis=1)
        for begin in range(0, len(moments), together)
    ]
    return found[0] if len(found) == 1 else np.concatenate(found)
