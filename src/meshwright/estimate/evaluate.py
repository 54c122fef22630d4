"""One layout, evaluated: the same functions that the search calls on columns, called on numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from meshwright.domain.kernels import with_kernels
from meshwright.estimate.combine import StateCosts, StepTime, pipeline_time, state_costs, step_time
from meshwright.estimate.costs import Settings, WorkCosts, work_costs
from meshwright.estimate.degrees import Degrees, degrees_of
from meshwright.estimate.memory import (
    ActivationMemory,
    StageMemory,
    activation_memory,
    dynamic_bytes,
    piled_memory,
    stage_memory,
    static_bytes,
    step_bytes,
)
from meshwright.estimate.split import Composition, compose, default_split, treatments_of
from meshwright.estimate.stages import StageCosts, StageParameters, stage_costs, stage_inputs, stage_parameters, stage_seconds
from meshwright.perf.arrays import Array, spread
from meshwright.perf.expert_exchange import unwoven_microbatches
from meshwright.perf.seconds import Seconds, seconds

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.domain.memory_reading import MemoryReading
    from meshwright.estimate.known_work import KnownWork
    from meshwright.estimate.split import Split


class Evaluation(Struct, frozen=True, kw_only=True):
    """Everything that was computed about a layout, so that an explanation is a print-out."""

    settings: Settings
    degrees: Degrees
    composition: Composition
    costs: WorkCosts
    stages: StageCosts
    parameters: StageParameters
    state: StateCosts
    time: StepTime
    activation: ActivationMemory
    memory: StageMemory

    def of_busiest(self, values: Array) -> float:
        """A figure of one micro-batch, by row, as the busiest row has it in a whole step."""
        rows = spread(values, (len(self.composition.stage),))
        return float(self.degrees.num_microbatches) * float(rows[int(self.time.pipeline.busiest)])

    def busiest_seconds(self) -> Seconds:
        """Seconds of a step on the busiest row, cause by cause, what the pipeline and data parallelism add left out.

        Units:   s.
        Holds:   one layout.
        """
        ahead, behind, unwoven = stage_seconds(self.costs, self.composition)
        batches = self.degrees.num_microbatches
        share = float(unwoven_microbatches(self.degrees.pipeline_parallel, batches) / batches)
        whole = ahead.plus(behind).plus(unwoven.times(share))
        return seconds(**{name: self.of_busiest(getattr(whole, name)) for name in whole.__struct_fields__})


def settings_of(layout: Layout) -> Settings:
    """The knobs of a layout that are not degrees."""
    return Settings(
        schedule=schedule_of(layout), treatments=treatments_of(layout.recompute), overlap=layout.overlap,
        context_kind=layout.context_kind, offload="optimizer" in layout.offload, compiled=layout.compiled,
        attention=layout.attention,
    )


def schedule_of(layout: Layout) -> str:
    """The schedule that runs: 1F1B with several chunks is the interleaved one."""
    return "interleaved" if layout.schedule == "1f1b" and layout.virtual_stages > 1 else layout.schedule


def split_of(case: Case, layout: Layout) -> Split:
    """Layers per chunk and stage of a layout."""
    return layout.stage_layers or default_split(case, layout.pipeline_parallel, layout.virtual_stages)


def composition_of(case: Case, layout: Layout, *, every_stage: bool = True) -> Composition:
    """The composition of a layout, one row per stage."""
    return compose(
        case.model, split_of(case, layout), folded=layout.schedule == "dualpipev", recompute=layout.recompute,
        every_stage=every_stage,
    )


def evaluate(case: Case, layout: Layout, known: KnownWork | None = None) -> Evaluation:
    """Evaluate one layout, one row per stage; ``known`` as in ``evaluate_columns``.

    Units:   s and bytes.
    Source:  ``evaluate_columns``.
    """
    return evaluate_columns(case, settings_of(layout), degrees_of(layout), composition_of(case, layout), known)


def evaluate_columns(
    case: Case, settings: Settings, degrees: Degrees, composition: Composition, known: KnownWork | None = None
) -> Evaluation:
    """Evaluate layouts of the same settings: one, as numbers, or many, as columns of one length.

    ``known``: what micro-batches of the case cost, as far as that was asked before; it gets to know these.

    Shapes:  degrees broadcast; the composition has rows first.
    Units:   s and bytes.
    Source:  ``estimate.costs``, ``estimate.stages``, ``estimate.combine``.
    """
    case = with_kernels(case, compiled=settings.compiled, attention=settings.attention)
    costs = work_costs(case, settings, degrees) if known is None else known.costs(case, settings, degrees)
    inputs = stage_inputs(costs)
    stages = stage_costs(inputs, composition)
    parameters = stage_parameters(case, composition, degrees)
    state = state_costs(case, degrees, parameters, composition, offload=settings.offload)
    activation = activation_memory(settings, composition, stages, degrees, inputs.kinds)
    time = whole_step(case, settings, degrees, composition, stages, state, activation, hop_s=costs.hop_s)
    piled = piled_memory(case, costs.shape, composition, activation, degrees)
    return Evaluation(
        settings=settings, degrees=degrees, composition=composition, costs=costs, stages=stages, parameters=parameters,
        state=state, time=time, activation=activation, memory=stage_memory(case, activation, state, piled),
    )


def whole_step(
    case: Case, settings: Settings, degrees: Degrees, composition: Composition, stages: StageCosts, state: StateCosts,
    activation: ActivationMemory, *, hop_s: Array,
) -> StepTime:
    """The step of stages whose costs, states and activations are known.

    Shapes:  as those of ``evaluate_columns``.
    Units:   s.
    Source:  ``estimate.combine``.
    """
    pipeline = pipeline_time(case, settings, composition, stages, degrees, hop_s=hop_s)
    reserved = (static_bytes(case, state) + np.maximum(dynamic_bytes(case, activation), step_bytes(case, state))).max(axis=0)
    return step_time(case, settings, pipeline, state.times, degrees, reserved_bytes=reserved)


def shown_bytes(case: Case, evaluation: Evaluation, reading: MemoryReading) -> float:
    """What a run's own figure of memory would be.

    Units:   bytes.
    Source:  ``plan.memory.StageMemory.shown``.
    """
    return float(evaluation.memory.shown(reading, evaluation.composition, case.cluster.device.memory_bytes))
