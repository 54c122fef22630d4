"""What MindSpeed-Core-MS r0.1.0 refuses of a case and a layout, in its own words."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from meshwright.frameworks.ascend.arithmetic import CROSSING, arithmetic, expressible, recompute_crossing, recompute_excess
from meshwright.frameworks.ascend.recompute_lists import recomputed_modules
from meshwright.frameworks.ascend.refusals import refusals
from meshwright.frameworks.ascend.stages import experts_everywhere, split_of
from meshwright.frameworks.mindspeed_core_ms.writing import COMM, SELECTS, select_module
from meshwright.frameworks.rules import rule, values_if

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Model
    from meshwright.frameworks.base import Limit, Values
    from meshwright.frameworks.rules import Words

WORDS: Words = {
    "heads": ("{heads} is not divisible by {tp}", "start"),
    "key-value-heads": ("{heads} is not divisible by {tp}", "start"),
    "width": ("{width} is not divisible by {tp}", "start"),
    "layers": ("The number of model layers is {layers}, but using pipeline parallel requires at least "
               "'pp({pp}) * vpp({vpp}) = {places}' layers for splitting", "start"),
    "stage-shape": ("The shape of num_layer_list {shape} must equal to pp_layout {layout}", "start"),
    "stage-sum": ("The number of model layers is {layers}, but the sum of num_layer_list  {split} is {total}.", "start"),
    "recompute-shape": ("The shape of recompute_num_list {shape} must equal to pp_layout {layout}", "start"),
    "interleaved": ("When using pipeline with interleaved, the 'num_microbatches' must be divisible by pipeline "
                    "world size.", "step"),
    "schedule": ("pipeline-model-parallel size should be greater than 1 with interleaved schedule", "start"),
}


def inexpressible(model: Model) -> Iterable[tuple[object, str]]:
    """What no key of MindSpeed-Core-MS says of a model, beside what nothing on Ascend trains."""
    attention = model.kinds[0].attention
    yield any(kind.attention.latent for kind in model.kinds), "latent attention"
    yield attention.query_key_norm != "none", "normalised queries and keys"
    yield attention.query_bias != attention.key_value_bias, "biases of queries only"
    yield model.is_moe and not experts_everywhere(model), "dense layers among experts"
    yield any(kind.experts and kind.experts.shared_width for kind in model.kinds), "shared experts"
    yield not model.is_moe and len({kind.feed_forward for kind in model.kinds}) > 1, "layers that differ"
    yield model.num_mtp_layers > 0, "multi-token prediction"
    yield model.rotary_ratio != 1.0, "rotary positions on a part of the head"


def shared_limits(prefix: str, title: str, features: Features) -> tuple[Limit, ...]:
    """Rules of r0.1.0 and of br_master."""
    found: list[Limit] = []
    add = partial(rule, found)

    @add(f"{prefix}.stage-empty", "All elements of num_layer_list should be larger than 0, but got {split}.", noticed="start")
    def _empty(case: Case, layout: Layout) -> Values | None:
        split = split_of(case, layout)
        return values_if(any(count < 1 for row in split for count in row), split=split)

    @add(f"{prefix}.expert-data", "data_parallel_size ({dp}) is not divisible by expert_model_parallel_size", noticed="start")
    def _expert_data(case: Case, layout: Layout) -> Values | None:
        return values_if(layout.data_parallel % layout.expert_parallel, dp=layout.data_parallel)

    @add(f"{prefix}.expert-context", "combination of expert model prallellism and context parallelism is not supported",
         noticed="start")
    def _expert_context(case: Case, layout: Layout) -> Values | None:
        return values_if(layout.expert_parallel > 1 and layout.context_parallel > 1)

    @add(f"{prefix}.zero-parallel",
         "Accuracy is not guaranteed when zero is used with parallel strategies other than data parallel and tensor parallel.",
         noticed="never")
    def _zero_parallel(case: Case, layout: Layout) -> Values | None:
        others = layout.sequence_parallel or layout.pipeline_parallel * layout.expert_parallel * layout.context_parallel > 1
        return values_if(layout.zero_stage >= 2 and others)

    @add(f"{prefix}.sequence-without-tensor", "sequence parallelism needs tensor parallelism: one rank has nothing to cut",
         noticed="never")
    def _sequence(case: Case, layout: Layout) -> Values | None:
        return values_if(layout.sequence_parallel and layout.tensor_parallel == 1)

    @add(f"{prefix}.select", "select_recompute recomputes {what} here, not {asked}", noticed="never")
    def _select(case: Case, layout: Layout) -> Values | None:
        modules = recomputed_modules(layout.recompute)
        gated = any(kind.feed_forward.gated for kind in case.model.kinds)
        able = {COMM, *(() if gated and case.implementation.flash_attention else (select_module(case),))}
        what = " or ".join(sorted(able - {COMM})) or "nothing (with flash attention, swiglu is a function and no Cell)"
        return values_if((modules & set(SELECTS)) - able, what=what, asked=", ".join(sorted(modules & set(SELECTS))))

    return (*refusals(prefix, title, features, inexpressible), *expressible(prefix, title, features), *found)


def limits(prefix: str, title: str, features: Features) -> tuple[Limit, ...]:
    """Every rule of r0.1.0 (and of MindFormers experimental, its ancestor)."""
    found: list[Limit] = []
    add = partial(rule, found)

    @add(f"{prefix}.recompute-negative", "recompute_num_array has element < 0", noticed="start")
    def _negative(case: Case, layout: Layout) -> Values | None:
        counts = getattr(layout.recompute, "layers", None)
        return values_if(isinstance(counts, tuple) and any(count < 0 for row in counts for count in row))

    @add(f"{prefix}.recompute-sum",
         "Recompute layers must less or equal num layers, but got {kind}_layers {part} + "
         "full_recompute_layers {full} > num_layers {layers}.", noticed="start")
    def _sum(case: Case, layout: Layout) -> Values | None:
        found = recompute_excess(case, layout)
        modules = recomputed_modules(layout.recompute)
        named = "select_recompute" if modules and COMM not in modules else "select_comm_recompute"
        return None if found is None else {**found, "kind": named}

    add(f"{prefix}.recompute-lists", CROSSING, noticed="never")(recompute_crossing)

    @add(f"{prefix}.zero3-pipeline", "DDP ZeRO3 is not compatible with pipeline parallel. Please check the configuration.",
         noticed="start")
    def _zero3(case: Case, layout: Layout) -> Values | None:
        return values_if(layout.zero_stage == 3 and layout.pipeline_parallel > 1)

    return (*shared_limits(prefix, title, features), *found, *arithmetic(prefix, WORDS))
