"""Small placed pipelines for pictures and traces."""

from __future__ import annotations

import numpy as np

from meshwright.api.views.balance import FILE_UNITS
from meshwright.domain.balance import BalanceProblem, Body, End, Placement
from meshwright.report.pipeline_view import MOST_OPERATIONS, pipeline_view
from meshwright.search.balance.memory import stage_memory
from meshwright.search.balance.times import chunk_times, simulated_times, slot_times


def problem_of(stages=4, chunks=2, microbatches=8, schedule="interleaved", splits=1, each=2, bound=90_000.0):
    """A model of one body; the first third of the stages recomputes one layer of each chunk."""
    return BalanceProblem(
        stages=stages, chunks=chunks, microbatches=microbatches, schedule=schedule, sequence_splits=splits,
        treatments=("none", "full"),
        bodies=(Body(layers=each * stages * chunks, forward_time=180.0, backward_times=(360.0, 540.0),
                     weight_time=150.0 if schedule in ("zb1p", "dualpipev") else 0.0, static_memory=1583.0,
                     activation_memory=(826.0, 32.0)),),
        first=End(forward_time=30.0, backward_time=60.0, static_memory=11000.0),
        last=End(forward_time=90.0, backward_time=180.0, static_memory=2473.0, activation_memory=40.0),
        memory_bounds=(bound,) * stages, hop_time=5.0,
    )


def placed(problem):
    """Layers shared out evenly."""
    each = problem.layers // (problem.stages * problem.chunks)
    counts = np.zeros((1, 2, problem.chunks, problem.stages), dtype=np.int64)
    counts[0, 1, :, : problem.stages // 3] = 1
    counts[0, 0] = each - counts[0, 1]
    times = chunk_times(problem, counts)
    return Placement(
        counts=counts, slot_time=float(slot_times(times)), simulated_time=float(simulated_times(problem, times)),
        stage_memory=tuple(stage_memory(problem, counts).tolist()),
    )


def view_of(problem=None, *, name="a pipeline", units=FILE_UNITS, most_operations=MOST_OPERATIONS, **kwargs):
    """A problem, evenly placed, to be shown."""
    problem = problem or problem_of(**kwargs)
    return pipeline_view(name, problem, placed(problem), units, most_operations=most_operations)
