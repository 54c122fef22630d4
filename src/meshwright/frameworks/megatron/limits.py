"""What Megatron-LM refuses of context parallelism, pipelines, recomputation, sharding and overlap, in its own words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, NoRecompute, Selective
from meshwright.frameworks.megatron.hybrid_limits import HYBRIDS
from meshwright.frameworks.megatron.layout_arguments import CONTEXT_TYPES, hybrid_inner
from meshwright.frameworks.megatron.pipeline import split_of
from meshwright.frameworks.megatron.precision_arguments import MOMENTS, is_precision_aware
from meshwright.frameworks.megatron.shape_limits import SHAPES
from meshwright.frameworks.megatron.sparse import SPARSE
from meshwright.frameworks.rules import Rule, values_if

if TYPE_CHECKING:
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.planned import Planned

MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")
"""What selective recomputation can name."""


def _context_heads(plan: Planned) -> Values | None:
    if plan.cp == 1 or plan.kind not in {"ulysses", "hybrid"}:
        return None
    groups = plan.heads if plan.attention.latent else plan.groups
    ranks = plan.cp if plan.kind == "ulysses" else hybrid_inner(plan.case, plan.layout)
    heads, groups = plan.heads // plan.tp, max(1, groups // plan.tp)
    return values_if(heads % ranks or groups % ranks, heads=heads, groups=groups, ranks=ranks)


def _context_hybrid(plan: Planned) -> bool:
    return plan.cp > 1 and plan.kind == "hybrid" and hybrid_inner(plan.case, plan.layout) in {1, plan.cp}


def _context_window(plan: Planned) -> Values | None:
    windows = any(each.window_tokens for each in plan.case.model.attentions)
    able = ("ulysses",) if plan.attention.sinks else ("ulysses", "all-gather")
    wrong = plan.cp > 1 and (windows or plan.attention.sinks) and plan.kind not in able
    return values_if(wrong, kinds=" or ".join(able))


def _stage_layers(plan: Planned) -> Values | None:
    split = split_of(plan.case, plan.layout)
    shape, placed = (len(split), {len(chunk) for chunk in split}), sum(map(sum, split))
    return values_if(placed != plan.layers or shape != (plan.vp, {plan.pp}), placed=placed, chunks=plan.vp, stages=plan.pp)


def _interleaved_batch(plan: Planned) -> Values | None:
    rest = plan.microbatches % plan.pp
    return values_if(plan.vp > 1 and rest, rest=rest, stages=plan.pp)


def _recompute_lists(plan: Planned) -> Values | None:
    layers = plan.layout.recompute.layers if isinstance(plan.layout.recompute, Full) else None
    if not isinstance(layers, tuple) or layers == split_of(plan.case, plan.layout):
        return None
    counts = {count for chunk in layers for count in chunk}
    return values_if(len(counts) != 1, layers=[list(chunk) for chunk in layers], most=max(counts, default=0))


def _recompute_modules(plan: Planned) -> Values | None:
    named = plan.layout.recompute.modules if isinstance(plan.layout.recompute, Selective) else MODULES
    wrong = [module for module in named if module not in MODULES] or ([] if named else ["(none)"])
    return values_if(wrong, wrong=", ".join(wrong), known=", ".join(MODULES))


def _expert_shards(plan: Planned) -> Values | None:
    optimizer, gradient, _ = plan.shards
    instances, replicas = max(1, plan.ranks // (gradient if plan.zero >= 2 else optimizer)), plan.layout.expert_data_parallel
    return values_if(plan.moe and plan.zero > 0 and replicas % instances, replicas=replicas, instances=instances)


def _parameter_overlap(plan: Planned) -> bool:
    overlap = plan.layout.overlap
    return plan.zero > 0 and plan.ranks > 1 and overlap.parameter_gather and not overlap.gradient_reduce


def _expert_overlap_recompute(plan: Planned) -> bool:
    return expert_overlap(plan) and _recomputes_layers(plan)


def _recomputes_layers(plan: Planned) -> bool:
    recompute = plan.layout.recompute
    return isinstance(recompute, Full) and recompute.layers != 0


def expert_overlap(plan: Planned) -> bool:
    """Whether the expert all-to-all runs beside compute."""
    return plan.layout.overlap.expert and plan.ep > 1


def _precision_aware(plan: Planned) -> object:
    alone = plan.ranks == 1 and "optimizer" not in plan.layout.offload  # the distributed optimizer is on, and shards nothing
    return plan.zero == 0 and not alone and is_precision_aware(plan.case, plan.layout)


STRATEGY = (
    # Context parallelism: Transformer Engine decides in the first step.
    Rule("context-kind", "{kind} context parallelism is unknown to Megatron-LM", lambda plan: plan.kind not in CONTEXT_TYPES,
         "never"),
    Rule("context-heads", "Context parallelism over heads needs query and key-value heads per tensor rank ({heads}, {groups}) that "
         "{ranks} divides", _context_heads, "step"),
    Rule("context-hybrid", "hybrid context parallelism needs an inner group of 2 ranks or more that is not all {cp}",
         _context_hybrid, "step"),
    Rule("context-window", "Context parallelism with windows or sinks needs context={kinds}, not {kind}", _context_window, "step"),
    # Pipeline.
    Rule("stage-layers", "Number of decoder layers {placed} must match num_layers {layers}, on {chunks} x {stages} places",
         _stage_layers),
    Rule("interleaved", "When interleaved schedule is used, pipeline-model-parallel size should be greater than 1",
         lambda plan: plan.vp > 1 and plan.pp == 1),
    Rule("interleaved-p2p", "When interleaved schedule is used and p2p communication overlap is disabled, pipeline-model-parallel "
         "size should be greater than 2", lambda plan: plan.vp > 1 and plan.pp == 2 and not plan.layout.overlap.point_to_point),
    Rule("interleaved-batch", "The remainder of M (the total micro-batches) divided by N (number of contiguous micro-batches in a "
         "virtual pipeline stage) should be 0, or larger than or equal to the pipeline-parallel size, but it is {rest} "
         "(M={microbatches}, N={stages}).", _interleaved_batch, "step"),
    # Recomputation.
    Rule("recompute", "Megatron-LM recomputes the same number of layers on every stage, not {layers}: use recompute=full:{most}",
         _recompute_lists, "never"),
    Rule("recompute-modules", "Invalid choices for recompute_modules: {wrong}. Allowed modules are: {known}", _recompute_modules),
    Rule("recompute-mla", "mla_up_proj in recompute_modules is only supported with multi_latent_attention.",
         lambda plan: "mla_up_proj" in plan.modules and not plan.attention.latent),
    Rule("recompute-experts", "moe_act in recompute_modules is only supported with moe_grouped_gemm.",
         lambda plan: "moe_act" in plan.modules and not plan.moe),
    Rule("recompute-delayed", "Delayed scaling does not support moe_act and layernorm recompute for fp8.",
         lambda plan: plan.precision == "fp8-delayed" and {"moe_act", "layernorm"} & plan.modules),
    # Sharding, overlap, optimizer.
    Rule("fsdp-pipeline", "[Megatron-FSDP] Data Parallel ranks in the mesh do not match the ranks in the DP group (pipeline "
         "parallelism has no place in its mesh)", lambda plan: plan.zero >= 2 and plan.pp > 1, "start"),
    Rule("expert-shards", "Expert data parallel size should be divisible by partial DistOpt shard factor ({replicas} % "
         "{instances})", _expert_shards, "start"),
    Rule("parameter-overlap", "Must use --overlap-param-gather with --overlap-grad-reduce", _parameter_overlap),
    Rule("tensor-overlap", "Tensor parallel communication/GEMM overlap can happen only when sequence parallelism is enabled",
         lambda plan: plan.layout.overlap.tensor and plan.tp > 1 and not plan.sp),
    Rule("expert-overlap-recompute", "disable full recomputation when enabling overlap_moe_expert_parallel_comm",
         _expert_overlap_recompute),
    # Checked from core 0.17 on; 0.16 lets it pass.
    Rule("expert-overlap-moe", "disable moe in recompute_modules when enabling overlap_moe_expert_parallel_comm",
         lambda plan: expert_overlap(plan) and "moe" in plan.modules, "never"),
    Rule("expert-overlap-pipeline", "If enabling EP A2A overlap, virtual_pipeline_model_parallel_size must be specified when "
         "pipeline_model_parallel_size > 1", lambda plan: expert_overlap(plan) and plan.pp > 1 and plan.vp == 1),
    Rule("expert-overlap-mtp", "MTP layernum only supports 1 when enabling overlap_moe_expert_parallel_comm.",
         lambda plan: expert_overlap(plan) and plan.case.model.mtp_passes > 1),
    Rule("precision-aware", "--use-precision-aware-optimizer only supported with distributed optimizer", _precision_aware, "start"),
    Rule("offload-adam", "--use-precision-aware-optimizer only supported with adam",
         lambda plan: plan.layout.offload and plan.optimizer not in MOMENTS, "start"),
    Rule("offload-layers", "CPU offloading can be done only for layers less than {layers}",
         lambda plan: plan.case.launch.offloaded_layers >= plan.case.model.num_layers),
    Rule("cpu-offloading-pipeline", "Currently there is no support for Pipeline parallelism with CPU offloading",
         lambda plan: plan.case.launch.offloaded_layers and plan.pp > 1),
    Rule("offload-recompute", "CPU offloading does not work when activation recomputation is enabled",
         lambda plan: plan.case.launch.offloaded_layers and not isinstance(plan.layout.recompute, NoRecompute)),
    # Launch.
    Rule("graphs-recompute", "full recompute is only supported with full iteration CUDA graph.",
         lambda plan: plan.case.launch.graphs == "partial" and _recomputes_layers(plan)),
    Rule("graphs-offload", "CUDA graphs not supported with CPU offloading.",
         lambda plan: plan.case.launch.graphs in {"partial", "step"} and plan.case.launch.offloaded_layers),
    # Checked from core 0.19 on; earlier ones let it pass.
    Rule("deterministic-overlap", "--deterministic-mode requires: tp_comm_overlap=False.",
         lambda plan: plan.case.launch.deterministic and plan.layout.overlap.tensor and plan.tp > 1, "never"),
    Rule("fsdp-optimizer", "Megatron-FSDP does not support the {optimizer} optimizer yet.",
         lambda plan: plan.zero >= 2 and plan.optimizer not in {*MOMENTS, "sgd"}),
)
RULES = (*SHAPES, *HYBRIDS, *SPARSE, *STRATEGY)
"""Every rule of all versions, in the order in which they are reported."""
