"""Peaks of stages as linear equations of what one layer, the ends and every stage hold."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from meshwright.errors import did_you_mean, fault
from meshwright.perf.schedules import ORDERS, held_vectors
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.domain.dry_runs import DryRuns, StagePeak

    Floats = NDArray[np.float64]

ROUNDS = 3
"""Rounds of as many micro-batches as stages after which what a stage holds repeats itself."""
MAX_OPERATIONS = 200_000
"""Forwards of an order that is followed to see what stages hold."""
PARAMETERS, CONSTANT, HEAD, TAIL = "parameters", "constant", "head", "tail"


class Equations(Value, frozen=True, kw_only=True, eq=False):
    """``matrix @ unknowns = peaks``; one row for each measured stage."""

    matrix: Floats
    columns: tuple[str, ...]
    runs: DryRuns

    @property
    def scale(self) -> Floats:
        """Length of each column, 1 for empty ones: conditions are told free of units."""
        lengths = np.linalg.norm(self.matrix, axis=0)
        return np.where(lengths > 0, lengths, 1.0)

    @property
    def scaled(self) -> Floats:
        """The matrix with columns of length 1."""
        return np.asarray(self.matrix / self.scale)

    @property
    def rank(self) -> int:
        """How many unknowns the rows determine."""
        return int(np.linalg.matrix_rank(self.scaled, tol=1e-9))

    @property
    def condition(self) -> float:
        """Largest over smallest singular value of the scaled matrix; infinite where unknowns cannot be told apart."""
        return condition_of(self.matrix)


def condition_of(matrix: Floats) -> float:
    """Condition of a matrix whose columns are scaled to length 1; infinite without full column rank."""
    rows, columns = matrix.shape
    lengths = np.linalg.norm(matrix, axis=0)
    if rows < columns or not lengths.all():
        return float("inf")
    singular = np.linalg.svd(matrix / lengths, compute_uv=False)
    return float(singular[0] / singular[-1]) if singular[-1] > 1e-9 else float("inf")


def unknowns(treatments: Sequence[str], *, constant: bool) -> tuple[str, ...]:
    """Names of the columns: parameters, activations by treatment, the constant, head and tail."""
    return (PARAMETERS, *treatments, *((CONSTANT,) if constant else ()), HEAD, TAIL)


def equations(runs: DryRuns, *, constant: bool, chosen: Sequence[int] | None = None) -> Equations:
    """The equations of measured peaks.

        M_i = n_i par + sum_r (sum_v A_iv k_irv) act_r + (const | head | tail)

    Symbols: n layers of the stage, k those under treatment r in chunk v; A micro-batches in flight (``flights``). The
             constant stands on middle stages: head and tail are what the ends hold beside their layers, it included.
    ``chosen`` picks one of several fullest moments of each row's stage; the one with most in flight without it.
    Source:  docs/sources.md#dry-run-decomposition.
    """
    flying = [flights(runs)[peak.stage] for peak in runs.peaks]
    picks = chosen or [int(vectors.sum(axis=1).argmax()) for vectors in flying]
    rows = [
        row(runs, peak, vectors[pick], constant=constant) for peak, vectors, pick in zip(runs.peaks, flying, picks, strict=True)
    ]
    columns = unknowns(runs.treatments, constant=constant)
    return Equations(matrix=np.array(rows, dtype=np.float64).reshape(-1, len(columns)), columns=columns, runs=runs)


def row(runs: DryRuns, peak: StagePeak, flying: Floats, *, constant: bool) -> list[float]:
    """One equation."""
    first, last = peak.stage == 0, peak.stage == runs.stages - 1
    middle = not (first or last)
    activations = [float(flying @ np.array(counts)) for counts in peak.counts]
    return [float(peak.layers), *activations, *((float(middle),) if constant else ()), float(first), float(last)]


def flights(runs: DryRuns) -> list[Floats]:
    """By stage the micro-batches that its chunks hold at its fullest moments, ``[moment, chunk]``.

    P - i, at most m   (one chunk);   ``perf.schedules.held_vectors`` of the schedule's order   (several)
    """
    if runs.chunks == 1 and runs.schedule == "1f1b":
        limit = runs.stages if runs.microbatches is None else runs.microbatches
        return [np.array([[min(limit, runs.stages - stage)]], dtype=np.float64) for stage in range(runs.stages)]
    if runs.microbatches is None:
        raise fault("decompose.microbatches", "peaks of {chunks} chunks a stage ({schedule}) need the number of micro-batches",
                    path=runs.source, chunks=runs.chunks, schedule=runs.schedule)
    if runs.schedule not in ORDERS:
        raise fault("decompose.schedule", "{name} is no schedule{hint}; known: {known}", path=runs.source, name=runs.schedule,
                    hint=did_you_mean(runs.schedule, ORDERS), known=", ".join(ORDERS))
    m = runs.microbatches
    few = m if runs.chunks > 1 and m % runs.stages else min(m, ROUNDS * runs.stages + m % runs.stages)
    if few * runs.stages * runs.chunks > MAX_OPERATIONS:
        raise fault("decompose.long", "{stages} stages x {chunks} chunks x {microbatches} micro-batches are too many to follow",
                    path=runs.source, stages=runs.stages, chunks=runs.chunks, microbatches=m)
    try:
        found = _moments(runs.schedule, runs.stages, few, runs.chunks)
    except ValueError as error:
        raise fault("decompose.order", "{reason}", path=runs.source, reason=error) from None
    if found is None:
        raise fault("decompose.one_end", "{schedule} ends the model on its first stage: head and tail cannot be told apart",
                    path=runs.source, schedule=runs.schedule)
    return list(found)


@lru_cache(maxsize=64)
def _moments(schedule: str, stages: int, microbatches: int, chunks: int) -> tuple[Floats, ...] | None:
    """Fullest moments by stage; None where the model does not end on the last stage."""
    order = ORDERS[schedule](stages, microbatches, num_chunks=chunks)
    table = order.virtual_stage_table()
    if np.argwhere(table == table.max())[0][0] != stages - 1:
        return None
    return tuple(np.asarray(vectors, dtype=np.float64) for vectors in held_vectors(order))
