"""The event simulation of a layout's pipeline: what the closed form says of unequal stages, checked and corrected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.estimate.evaluate import split_of
from meshwright.estimate.split import treated_kinds
from meshwright.perf.schedules import SCHEDULES, simulate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.estimate.evaluate import Evaluation
    from meshwright.perf.schedules import Timeline

ROUNDS = 2
"""Rounds of as many micro-batches as stages that are simulated; each further micro-batch adds a slot of the busiest stage."""


def chunk_seconds(case: Case, layout: Layout, evaluation: Evaluation) -> tuple[NDArray[np.float64], ...]:
    """Forward, input-gradient and weight-gradient seconds of every chunk, ``[stage, chunk]``.

    Embedding and output layer stand on the first and last chunk; what is recomputed counts in the input gradient.

    Units:   s.
    Holds:   chunks of a stage sum to ``estimate.stages.stage_costs``.
    Source:  ``estimate.stages.stage_costs``, chunk by chunk.
    """
    folded = layout.schedule == "dualpipev"
    chunks, stages = layout.virtual_stages, layout.pipeline_parallel
    inputs = evaluation.costs
    forward, backward, weight = (np.zeros((stages, chunks)) for _ in range(3))
    for treatment, counts in enumerate(treated_kinds(case.model, split_of(case, layout), layout.recompute, folded=folded)):
        if counts is None:
            continue
        for index, kind in enumerate(inputs.kinds):
            layers = counts[:, :, index].T
            forward += layers * float(kind.time.forward.total)
            backward += layers * float(kind.time.backward.total + kind.recompute[treatment].total)
            weight += layers * float(kind.time.weight_gradient_s)
    last = int(np.argmax(evaluation.composition.head))
    forward[0, 0] += float(inputs.embedding.forward.total)
    backward[0, 0] += float(inputs.embedding.backward.total)
    forward[last, chunks - 1] += float(inputs.head.forward.total)
    backward[last, chunks - 1] += float(inputs.head.backward.total)
    weight[last, chunks - 1] += float(inputs.head.weight_gradient_s)
    return forward, backward - weight, weight


def timeline(
    case: Case, layout: Layout, evaluation: Evaluation, *, num_microbatches: int | None = None, hop_s: float | None = None
) -> Timeline:
    """The simulated pipeline of a layout.

    Units:   s.
    Source:  ``perf.schedules.simulate``.
    """
    forward, backward, weight = chunk_seconds(case, layout, evaluation)
    order = SCHEDULES[evaluation.settings.schedule].order(
        layout.pipeline_parallel, num_microbatches or layout.num_microbatches, num_chunks=layout.virtual_stages
    )
    hop = float(evaluation.costs.hop_s) if hop_s is None else hop_s
    return simulate(order, forward_s=forward, backward_input_s=backward, backward_weight_s=weight, hop_s=hop)


def simulated_bubble_s(case: Case, layout: Layout, evaluation: Evaluation) -> float:
    """Idle seconds of the busiest stage by simulation, without transfers, as ``pipeline_time`` counts them.

        makespan(M') + (M - M') W - M W

    Symbols: M micro-batches; M' those simulated, a multiple of the stages; W work of the busiest stage per micro-batch.
    Units:   s.
    Holds:   M' covers filling, draining and at least one round of the steady state.
    Source:  ``perf.schedules.simulate``.
    """
    stages, m = layout.pipeline_parallel, layout.num_microbatches
    simulated = min(m, ROUNDS * stages + m % stages)
    result = timeline(case, layout, evaluation, num_microbatches=simulated, hop_s=0.0)
    work = float(np.max(evaluation.stages.forward_s + evaluation.stages.backward_s))
    return max(0.0, float(result.makespan_s) - simulated * work)
