"""An estimate of one layout: the contract's figures, each from the evaluation."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, cast

import numpy as np
from msgspec import structs

from meshwright.domain import estimate as values
from meshwright.domain.layout import Full, NoRecompute, Selective
from meshwright.estimate.breakdown import breakdown
from meshwright.estimate.certainty import LEVEL, around, fitting, grades, interval, memory_curve, regime
from meshwright.estimate.chance import stall_of
from meshwright.estimate.costs import vocabulary_rows
from meshwright.estimate.evaluate import Evaluation, evaluate, split_of
from meshwright.estimate.host_memory import host_memory
from meshwright.estimate.naming import name_of
from meshwright.estimate.simulate import simulated_bubble_s
from meshwright.estimate.split import chunk_kinds
from meshwright.perf.arrays import Array, spread
from meshwright.perf.flops import PADDED, Convention, SequenceFlops, layer_flops, sequence_flops, training_flops
from meshwright.perf.operators import layer_products, work_shape
from meshwright.perf.pieces import ATTENTION_CORE
from meshwright.perf.schedules import even_bubble_ratio

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.domain.model import LayerKind
    from meshwright.domain.uncertainty import FitCurve
    from meshwright.perf.seconds import Seconds


def sequence_work(case: Case, convention: str | None = None) -> SequenceFlops:
    """Forward FLOPs of one sequence under a convention (the case's own where none is given)."""
    chosen = cast("Convention", convention or case.flops_convention)
    padded = float(vocabulary_rows(case, np.asarray(1.0))) if chosen == PADDED else None
    return sequence_flops(
        case.model, case.batch.sequence_tokens, convention=chosen, mean_square=case.batch.mean_square_document_tokens,
        vocabulary=padded,
    )


def model_flops(case: Case, convention: str | None = None) -> float:
    """Model FLOPs of one step, without recompute.

        B 3 (products + attention + head);   2 instead of 3 for the products of frozen weights

    Units:   FLOP per step.
    Source:  ``perf.flops``.
    """
    forward = sequence_work(case, convention)
    return case.batch.global_batch_sequences * training_flops(forward, weights_frozen=case.training.weights_frozen)


def recompute_flops(case: Case, evaluation: Evaluation) -> float:
    """FLOPs of one step that are run a second time, by the case's convention.

        B (sum over layers in full of their forward + sum over layers in part of their modules' products and attention core)

    Units:   FLOP per step.
    Source:  Korthikanti et al. 2022, appendix A; elementwise modules have no FLOPs.
    """
    total = 0.0
    for treatment, counts in zip(evaluation.settings.treatments, evaluation.composition.counts, strict=True):
        if counts is None or isinstance(treatment, NoRecompute):
            continue
        for index, kind in enumerate(case.model.kinds):
            again = _again_flops(
                kind, case.model.hidden, case.batch.sequence_tokens, cast("Convention", case.flops_convention),
                case.batch.mean_square_document_tokens, treatment,
            )
            total += float(counts[:, index].sum()) * again
    return case.batch.global_batch_sequences * total


@lru_cache(maxsize=256)
def _again_flops(
    kind: LayerKind, hidden: int, sequence: int, convention: Convention, mean_square: float | None, treatment: Selective | Full
) -> float:
    """FLOPs of one layer and sequence that a treatment runs a second time."""
    shape = work_shape(microbatch_sequences=1, sequence_tokens=sequence)
    products, core = layer_flops(kind, hidden, shape, sequence, convention=convention, mean_square=mean_square)
    if isinstance(treatment, Selective):
        again = (product for product in layer_products(kind, hidden, shape) if product.module in treatment.modules)
        products = sum(float(product.flops) for product in again)
        core = core if ATTENTION_CORE in treatment.modules else 0.0
    return products + core


def estimate(
    case: Case, layout: Layout, evaluation: Evaluation | None = None, told: Evaluation | None = None
) -> values.Estimate:
    """Predict one layout.

    ``evaluation``: that of ``evaluate``, where it is known already; ``told``: the same with the simulated bubble.

    Units:   bytes, seconds, ratios, as the names say.
    Errors:  none for legal layouts; legality is the search's and the framework's business.
    Holds:   where stages differ, the bubble is that of the event simulation, not of the closed form.
    Source:  ``estimate.evaluate``, ``estimate.simulate``.
    """
    closed = evaluation or evaluate(case, layout)
    evaluation = told or simulated(case, layout, closed)
    time, memory, spent = evaluation.time, evaluation.memory, evaluation.busiest_seconds()
    step_s = float(time.step_s)
    devices = layout.world
    work = model_flops(case)
    hardware = work + recompute_flops(case, evaluation)
    peak_dtype = _peak_dtype(case)
    peak = case.cluster.device.peak_flops_per_s[peak_dtype]
    reserved = memory.reserved_bytes
    fullest = int(np.argmax(reserved))
    placed = chunk_kinds(case.model, split_of(case, layout), folded=layout.schedule == "dualpipev")
    stages = _stages(evaluation, placed.sum(axis=2))
    curve = memory_curve(case)
    upper = upper_bytes(case, reserved, memory.activations + memory.temporary, curve)
    fits = fitting(case, float(reserved[fullest]), curve)
    tokens = case.batch.tokens
    mfu = work / step_s / devices / peak
    allocated = float(memory.allocated_bytes[fullest])
    known, host = case.calibration.uncertainty, host_memory(case, evaluation)
    ends = interval(
        known, regime(case, layout, mfu_ratio=mfu, reserved_bytes=float(reserved[fullest])), step_s, allocated,
        float(reserved[fullest]), curve,
    )
    return values.Estimate(
        label=name_of(case, layout),
        layout=layout,
        experts=case.model.is_moe,
        fits=fits.fits,
        calibrated=case.calibration.fitted,
        memory_fit_probability=fits.memory_probability,
        fit_probability=fits.probability,
        step_s=step_s,
        tokens_per_s=tokens / step_s,
        tokens_per_s_per_device=tokens / step_s / devices,
        samples_per_s=case.batch.samples / step_s,
        model_flops_per_s_per_device=work / step_s / devices,
        hardware_flops_per_s_per_device=hardware / step_s / devices,
        mfu_ratio=mfu,
        hfu_ratio=hardware / step_s / devices / peak,
        bubble_ratio=float(time.pipeline.bubble_s) / step_s,
        bubble_formula_ratio=_formula(evaluation),
        linearity_ratio=None,
        linearity_baseline_devices=None,
        memory_peak_bytes=allocated,
        memory_reserved_bytes=float(reserved[fullest]),
        memory_upper_bytes=upper,
        memory_capacity_bytes=case.capacity_bytes,
        host_memory_per_node_bytes=host.total_bytes,
        host_memory_bytes=host,
        peak_stage=fullest,
        stages=stages,
        time=time_split(evaluation, spent),
        calibration=case.calibration.label,
        flops_convention=case.flops_convention,
        peak_flops_per_s=peak,
        peak_dtype=peak_dtype,
        terms=breakdown(
            case, evaluation, spent, model_flops=work, peak_flops_per_s=peak, devices=devices, simulated=evaluation is not closed,
        ),
        grades=grades(known),
        interval=ends,
        stall=stall_of(case, layout, step_s, float(time.stall_s), ends),
        chance_s=float(time.chance_s),
    )


def upper_bytes(case: Case, reserved_bytes: Array, varying_bytes: Array, curve: FitCurve | None) -> float:
    """The upper end of the interval of what the fullest stage reserves; without a calibration, with a margin for what varies.

        max over stages reserved e^h;   without a calibration max over stages (reserved + mu varying)

    Symbols: h half-width of the interval of 0.9 (``memory_curve``); mu ``upper_margin_ratio``, of activations and working set.
    Shapes:  ``[stage]``.
    Units:   bytes.
    Source:  the residuals of memory in the evidence, ``catalog/data/constants.yaml``.
    """
    if curve is not None:
        return around(float(np.max(reserved_bytes)), curve.half_width(LEVEL))[1]
    margin = case.calibration.constants.upper_margin_ratio
    return float(np.max(reserved_bytes + margin * varying_bytes))


def _formula(evaluation: Evaluation) -> float:
    """The bubble by the formula of the schedule, all stages taken as their mean."""
    degrees, stages = evaluation.degrees, evaluation.stages
    forward, backward, weight = (float(np.mean(each)) for each in (stages.forward_s, stages.backward_s, stages.weight_s))
    counts = (degrees.pipeline_parallel, degrees.num_microbatches, degrees.virtual_stages)
    stages_, microbatches, chunks = (np.asarray(each).astype(np.int64) for each in counts)
    return float(even_bubble_ratio(
        evaluation.settings.schedule, num_stages=stages_, num_microbatches=microbatches, num_chunks=chunks, forward_s=forward,
        backward_input_s=backward - weight, backward_weight_s=weight,
    ))


def simulated(case: Case, layout: Layout, evaluation: Evaluation) -> Evaluation:
    """The evaluation with the simulated bubble where stages are unequal."""
    return with_bubble(evaluation, simulated_bubble_s(case, layout, evaluation))


def with_bubble(evaluation: Evaluation, bubble_s: float | None) -> Evaluation:
    """The evaluation with another bubble, if there is one; the step changes with it, stragglers in proportion."""
    if bubble_s is None:
        return evaluation
    time, bubble = evaluation.time, np.asarray(bubble_s)
    before = time.step_s - time.stall_s - time.straggler_s
    after = before - time.pipeline.bubble_s + bubble
    straggler = time.straggler_s * after / before
    pipeline = structs.replace(time.pipeline, bubble_s=bubble)
    step_s = after + straggler + time.stall_s
    return structs.replace(evaluation, time=structs.replace(time, step_s=step_s, straggler_s=straggler, pipeline=pipeline))


def _peak_dtype(case: Case) -> str:
    wanted = case.training.precision.gemm_dtype
    return wanted if case.cluster.device.supports(wanted) else case.training.precision.base_dtype


def _stages(evaluation: Evaluation, chunk_layers: Array) -> tuple[values.Stage, ...]:
    memory, composition = evaluation.memory, evaluation.composition
    rows = len(composition.stage)

    def column(array: Array) -> list[float]:
        return cast("list[float]", spread(array, (rows,)).tolist())

    states = (memory.parameters, memory.gradients, memory.optimizer)
    parts = zip(*map(column, (*states, memory.activations, memory.temporary, memory.overhead)), strict=True)
    kept = [
        values.StageMemory(
            parameters=parameters, gradients=gradients, optimizer=optimizer, activations=activations, temporary=temporary,
            overhead=overhead,
        )
        for parameters, gradients, optimizer, activations, temporary, overhead in parts
    ]
    parameters = column(evaluation.parameters.dense + evaluation.parameters.experts)
    layers, forward_s, backward_s = map(
        column, (composition.layers, evaluation.stages.forward_s, evaluation.stages.backward_s)
    )
    return tuple(
        values.Stage(
            stage=stage, layers=round(layers[row]), parameters=round(parameters[row]), memory=kept[row],
            forward_s=forward_s[row], backward_s=backward_s[row], chunk_layers=tuple(map(round, chunk_layers[:, stage].tolist())),
        )
        for row, stage in enumerate(map(int, composition.stage.tolist()))
    )


def time_split(evaluation: Evaluation, spent: Seconds) -> values.TimeSplit:
    """Exposed seconds on the busiest stage by cause; stragglers, stalls and launch floors are host time.

    Units:   s; the parts sum to ``step_s``.
    Source:  ``estimate.combine.step_time``.
    """
    time = evaluation.time
    return values.TimeSplit(
        compute_s=float(spent.compute),
        tensor_parallel_s=float(spent.tensor),
        context_parallel_s=float(spent.context),
        expert_parallel_s=float(spent.expert),
        pipeline_exposed_s=float(time.pipeline.pipeline_exposed_s),
        bubble_s=float(time.pipeline.bubble_s),
        data_parallel_exposed_s=float(time.data_parallel_exposed_s),
        optimizer_s=float(time.optimizer_s),
        host_s=float(spent.host) + float(time.pipeline.host_s) + float(time.stall_s) + float(time.straggler_s),
    )
