"""A simulated pipeline with what each stage holds over time: what pictures and traces of it are made from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.api.views.balance import treated
from meshwright.perf.schedules import FORWARD, ORDERS, simulate
from meshwright.perf.schedules.graph import graph_of
from meshwright.search.balance.memory import chunk_activation
from meshwright.search.balance.times import chunk_times, short_microbatches
from meshwright.value import Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.api.views.balance import Units
    from meshwright.domain.balance import BalanceProblem, Grid, Placement
    from meshwright.perf.schedules import Timeline

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

MOST_OPERATIONS = 20_000
"""Of a longer pipeline only so many micro-batches are simulated as show all that it does."""


class PipelineView(Value, frozen=True, kw_only=True, eq=False):
    """One placement, one step."""

    name: str
    schedule: str
    microbatches: int
    """Of the step, sequences in pieces counted by pieces."""
    shown_microbatches: int
    """Of the timeline."""
    splits: int
    layers: Grid
    treated: dict[str, Grid]
    """Recomputed layers by treatment that occurs, ``[chunk][stage]``."""
    simulated_time: float
    slot_time: float
    timeline: Timeline
    awaits: Ints
    """For each operation the one on another stage whose result it takes, -1: none."""
    activation: Floats
    """What a chunk keeps for one micro-batch, ``[stage, chunk]``."""
    base: Floats
    """What each stage holds whatever is in flight: parameters, states, working sets."""
    peaks: Floats
    bounds: Floats
    units: Units

    @property
    def stages(self) -> int:
        """Pipeline stages."""
        return len(self.bounds)

    @property
    def chunks(self) -> int:
        """Chunks of a stage."""
        return len(self.layers)


def pipeline_view(
    name: str, problem: BalanceProblem, placement: Placement, units: Units, *, most_operations: int = MOST_OPERATIONS
) -> PipelineView:
    """Simulate a placement of a problem.

    A layout is viewed by the problem that ``search.balance.layouts.problem_of`` makes of it. The memory over time follows the
    timeline and peaks at the placement's own stage memory.
    """
    operations = 2 * problem.stages * problem.chunks * problem.microbatches
    shown = problem.microbatches if operations <= most_operations else short_microbatches(problem)
    order = ORDERS[problem.schedule](problem.stages, shown, num_chunks=problem.chunks, num_splits=problem.sequence_splits)
    times = chunk_times(problem, placement.counts)
    activation = chunk_activation(problem, placement.counts).T
    timeline = simulate(
        order, forward_s=times.forward, backward_input_s=times.backward_input, backward_weight_s=times.weight,
        hop_s=problem.hop_time, activation=activation, kept_for_weight=1.0,
    )
    ops = graph_of(order).operations
    peaks = np.array(placement.stage_memory)
    return PipelineView(
        name=name, schedule=problem.schedule, microbatches=problem.microbatches, shown_microbatches=shown,
        splits=problem.sequence_splits, layers=placement.layers,
        treated={word: grid for word, grid in treated(problem, placement).items() if any(map(any, grid))},
        simulated_time=placement.simulated_time, slot_time=placement.slot_time, timeline=timeline,
        awaits=np.where(ops.remote, ops.needs, -1), activation=activation, base=peaks - timeline.peak_held, peaks=peaks,
        bounds=np.array(problem.memory_bounds), units=units,
    )


def memory_steps(view: PipelineView, stage: int) -> tuple[Floats, Floats]:
    """When the memory of a stage changes, and to what; it stays until the next change.

    A forward takes its activation when it begins, what frees it keeps it until its end.
    """
    line = view.timeline
    mine = np.flatnonzero(line.stage == stage)
    gained = np.where(line.kind[mine] == FORWARD, view.activation[stage, line.chunk[mine]], 0.0)
    held = view.base[stage] + line.held[mine]
    after = np.append((held - gained)[1:], view.base[stage])
    return np.stack((line.start_s[mine], line.end_s[mine]), axis=1).reshape(-1), np.stack((held, after), axis=1).reshape(-1)
