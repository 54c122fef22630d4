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


def held(problem: BalanceProblem) -> tuple[Floats, ...]:
    """For each stage the numbers of micro-batches that its chunks hold at once, ``[vector, chunk]``: the largest combinations.

    Source:  ``perf.schedules.held_vectors`` of the schedule's order; what is in flight does not grow after a few rounds, but in
             GPipe, which holds all.
    """
    m = problem.microbatches if problem.schedule == "gpipe" else short_microbatches(problem)
    return _held(problem.schedule, problem.stages, m, problem.chunks, problem.sequence_splits)


@lru_cache(maxsize=64)
def _held(schedule: str, stages: int, microbatches: int, chunks: int, splits: int) -> tuple[Floats, ...]:
    order = order_of(Shape(schedule, stages, microbatches, chunks, splits))
    return tuple(np.asarray(each, dtype=np.float64) for each in held_vectors(order, until_weight=True))


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
        flying = np.stack([_fullest(vectors, activation[:, stage]) for stage, vectors in enumerate(held(problem))])
    return np.asarray(static + flying + fixed_memory(problem).reshape(-1, *(1,) * (static.ndim - 1)))


def excess(problem: BalanceProblem, memory: Floats) -> Floats:
    """How much the stages exceed their bounds, summed over stages; rounding is no excess.

    Shapes:  ``[stage(, placement)]`` -> ``[placement]`` or no dimension.
    """
    bounds = np.array(problem.memory_bounds, dtype=np.float64).reshape(-1, *(1,) * (memory.ndim - 1))
    over = memory - bounds
    return np.asarray(np.where(over > 1e-9 * np.maximum(np.abs(bounds), 1.0), over, 0.0).sum(axis=0))


def _fullest(vectors: Floats, activation: Floats) -> Floats:
    """The most that a stage's micro-batches in flight hold at any moment."""
    return np.asarray(np.einsum("hv,v...->h...", vectors, activation).max(axis=0))
