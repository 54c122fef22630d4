"""What MindSpeed-LLM (Megatron-LM core 0.12.1 with MindSpeed) refuses of a case and a layout, in its own words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.layout import Mixed
from meshwright.frameworks.ascend.arithmetic import arithmetic, expressible
from meshwright.frameworks.ascend.refusals import refusals
from meshwright.frameworks.ascend.stages import shape_of, split_of
from meshwright.frameworks.mindspeed_llm.writing import ACTIVATION, apart, numbers
from meshwright.frameworks.rules import Rule, limits, values_if

if TYPE_CHECKING:
    from meshwright.domain.features import Features
    from meshwright.frameworks.base import Limit, Values
    from meshwright.frameworks.planned import Planned
    from meshwright.frameworks.rules import Words

WORDS: Words = {
    "world": ("world size ({devices}) is not divisible by total_model_size (tp {tp} x cp {cp} x pp {pp}), or "
              "leaves another dp than {dp}", "parse"),
    "batch": ("global batch size ({batch}) is not divisible by micro batch size ({mb}) times data parallel size ({dp})", "parse"),
    "heads": ("num_attention_heads ({heads}) must be a multiple of tensor_model_parallel_size ({tp}).", "parse"),
    "key-value-heads": ("num_query_groups ({heads}) must be a multiple of tensor_model_parallel_size ({tp}).", "parse"),
    "sequence": ("sequence length must be divisible by 2 * context_parallel_size ({sequence}, cp {cp}), and by tp {tp}", "parse"),
    "experts": ("Number of experts should be a multiple of expert model parallel_size. ({experts}, {ep})", "parse"),
    "expert-grid": ("world_size is not divisible by expert_tensor_model_pipeline_parallel size: ep {ep}, {stage} "
                    "ranks of a stage", "start"),
    "interleaved": ("number of micro-batches ({m}) is no multiple of pipeline-model-parallel size ({pp})", "step"),
}


def _empty(plan: Planned) -> Values | None:
    split = split_of(plan.case, plan.layout)
    return values_if(any(count < 1 for row in split for count in row), split=split)


def _activation(plan: Planned) -> bool:
    modules = set(getattr(plan.layout.recompute, "modules", ()))
    return "mlp_act" in modules and not set(apart(plan.case.model)[ACTIVATION]) <= modules


def _numbers(plan: Planned) -> bool:
    split = plan.layout.stage_layers
    shaped = split is None or shape_of(split) == (plan.vp, plan.pp)
    return isinstance(plan.layout.recompute, Mixed) and (not shaped or numbers(plan.case, plan.layout) is None)


def _uneven(plan: Planned) -> Values | None:
    split = split_of(plan.case, plan.layout)
    uneven = len({count for row in split for count in row}) > 1 or plan.schedule == "dualpipev"
    return values_if(isinstance(plan.layout.recompute, Mixed) and uneven, split=split)


def _folded(plan: Planned) -> bool:
    """Whether the pipeline is folded, so that DualPipeV's own rules bind it."""
    return plan.schedule == "dualpipev"


_RULES = (
    Rule("alibi-context", "Context parallelism is not supported with alibi",
         lambda plan: plan.case.model.position == "alibi" and plan.cp > 1),
    Rule("overlap-param", "Must use --overlap-param-gather with --overlap-grad-reduce",
         lambda plan: plan.zero > 0 and plan.layout.overlap.parameter_gather and not plan.layout.overlap.gradient_reduce),
    Rule("overlap-tensor", "mc2 needs tensor parallelism with sequence parallelism",
         lambda plan: plan.layout.overlap.tensor and not (plan.sp and plan.tp > 1), "never"),
    Rule("sequence-without-tensor", "sequence parallelism is switched off with tensor parallelism 1",
         lambda plan: plan.sp and plan.tp == 1, "never"),
    Rule("swap-optimizer", "Swap-optimizer only support use_distributed_optimizer/use_layer_wise_distributed_optimizer",
         lambda plan: "optimizer" in plan.layout.offload and plan.zero == 0),
    Rule("stage-empty", "a stage without layers: {split}", _empty, "never"),
    Rule("pipeline-interleaved", "with one stage there is nothing to interleave: pp 1, vpp {vpp}",
         lambda plan: values_if(plan.pp == 1 and plan.vp > 1, vpp=plan.vp)),
    Rule("p2p", "When interleaved schedule is used and p2p communication overlap is disabled, pipeline-model-parallel size should "
         "be greater than 2 to avoid having multiple p2p sends and recvs between same 2 ranks per communication batch",
         lambda plan: plan.schedule == "interleaved" and not plan.layout.overlap.point_to_point and plan.pp <= 2),
    Rule("dualpipev-tied", "The dualpipev requires untie_embeddings_and_output_weights.",
         lambda plan: _folded(plan) and plan.case.model.tied_embeddings),
    Rule("dualpipev-context", "The dualpipev and context_parallel are incompatible.", lambda plan: _folded(plan) and plan.cp > 1),
    Rule("dualpipev-one-stage", "pipeline_model_parallel_size should be larger than 1 with dualpipev schedules",
         lambda plan: _folded(plan) and plan.pp == 1),
    Rule("dualpipev-few-layers", "number of layers must be at least 2*pipeline_model_parallel_size in dualpipe",
         lambda plan: _folded(plan) and plan.layers < 2 * plan.pp),
    Rule("dualpipev-micro-batches", "num_micro_batch should more than pipeline_model_parallel_size * 2 - 1",
         lambda plan: _folded(plan) and plan.microbatches < 2 * plan.pp - 1),
    Rule("moe-act", "moe_act in recompute_modules is only supported with moe_grouped_gemm: {model} has no experts",
         lambda plan: {"moe_act", "moe"} & plan.modules and not plan.moe),
    Rule("mla-up-proj", "mla_up_proj in recompute_modules is only supported with multi_latent_attention: {model} has none",
         lambda plan: "mla_up_proj" in plan.modules and not any(each.latent for each in plan.case.model.attentions)),
    Rule("activation-function", "--recompute-activation-function takes dense layers and experts together", _activation, "never"),
    Rule("recompute-numbers", "flags have one number of layers for all chunks, in full and behind those of the activation function "
         "and of the norms", _numbers, "never"),
    Rule("recompute-uneven", "behind full layers, flags count as if each chunk had the same number of layers, not {split}", _uneven,
         "never"),
)


def limits_of(name: str, title: str, features: Features) -> tuple[Limit, ...]:
    """Every rule, with identifiers of one framework (MindSpeed-Core-MS has the same flags since r0.2.0)."""
    own, knobs = limits(name, _RULES), expressible(name, title, features)
    return (*refusals(name, title, features, reduces={"bf16", "fp16"}), *own, *knobs, *arithmetic(name, WORDS))
