"""The event simulation of a layout's pipeline: what the closed form says of unequal stages, checked and corrected."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from meshwright.estimate.evaluate import composition_of, split_of
from meshwright.estimate.split import treated_kinds
from meshwright.perf.schedules import SCHEDULES, Pipeline, makespans_of, microbatch_group, simulate
from meshwright.perf.schedules.interleaved import order_interleaved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.estimate.evaluate import Evaluation
    from meshwright.perf.schedules import Order, Timeline

ROUNDS = 2
"""Rounds of micro-batches after which a pipeline of one chunk a stage repeats itself, of several one more; further ones add what
the last round adds."""


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
    """The simulated pipeline of a layout, or of its first so many micro-batches, in the groups of them all.

    Units:   s.
    Source:  ``perf.schedules.simulate``.
    """
    forward, backward, weight = chunk_seconds(case, layout, evaluation)
    order = _order(evaluation.settings.schedule, layout, num_microbatches or layout.num_microbatches)
    hop = float(evaluation.costs.hop_s) if hop_s is None else hop_s
    return simulate(order, forward_s=forward, backward_input_s=backward, backward_weight_s=weight, hop_s=hop)


def _order(schedule: str, layout: Layout, num_microbatches: int) -> Order:
    part = schedule == "interleaved" and num_microbatches < layout.num_microbatches
    group = _round(schedule, layout) if part else None
    return _spelled(schedule, layout.pipeline_parallel, num_microbatches, layout.virtual_stages, group)


@lru_cache(maxsize=32)
def _spelled(schedule: str, stages: int, num_microbatches: int, chunks: int, group: int | None) -> Order:
    if group is not None:
        return order_interleaved(stages, num_microbatches, num_chunks=chunks, group=group)
    return SCHEDULES[schedule].order(stages, num_microbatches, num_chunks=chunks)


def _round(schedule: str, layout: Layout) -> int:
    """Micro-batches after which an order repeats itself."""
    stages = layout.pipeline_parallel
    return int(microbatch_group(stages, layout.num_microbatches)) if schedule == "interleaved" else stages


def simulated_bubble_s(case: Case, layout: Layout, evaluation: Evaluation) -> float | None:
    """Idle seconds of the busiest stage by simulation, without transfers, as ``pipeline_time`` counts them.

        makespan(M') + (M - M') max((makespan(M' + g) - makespan(M')) / g, W) - M W

    None where all stages are alike, or there is one: the closed form says it.

    Symbols: M micro-batches; M' those simulated, whole rounds of g and what is left over; W work of the busiest stage per
             micro-batch. With one chunk the busiest stage never waits between rounds; chunks that are not alike wait for each other
             in every round.
    Units:   s.
    Holds:   M' covers filling, draining and two rounds of the steady state. Not below the whole simulation.
    Source:  ``perf.schedules.makespans``.
    """
    return simulated_bubbles_s(case, [(layout, evaluation)])[0]


def simulated_bubbles_s(case: Case, asked: Sequence[tuple[Layout, Evaluation]]) -> list[float | None]:
    """The simulated bubbles of several layouts, whose pipelines run side by side.

    Units:   s.
    Source:  ``simulated_bubble_s``.
    """
    unlike = [number for number, (layout, _) in enumerate(asked) if _unlike(case, layout)]
    pipelines: list[Pipeline] = []
    for number in unlike:
        pipelines += _pipelines(case, *asked[number])
    spans = iter([float(each[0]) for each in makespans_of(pipelines)])
    found: list[float | None] = [None] * len(asked)
    for number in unlike:
        layout, evaluation = asked[number]
        m, group, few = layout.num_microbatches, *_rounds(layout, evaluation)
        work = float(np.max(evaluation.stages.forward_s + evaluation.stages.backward_s))
        whole, slot = next(spans), work
        if _continued(layout, few):
            slot = max(work, (next(spans) - whole) / group)
        found[number] = max(0.0, whole + (m - few) * slot - m * work)
    return found


def _unlike(case: Case, layout: Layout) -> bool:
    """Whether stages differ."""
    return layout.pipeline_parallel > 1 and len(composition_of(case, layout, every_stage=False).stage) > 1


def _rounds(layout: Layout, evaluation: Evaluation) -> tuple[int, int]:
    """Micro-batches of a round, and those that are simulated."""
    m, group = layout.num_microbatches, _round(evaluation.settings.schedule, layout)
    return group, min(m, (ROUNDS + int(layout.virtual_stages > 1)) * group + m % group)


def _continued(layout: Layout, few: int) -> bool:
    """Whether rounds beyond those that are simulated add what a round adds, and not what the busiest stage works."""
    return few < layout.num_microbatches and layout.virtual_stages > 1


def _pipelines(case: Case, layout: Layout, evaluation: Evaluation) -> list[Pipeline]:
    """What is simulated of a layout: its first micro-batches, and where rounds matter one round more."""
    group, few = _rounds(layout, evaluation)
    forward, backward, weight = chunk_seconds(case, layout, evaluation)
    return [
        Pipeline(
            order=_order(evaluation.settings.schedule, layout, number), forward_s=forward, backward_input_s=backward,
            backward_weight_s=weight,
        )
        for number in (few, *((few + group,) if _continued(layout, few) else ()))
    ]
