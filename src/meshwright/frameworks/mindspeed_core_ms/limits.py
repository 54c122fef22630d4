"""What MindSpeed-Core-MS r0.1.0 refuses of a case and a layout, in its own words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.ascend.arithmetic import CROSSING, arithmetic, expressible, recompute_crossing, recompute_excess
from meshwright.frameworks.ascend.recompute_lists import recomputed_modules
from meshwright.frameworks.ascend.refusals import refusals
from meshwright.frameworks.ascend.stages import experts_everywhere, split_of
from meshwright.frameworks.mindspeed_core_ms.writing import COMM, SELECTS, select_module
from meshwright.frameworks.rules import Rule, limits, values_if

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from meshwright.domain.features import Features
    from meshwright.domain.model import Model
    from meshwright.frameworks.base import Limit, Values
    from meshwright.frameworks.planned import Planned
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
    attention = model.attention
    yield any(each.latent for each in model.attentions), "latent attention"
    yield attention.query_key_norm != "none", "normalised queries and keys"
    yield attention.query_bias != attention.key_value_bias, "biases of queries only"
    yield model.is_moe and not experts_everywhere(model), "dense layers among experts"
    yield any(kind.experts and kind.experts.shared_width for kind in model.kinds), "shared experts"
    yield not model.is_moe and len({kind.feed_forward for kind in model.kinds}) > 1, "layers that differ"
    yield model.num_mtp_layers > 0, "multi-token prediction"
    yield model.rotary_ratio != 1.0, "rotary positions on a part of the head"


def _empty(plan: Planned) -> Values | None:
    split = split_of(plan.case, plan.layout)
    return values_if(any(count < 1 for row in split for count in row), split=split)


def _select(plan: Planned) -> Values | None:
    modules = recomputed_modules(plan.layout.recompute) & set(SELECTS)
    gated = any(kind.feed_forward.gated for kind in plan.case.model.kinds)
    able = set() if gated and plan.case.implementation.flash_attention else {select_module(plan.case)}
    what = " or ".join(able) or "nothing (with flash attention, swiglu is a function and no Cell)"
    return values_if(modules - able, what=what, asked=", ".join(sorted(modules)))


def _negative(plan: Planned) -> bool:
    counts = getattr(plan.layout.recompute, "layers", None)
    return isinstance(counts, tuple) and any(count < 0 for row in counts for count in row)


def _sum(plan: Planned) -> Values | None:
    found, modules = recompute_excess(plan), recomputed_modules(plan.layout.recompute)
    kind = "select_recompute" if modules and COMM not in modules else "select_comm_recompute"
    return None if found is None else {**found, "kind": kind}


_SHARED = (
    Rule("stage-empty", "All elements of num_layer_list should be larger than 0, but got {split}.", _empty, "start"),
    Rule("expert-data", "data_parallel_size ({dp}) is not divisible by expert_model_parallel_size", lambda plan: plan.dp % plan.ep,
         "start"),
    Rule("expert-context", "combination of expert model prallellism and context parallelism is not supported",
         lambda plan: plan.ep > 1 and plan.cp > 1, "start"),
    Rule("zero-parallel", "Accuracy is not guaranteed when zero is used with parallel strategies other than data parallel and "
         "tensor parallel.", lambda plan: plan.zero >= 2 and (plan.sp or plan.pp * plan.ep * plan.cp > 1), "never"),
    Rule("sequence-without-tensor", "sequence parallelism needs tensor parallelism: one rank has nothing to cut",
         lambda plan: plan.sp and plan.tp == 1, "never"),
    Rule("select", "select_recompute recomputes {what} here, not {asked}", _select, "never"),
)
"""Rules of r0.1.0 and of br_master."""
_OWN = (
    Rule("recompute-negative", "recompute_num_array has element < 0", _negative, "start"),
    Rule("recompute-sum", "Recompute layers must less or equal num layers, but got {kind}_layers {part} + full_recompute_layers "
         "{full} > num_layers {layers}.", _sum, "start"),
    Rule("recompute-lists", CROSSING, recompute_crossing, "never"),
    Rule("zero3-pipeline", "DDP ZeRO3 is not compatible with pipeline parallel. Please check the configuration.",
         lambda plan: plan.zero == 3 and plan.pp > 1, "start"),
)


def shared_limits(
    prefix: str, title: str, features: Features, own: tuple[Rule, ...], reduces: Collection[str] = (),
) -> tuple[Limit, ...]:
    """Every rule of a release: what r0.1.0 and br_master share, its own, and those of arithmetic."""
    knobs = expressible(prefix, title, features)
    return (
        *refusals(prefix, title, features, inexpressible, reduces), *knobs, *limits(prefix, (*_SHARED, *own)),
        *arithmetic(prefix, WORDS),
    )


def limits_of(prefix: str, title: str, features: Features) -> tuple[Limit, ...]:
    """Every rule of r0.1.0 (and of MindFormers experimental, its ancestor)."""
    return shared_limits(prefix, title, features, _OWN, reduces={"fp16"})
