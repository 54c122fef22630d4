"""Where the step goes, term by term, from the ideal time up: the causes of lost MFU sum to what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from meshwright.domain.estimate import Term
from meshwright.estimate.costs import vocabulary_rows
from meshwright.perf.flops import ATTENTION_PASSES, head_flops, index_work, layer_flops, weight_passes
from meshwright.perf.schedules import SCHEDULES

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.model import LayerKind
    from meshwright.estimate.evaluate import Evaluation
    from meshwright.perf.flops import Convention
    from meshwright.perf.seconds import Seconds

STALLS, STRAGGLERS = "stalled messages and memory pressure", "stragglers"
"""Terms that wait for others; with those of the host itself they are the host's part of the step."""
ATTENTION, RECURRENCES, BOTH = "attention", "recurrences", "attention and recurrences"
CORES = (ATTENTION, RECURRENCES, BOTH)
"""What mixes tokens in a layer beside its products, as terms name it."""
FORMULAS = {ATTENTION: "attention.flash_attention_s", RECURRENCES: "layer.mixer_core_s", BOTH: "layer.layer_pieces"}


def mixing(kind: LayerKind) -> str:
    """The name of what mixes tokens in a layer: attention, a recurrence, or both side by side (Falcon-H1)."""
    return ATTENTION if kind.mixer is None else RECURRENCES if kind.attention is None else BOTH


def breakdown(
    case: Case, evaluation: Evaluation, spent: Seconds, *, model_flops: float, peak_flops_per_s: float, devices: int,
    simulated: bool = False,
) -> tuple[Term, ...]:
    """Terms in seconds of one step on the busiest stage; they sum to the step. ``spent``: ``evaluation.busiest_seconds()``;
    ``simulated``: the bubble is the event simulation's.

        step = ideal + inefficiency of products and attention + other operators + recompute + communication + bubble + ...

    Symbols: ideal = model FLOPs / (devices peak), what 100 % MFU would take; "imbalance" is what the busiest stage computes more
             than the mean of all stages at its peak rate.
    Units:   s.
    Source:  the evaluation; nothing is computed twice.
    """
    composition, costs, m = evaluation.composition, evaluation.costs, float(evaluation.degrees.num_microbatches)
    busiest = int(evaluation.time.pipeline.busiest)
    ideal = model_flops / devices / peak_flops_per_s
    sums = dict.fromkeys(("products", "elementwise", "cast", "recompute", "products_ideal", "attention_ideal"), 0.0)
    cores = dict.fromkeys(sorted({mixing(kind) for kind in case.model.kinds if kind.mixes} or {ATTENTION}, key=CORES.index), 0.0)
    base_peak = case.cluster.device.peak_flops_per_s.get(case.training.precision.base_dtype, peak_flops_per_s)
    passes = weight_passes(weights_frozen=case.training.weights_frozen)
    batch, shape, vocabulary = case.batch, costs.shape, float(vocabulary_rows(case, costs.shape.tensor_parallel))
    attention = 0.0
    for treatment, counts in enumerate(composition.counts):
        if counts is None:
            continue
        for index, kind in enumerate(case.model.kinds):
            layers = float(counts[busiest, index]) * m
            if layers == 0.0:
                continue
            cost = costs.kinds[index]
            pieces = cost.time.pieces
            again = cost.recompute[treatment]
            sums["products"] += layers * float(pieces.products_forward + pieces.products_input + pieces.products_weight)
            core_s = layers * float(pieces.attention_forward + pieces.attention_backward)
            sums["elementwise"] += layers * float(pieces.elementwise_forward + pieces.elementwise_backward)
            sums["cast"] += layers * float(pieces.cast)
            sums["recompute"] += layers * float(again.compute)
            products, core = layer_flops(
                kind, case.model.hidden, shape, batch.sequence_tokens, convention=cast("Convention", case.flops_convention),
                mean_square=batch.mean_square_document_tokens,
            )
            more = index_work(
                kind, case.model.hidden, shape, batch.sequence_tokens, convention=cast("Convention", case.flops_convention),
                mean_square=batch.mean_square_document_tokens, weights_frozen=case.training.weights_frozen,
            )
            sums["products_ideal"] += layers * (passes * products + more[0]) / peak_flops_per_s
            core_ideal = layers * (ATTENTION_PASSES * core + more[1]) / peak_flops_per_s
            sums["attention_ideal"] += core_ideal
            attention += core_s
            if kind.mixes:
                cores[mixing(kind)] += core_s - core_ideal
    embedding, head = float(composition.embedding[busiest]), float(composition.head[busiest])
    head_ideal = head * m * passes * head_flops(case.model, shape, vocabulary) / peak_flops_per_s
    ends = m * (
        embedding * float(costs.embedding.forward.compute + costs.embedding.backward.compute)
        + head * float(costs.head.forward.compute + costs.head.backward.compute)
    )
    compute, time = float(spent.compute), evaluation.time
    own_ideal = sums["products_ideal"] + sums["attention_ideal"] + head_ideal
    gaps = compute - sums["products"] - attention - sums["elementwise"] - sums["cast"] - sums["recompute"] - ends
    imbalance = max(0.0, own_ideal - ideal)
    # The busiest stage may hold less than the mean of useful work (it has other work); what is missing is idle elsewhere.
    surplus = own_ideal - ideal - imbalance
    low = "" if base_peak == peak_flops_per_s else " (of the low-precision peak)"
    stall = "message_stall_s" if case.implementation.message_handshake else "memory_pressure"
    terms = (
        ("ideal", ideal, "perf.flops.training_flops"),
        ("imbalance of stages", imbalance, "estimate.split.compose"),
        (f"matrix products below peak{low}", sums["products"] - sums["products_ideal"], "perf.gemm.gemm_s"),
        *((f"{name} below peak{low}", lost, f"perf.{FORMULAS[name]}") for name, lost in cores.items()),
        ("embedding, output layer and loss", ends - head_ideal + surplus, "perf.ends.head_time"),
        ("elementwise operators", sums["elementwise"], "perf.elementwise.memory_bound_s"),
        ("casts of low precision", sums["cast"], "perf.pieces.layer_pieces"),
        ("kernel gaps and slowdown beside communication", gaps, "perf.layer.layer_time"),
        ("recompute", sums["recompute"], "perf.layer.recompute_s"),
        ("tensor parallelism", float(spent.tensor), "perf.exchange.tensor_s"),
        ("context parallelism", float(spent.context), "perf.exchange.context_s"),
        ("expert parallelism", float(spent.expert), "perf.expert_exchange.expert_s"),
        ("pipeline transfers", float(time.pipeline.pipeline_exposed_s), "perf.collectives.point_to_point_s"),
        ("pipeline bubble", float(time.pipeline.bubble_s), _bubble_formula(evaluation, simulated)),
        ("data parallelism", float(time.data_parallel_exposed_s), "perf.data_parallel.exposed_s"),
        ("optimizer", float(time.optimizer_s), "perf.states.optimizer_s"),
        ("kernel launches", float(spent.host), "perf.elementwise.launch_floor_s"),
        ("host", float(time.pipeline.host_s), "estimate.combine.step_time"),
        (STALLS, float(time.stall_s), f"perf.stalls.{stall}"),
        (STRAGGLERS, float(time.straggler_s), "estimate.combine.step_time"),
    )
    return tuple(Term(name=name, value=value, unit="s", formula=f"meshwright.{formula}") for name, value, formula in terms)


def _bubble_formula(evaluation: Evaluation, simulated: bool) -> str:
    """Who gave the bubble: the event simulation, or the closed form of the schedule."""
    if simulated:
        return "estimate.simulate.simulated_bubble_s"
    closed: object = SCHEDULES[evaluation.settings.schedule].bubble_s
    return f"{getattr(closed, '__module__')}.{getattr(closed, '__qualname__')}".removeprefix("meshwright.")  # noqa: B009
