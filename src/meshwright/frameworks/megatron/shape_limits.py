"""What Megatron-LM refuses of models, batches and grids, in its own words.

Rules of ``parse`` are found by its argument checks, of ``start`` when groups and model are built, of ``step`` in the
first step, and ``never`` by nobody but us. Words are those of core 0.16, shortened only at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.mixers import GatedDelta
from meshwright.domain.model import Mlp
from meshwright.frameworks.megatron.model_arguments import inexpressible
from meshwright.frameworks.megatron.precision_arguments import OPTIMIZERS, PRECISIONS
from meshwright.frameworks.rules import Rule, values_if

if TYPE_CHECKING:
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.planned import Planned

_FOREIGN = {"ascend": "mindspeed-llm", "cpu": "a framework that trains there"}
"""Families of devices that Megatron-LM does not run on, and what does."""


def _model(plan: Planned) -> Values | None:
    features = inexpressible(plan.case.model)
    return values_if(features, features="; nor ".join(features))


def _device(plan: Planned) -> Values | None:
    family = plan.case.cluster.device.family
    return values_if(family in _FOREIGN, instead=_FOREIGN.get(family))


def _shards(plan: Planned) -> Values | None:
    optimizer, gradient, parameter = plan.shards
    inner = max(gradient, parameter)
    right = {
        0: True, 1: True, 2: optimizer == inner,
        3: gradient == parameter and optimizer in {inner, plan.ranks},
    }[plan.zero]
    broken = not right or any(plan.ranks % size for size in plan.shards)
    return values_if(broken, optimizer=optimizer, gradient=gradient, parameter=parameter)


def _microbatches(plan: Planned) -> Values | None:
    whole = plan.batch % (plan.mb * plan.dp) == 0
    return values_if(whole and plan.microbatches * plan.mb * plan.dp != plan.batch, size=plan.mb)


def _expert_grid(plan: Planned) -> Values | None:
    size = plan.etp * plan.ep * plan.pp
    return values_if(plan.moe and plan.world % size, size=size)


def _width(plan: Planned) -> Values | None:
    cuts = []
    for kind in plan.case.model.kinds:
        block = kind.feed_forward
        if isinstance(block, Mlp):
            cuts.append((block.width, plan.tp))
        else:
            cuts += [(block.expert_width, plan.etp), (block.shared_width, plan.tp)]
    wrong = next(((width, ranks) for width, ranks in cuts if width % ranks), None)
    return None if wrong is None else {"width": wrong[0], "ranks": wrong[1]}


def _expert_bias(plan: Planned) -> bool:
    experts = plan.case.model.experts
    return experts is not None and experts.expert_bias and plan.etp > 1


def _delta_heads(plan: Planned) -> Values | None:
    """Key heads of a gated delta net: ranks of tensor and, since the core splits them, context parallelism divide them."""
    mixer = next((each for each in plan.case.model.mixers if isinstance(each, GatedDelta)), None)
    ranks = plan.tp if plan.release == "0.16" else plan.tp * plan.cp
    return values_if(mixer is not None and mixer.key_heads % ranks, key_heads=mixer.key_heads if mixer else 0, ranks=ranks)


def _delta_context(plan: Planned) -> bool:
    """The core of 0.16 asserts this; later ones split heads over context-parallel ranks."""
    return plan.release == "0.16" and plan.cp > 1 and any(isinstance(each, GatedDelta) for each in plan.case.model.mixers)


SHAPES = (
    # What Megatron-LM has no words for, because no argument leads there.
    Rule("model", "Megatron-LM cannot express {features}", _model, "never", "model"),
    Rule("task", "Megatron-LM trains all weights: for LoRA use bridge (Megatron-Bridge)", lambda plan: plan.task == "lora", "never",
         "training"),
    Rule("device", "Megatron-LM does not run on {device}; use {instead}", _device, "never", "cluster"),
    Rule("precision", "Megatron-LM has no precision {precision}; it has {known}",
         lambda plan: values_if(plan.precision not in PRECISIONS, known=", ".join(PRECISIONS)), "never", "training"),
    Rule("optimizer", "Megatron-LM has no optimizer {optimizer}; it has {known}",
         lambda plan: values_if(plan.optimizer not in OPTIMIZERS, known=", ".join(OPTIMIZERS)), "never", "training"),
    Rule("schedule", "Megatron-LM has the schedules 1f1b and interleaved (vp > 1), not {schedule}",
         lambda plan: plan.schedule not in {"1f1b", "interleaved"}, "never"),
    Rule("shards", "Megatron-LM cannot split state over {optimizer}, gradients over {gradient} and parameters over {parameter} of "
         "{ranks} ranks: one group size, and from parameters on the optimizer over all ranks", _shards, "never"),
    Rule("microbatches", "{microbatches} micro-batches of {size} on {dp} ranks are no global batch of {batch}", _microbatches,
         "never"),
    # Grid and shapes.
    Rule("experts", "num_experts must be non None to use expert model parallelism", lambda plan: plan.ep > 1 and not plan.moe),
    Rule("expert-count", "Number of experts should be a multiple of expert model parallel_size.",
         lambda plan: plan.experts % plan.ep),
    Rule("expert-grid", "world_size ({world}) is not divisible by expert_tensor_model_pipeline_parallel size ({size})",
         _expert_grid, "start"),
    Rule("heads", "num_attention_heads ({heads}) must be a multiple of tensor_model_parallel_size ({tp}).",
         lambda plan: plan.heads % plan.tp),
    Rule("query-groups", "num_query_groups ({groups}) must be a multiple or divisor of tensor_model_parallel_size ({tp}).",
         lambda plan: not plan.attention.latent and plan.groups % plan.tp and plan.tp % plan.groups),
    Rule("delta-context", "Gated delta net does not support context parallel for now, but got self.context_parallel_size={cp}.",
         _delta_context),
    Rule("delta-heads", "linear_num_key_heads ({key_heads}) must be a multiple of tensor_model_parallel_size, and of it times "
         "context_parallel_size where heads are split over both ({ranks})", _delta_heads),
    Rule("width", "{width} is not divisible by {ranks}", _width, "start"),
    Rule("expert-bias", "Bias in Moe is only supported when ETP==1", _expert_bias),
    Rule("batch", "global batch size ({batch}) is not divisible by micro batch size ({size}) times data parallel size ({dp})",
         lambda plan: values_if(plan.batch % (plan.mb * plan.dp), size=plan.mb)),
    Rule("sequence", "seq-length should be a multiple of 2 * context-parallel-size if context-parallel-size > 1.",
         lambda plan: plan.cp > 1 and plan.sequence % (2 * plan.cp)),
    Rule("sequence-parallel", "First dimension of the tensor should be divisible by tensor parallel size",
         lambda plan: plan.sp and plan.sequence // plan.cp % plan.tp, "step"),
    Rule("positions", "max_position_embeddings ({rows}) must be greater than or equal to seq_length ({sequence}).",
         lambda plan: values_if(0 < plan.case.model.position_table < plan.sequence, rows=plan.case.model.position_table)),
    Rule("moe-sequence-parallel", "During training, performance may degrade if MoE and tensor parallelismare enabled without also "
         "enabling sequence parallelism.", lambda plan: plan.moe and plan.tp > 1 and not plan.sp, "step"),
    Rule("grouped-gemm", "Unsupported compute capability for GroupedGEMM kernels.",
         lambda plan: plan.moe and plan.case.cluster.device.family == "volta", path="cluster"),
)
