"""What Megatron-LM refuses of context parallelism, pipelines, recomputation, sharding and overlap, in its own words."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, Selective
from meshwright.frameworks.megatron.layout_arguments import CONTEXT_TYPES, hybrid_inner
from meshwright.frameworks.megatron.pipeline import split_of
from meshwright.frameworks.megatron.precision_arguments import MOMENTS
from meshwright.frameworks.megatron.shape_limits import SHAPES
from meshwright.frameworks.rules import attention_of, rule, values_if

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Limit, Values

MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")
"""What selective recomputation can name."""
STRATEGY: list[Limit] = []
"""The rules of this module."""
_rule = partial(rule, STRATEGY)


# Context parallelism: Transformer Engine decides in the first step.


@_rule("megatron.context-kind", "{kind} context parallelism is unknown to Megatron-LM", noticed="never")
def _context_kind(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.context_kind not in CONTEXT_TYPES, kind=layout.context_kind)


@_rule(
    "megatron.context-heads",
    "Context parallelism over heads needs query and key-value heads per tensor rank ({heads}, {groups}) that {ranks} divides",
    noticed="step",
)
def _context_heads(case: Case, layout: Layout) -> Values | None:
    attention, tp, kind = attention_of(case), layout.tensor_parallel, layout.context_kind
    if layout.context_parallel == 1 or kind not in {"ulysses", "hybrid"}:
        return None
    groups = attention.num_heads if attention.latent else attention.num_key_value_heads
    ranks = layout.context_parallel if kind == "ulysses" else hybrid_inner(case, layout)
    heads, groups = attention.num_heads // tp, max(1, groups // tp)
    return values_if(heads % ranks or groups % ranks, heads=heads, groups=groups, ranks=ranks)


@_rule(
    "megatron.context-hybrid",
    "hybrid context parallelism needs an inner group of 2 ranks or more that is not all {cp}",
    noticed="step",
)
def _context_hybrid(case: Case, layout: Layout) -> Values | None:
    cp = layout.context_parallel
    hybrid = cp > 1 and layout.context_kind == "hybrid"
    return values_if(hybrid and hybrid_inner(case, layout) in {1, cp}, cp=cp)


@_rule("megatron.context-window", "Context parallelism with windows or sinks needs context={kinds}, not {kind}", noticed="step")
def _context_window(case: Case, layout: Layout) -> Values | None:
    windows = any(kind.attention.window_tokens for kind in case.model.kinds)
    sinks = attention_of(case).sinks
    able = ("ulysses",) if sinks else ("ulysses", "all-gather")
    wrong = layout.context_parallel > 1 and (windows or sinks) and layout.context_kind not in able
    return values_if(wrong, kinds=" or ".join(able), kind=layout.context_kind)


# Pipeline.


@_rule(
    "megatron.stage-layers",
    "Number of decoder layers {placed} must match num_layers {layers}, on {chunks} x {stages} places",
)
def _stage_layers(case: Case, layout: Layout) -> Values | None:
    split = split_of(case, layout)
    shape = (len(split), {len(chunk) for chunk in split})
    placed = sum(map(sum, split))
    return values_if(
        placed != case.model.num_layers or shape != (layout.virtual_stages, {layout.pipeline_parallel}),
        placed=placed, layers=case.model.num_layers, chunks=layout.virtual_stages, stages=layout.pipeline_parallel,
    )


@_rule("megatron.interleaved", "When interleaved schedule is used, pipeline-model-parallel size should be greater than 1")
def _interleaved(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.virtual_stages > 1 and layout.pipeline_parallel == 1)


@_rule(
    "megatron.interleaved-p2p",
    "When interleaved schedule is used and p2p communication overlap is disabled, pipeline-model-parallel size "
    "should be greater than 2",
)
def _interleaved_p2p(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.virtual_stages > 1 and layout.pipeline_parallel == 2 and not layout.overlap.point_to_point)


@_rule(
    "megatron.interleaved-batch",
    "The remainder of M (the total micro-batches) divided by N (number of contiguous micro-batches in a virtual pipeline stage) "
    "should be 0, or larger than or equal to the pipeline-parallel size, but it is {rest} (M={microbatches}, N={stages}).",
    noticed="step",
)
def _interleaved_batch(case: Case, layout: Layout) -> Values | None:
    rest = layout.num_microbatches % layout.pipeline_parallel
    return values_if(
        layout.virtual_stages > 1 and rest, rest=rest, microbatches=layout.num_microbatches,
        stages=layout.pipeline_parallel,
    )


# Recomputation.


@_rule(
    "megatron.recompute",
    "Megatron-LM recomputes the same number of layers on every stage, not {layers}: use recompute=full:{most}",
    noticed="never",
)
def _recompute_lists(case: Case, layout: Layout) -> Values | None:
    layers = layout.recompute.layers if isinstance(layout.recompute, Full) else None
    if not isinstance(layers, tuple) or layers == split_of(case, layout):
        return None
    counts = {count for chunk in layers for count in chunk}
    return values_if(len(counts) != 1, layers=[list(chunk) for chunk in layers], most=max(counts, default=0))


@_rule("megatron.recompute-modules", "Invalid choices for recompute_modules: {wrong}. Allowed modules are: {known}")
def _recompute_modules(case: Case, layout: Layout) -> Values | None:
    named = layout.recompute.modules if isinstance(layout.recompute, Selective) else MODULES
    wrong = [module for module in named if module not in MODULES] or ([] if named else ["(none)"])
    return values_if(wrong, wrong=", ".join(wrong), known=", ".join(MODULES))


@_rule("megatron.recompute-mla", "mla_up_proj in recompute_modules is only supported with multi_latent_attention.")
def _recompute_mla(case: Case, layout: Layout) -> Values | None:
    return values_if("mla_up_proj" in _modules(layout) and not attention_of(case).latent)


@_rule("megatron.recompute-experts", "moe_act in recompute_modules is only supported with moe_grouped_gemm.")
def _recompute_experts(case: Case, layout: Layout) -> Values | None:
    return values_if("moe_act" in _modules(layout) and not case.model.is_moe)


@_rule("megatron.recompute-delayed", "Delayed scaling does not support moe_act and layernorm recompute for fp8.")
def _recompute_delayed(case: Case, layout: Layout) -> Values | None:
    return values_if(case.training.precision.name == "fp8-delayed" and {"moe_act", "layernorm"} & set(_modules(layout)))


def _modules(layout: Layout) -> tuple[str, ...]:
    """Modules of selective recomputation; none for any other kind."""
    return layout.recompute.modules if isinstance(layout.recompute, Selective) else ()


# Sharding, overlap, optimizer.


@_rule(
    "megatron.fsdp-pipeline",
    "[Megatron-FSDP] Data Parallel ranks in the mesh do not match the ranks in the DP group (pipeline "
    "parallelism has no place in its mesh)",
    noticed="start",
)
def _fsdp_pipeline(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.zero_stage >= 2 and layout.pipeline_parallel > 1)


@_rule(
    "megatron.expert-shards",
    "Expert data parallel size should be divisible by partial DistOpt shard factor ({replicas} % {instances})",
    noticed="start",
)
def _expert_shards(case: Case, layout: Layout) -> Values | None:
    ranks = layout.data_parallel * layout.context_parallel
    inner = layout.gradient_shards if layout.zero_stage >= 2 else layout.optimizer_shards
    instances, replicas = ranks // inner, layout.expert_data_parallel
    sharded = case.model.is_moe and layout.zero_stage > 0
    return values_if(sharded and replicas % instances, replicas=replicas, instances=instances)


@_rule("megatron.parameter-overlap", "Must use --overlap-param-gather with --overlap-grad-reduce")
def _parameter_overlap(case: Case, layout: Layout) -> Values | None:
    several = layout.zero_stage > 0 and layout.data_parallel * layout.context_parallel > 1
    return values_if(several and layout.overlap.parameter_gather and not layout.overlap.gradient_reduce)


@_rule(
    "megatron.tensor-overlap",
    "Tensor parallel communication/GEMM overlap can happen only when sequence parallelism is enabled",
)
def _tensor_overlap(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.overlap.tensor and layout.tensor_parallel > 1 and not layout.sequence_parallel)


@_rule("megatron.expert-overlap-recompute", "disable full recomputation when enabling overlap_moe_expert_parallel_comm")
def _expert_overlap_recompute(case: Case, layout: Layout) -> Values | None:
    whole = isinstance(layout.recompute, Full) and layout.recompute.layers != 0
    return values_if(_expert_overlap(layout) and whole)


@_rule(
    "megatron.expert-overlap-moe",
    "disable moe in recompute_modules when enabling overlap_moe_expert_parallel_comm",
    noticed="never",  # checked from core 0.17 on; 0.16 lets it pass
)
def _expert_overlap_moe(case: Case, layout: Layout) -> Values | None:
    return values_if(_expert_overlap(layout) and "moe" in _modules(layout))


@_rule(
    "megatron.expert-overlap-pipeline",
    "If enabling EP A2A overlap, virtual_pipeline_model_parallel_size must be specified when pipeline_model_parallel_size > 1",
)
def _expert_overlap_pipeline(case: Case, layout: Layout) -> Values | None:
    return values_if(_expert_overlap(layout) and layout.pipeline_parallel > 1 and layout.virtual_stages == 1)


@_rule(
    "megatron.expert-overlap-mtp",
    "MTP layernum only supports 1 when enabling overlap_moe_expert_parallel_comm.",
)
def _expert_overlap_mtp(case: Case, layout: Layout) -> Values | None:
    return values_if(_expert_overlap(layout) and case.model.num_mtp_layers > 1)


def _expert_overlap(layout: Layout) -> bool:
    """Whether the expert all-to-all runs beside compute."""
    return layout.overlap.expert and layout.expert_parallel > 1


@_rule("megatron.precision-aware", "--use-precision-aware-optimizer only supported with distributed optimizer", noticed="start")
def _precision_aware(case: Case, layout: Layout) -> Values | None:
    training = case.training
    needed = "optimizer" in layout.offload or training.precision.master_bytes == 2
    return values_if((needed or MOMENTS.get(training.optimizer.name)) and layout.zero_stage == 0)


@_rule("megatron.offload-adam", "--use-precision-aware-optimizer only supported with adam", noticed="start")
def _offload_adam(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.offload and case.training.optimizer.name not in MOMENTS)


@_rule("megatron.fsdp-optimizer", "Megatron-FSDP does not support the {optimizer} optimizer yet.")
def _fsdp_optimizer(case: Case, layout: Layout) -> Values | None:
    name = case.training.optimizer.name
    return values_if(layout.zero_stage >= 2 and name not in {*MOMENTS, "sgd"}, optimizer=name)


LIMITS: tuple[Limit, ...] = (*SHAPES, *STRATEGY)
"""Every rule, in the order in which they are reported."""
