"""What ChatLearn refuses of a case and a layout (commit b7af31a9), in its own words or those of the Megatron-LM below it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from meshwright.domain.layout import Full, overlapping
from meshwright.domain.model import Mlp
from meshwright.frameworks.megatron import MEGATRON
from meshwright.frameworks.rules import Rule, limits, values_if, words_if

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Model
    from meshwright.frameworks.base import Limit, Noticed, Values
    from meshwright.frameworks.planned import Planned

COMMIT = "b7af31a9"
"""The commit that is read, of 2025-10-23; as a release, it is that of the back end megatron."""
FSDP = "fsdp"
"""The same commit with the back end fsdp."""
CORE = "0.13"
"""Release of Megatron-Core that ChatLearn's backend is of (its scripts name commits of June and September 2025)."""
EXPERTS_KNOWN = ("Qwen3MoeForCausalLM", "DeepseekV3ForCausalLM")
"""Architectures whose experts ``utils/megatron_utils.py`` takes over from the Hugging Face configuration."""
GROUPED_EXPERTS = ("Qwen3MoeForCausalLM", "Qwen3NextForCausalLM")
"""Architectures whose experts the back end fsdp can multiply together (``models/patches/monkey_patch.py apply_group_gemm``)."""
ULYSSES = ("Qwen2ForCausalLM", "Qwen3ForCausalLM")
"""Architectures that it can split along the sequence (``apply_sp_monkey_patch``)."""


def is_fsdp(layout: Layout) -> bool:
    """Whether the layout is one of the back end ``fsdp``: parameters sharded over all GPUs."""
    return layout.zero_stage >= 2


def _precision(plan: Planned) -> bool:
    precision = plan.case.training.precision
    return precision.name != "bf16" or (precision.gradient_bytes, precision.master_bytes) != (4.0, 4.0)


def _batch_of_rank(plan: Planned) -> Values | None:
    batch = plan.batch // plan.dp
    return values_if(batch != plan.mb * plan.microbatches, batch=batch, size=plan.mb, count=plan.microbatches)


def _gradient_overlap(plan: Planned) -> bool:
    heard = overlapping(plan.layout, experts=plan.case.model.is_moe) & {"gradient_reduce", "parameter_gather"}
    return not is_fsdp(plan.layout) and any(getattr(plan.layout.overlap, name) for name in heard)


def _model(plan: Planned) -> Values | None:
    found = [] if is_fsdp(plan.layout) else foreign(plan.case.model)
    return values_if(found, reason="; ".join(found))


def foreign(model: Model) -> list[str]:
    """What ``update_cfg`` makes of a model's Hugging Face configuration that is not the model; empty where it is."""
    attention, kinds = model.attention, model.kinds
    reasons = [
        (model.is_moe and model.architecture not in EXPERTS_KNOWN, f"the experts of {model.architecture} are not taken over"),
        (not attention.latent and attention.query_key_norm != "head", "a norm of queries and keys is always added"),
        (attention.latent is not None and model.architecture != "DeepseekV3ForCausalLM", "latent attention of DeepSeek-V3 only"),
        (not attention.latent and not model.architecture.startswith("Qwen")
         and attention.num_key_value_heads != attention.num_heads, "query groups are taken over for Qwen only"),
        (attention.query_bias or attention.key_value_bias or attention.output_bias, "its projections have biases"),
        (any(each.window_tokens or each.sinks for each in model.attentions), "its attention has windows or sinks"),
        (any(kind.parallel_block or kind.norms != 2 for kind in kinds), "its layers are built differently"),
        (model.position != "rope", f"its positions are {model.position}"),
        (model.norm != "rms", f"its norm is {model.norm}"),
        (any(isinstance(kind.feed_forward, Mlp) and (not kind.feed_forward.gated or kind.feed_forward.bias) for kind in kinds),
         "its MLP is not a gated one without bias"),
    ]
    return [reason for broken, reason in reasons if broken]


def _fsdp(plan: Planned) -> Values | None:
    if not is_fsdp(plan.layout):
        return None
    has = [
        (plan.tp > 1, "tensor parallelism"), (plan.pp > 1, "pipeline stages"), (plan.ep * plan.etp > 1, "expert parallelism"),
        (plan.layout.offload, "offload"), (plan.cp > 1 and plan.kind != "ulysses", f"{plan.kind} context parallelism"),
        (plan.layout.overlap.tensor and plan.tp > 1, "overlap of tensor parallelism"),
    ]
    return words_if("knobs", has)


def _fsdp_size(plan: Planned) -> Values | None:
    sizes = plan.shards[::-1]
    return values_if(is_fsdp(plan.layout) and set(sizes) != {plan.world}, sizes=", ".join(map(str, sizes)))


def _query_groups(plan: Planned) -> object:
    return not is_fsdp(plan.layout) and not plan.attention.latent and plan.groups % plan.tp


RULES = (
    # Both back ends.
    Rule("task", "ChatLearn trains a policy (task sft), not {task}", lambda plan: plan.task == "lora", "never", "training"),
    Rule("device", "ChatLearn runs on NVIDIA GPUs, not on {device}",
         lambda plan: plan.case.cluster.device.family in {"ascend", "cpu"}, "never", "cluster"),
    Rule("precision", "ChatLearn has no key for the numbers: it computes in bf16 with gradients in fp32, not in {precision} with "
         "gradients in {gradients}", _precision, "never", "training"),
    Rule("optimizer", "ChatLearn has AdamW only, not {optimizer}", lambda plan: plan.optimizer != "adamw", "never", "training"),
    Rule("schedule", "ChatLearn has the schedules 1f1b and interleaved (vp > 1), not {schedule}",
         lambda plan: plan.schedule != ("interleaved" if plan.vp > 1 else "1f1b"), "never"),
    Rule("batch", "runtime_args.train_global_batch_size ({batch}) must be divisible by models.policy_trainer.num_replica (1) times "
         "models.policy_trainer.replica_dp_size ({dp}).", lambda plan: plan.batch % plan.dp),
    Rule("microbatch", "train_global_batch_size_per_dp_rank of policy_trainer ({batch}) must be divisible by "
         "runtime_args.train_micro_batch_size ({size}), and {count} micro-batches of that size are to be all of it",
         _batch_of_rank),
    Rule("gradient-overlap", "Cannot set grad twice: ChatLearn sets no no_sync_func, so overlap_grad_reduce fails from the second "
         "micro-batch on", _gradient_overlap, "step"),
    Rule("expert-overlap", "forward_step() got an unexpected keyword argument 'return_schedule_plan': ChatLearn's own step knows "
         "no expert overlap", lambda plan: plan.layout.overlap.expert and plan.ep > 1, "step"),
    # The back end megatron.
    Rule("model", "ChatLearn's Megatron back end cannot build {model}: {reason}; its FSDP back end can: chatlearn@fsdp", _model,
         "start", "model", releases=(COMMIT,)),
    Rule("backend", "ChatLearn's Megatron back end has ZeRO stages 0 and 1, not {stage}; its FSDP back end has 3: chatlearn@fsdp",
         lambda plan: values_if(is_fsdp(plan.layout), stage=plan.zero), "never", releases=(COMMIT,)),
    Rule("query-groups", "num_query_groups ({groups}) must be a multiple of tensor_model_parallel_size ({tp}).", _query_groups,
         "start"),
    # The back end fsdp.
    Rule("fsdp-zero", "ChatLearn's FSDP back end shards parameters, gradients and optimizer (zero3), not zero{stage}",
         lambda plan: values_if(not is_fsdp(plan.layout), stage=plan.zero), "never", releases=(FSDP,)),
    Rule("fsdp-ulysses", "Unsupported model architecture: {architecture}: ChatLearn splits sequences of {able} only",
         lambda plan: values_if(is_fsdp(plan.layout) and plan.cp > 1 and plan.case.model.architecture not in ULYSSES,
                                architecture=plan.case.model.architecture, able=ULYSSES), "start"),
    Rule("fsdp", "ChatLearn's FSDP back end has no key for {knobs}", _fsdp, "never"),
    Rule("fsdp-size", "fsdp_size is hard-coded to all {world} GPUs, for parameters, gradients and optimizer, not {sizes}",
         _fsdp_size, "never"),
    Rule("fsdp-recompute", "The FSDP back end always recomputes every layer: gradient_checkpointing: false has no effect",
         lambda plan: is_fsdp(plan.layout) and plan.layout.recompute != Full(), "never"),
    Rule("fsdp-heads", "num_attention_heads must be divisible by sp ({heads} % {ranks})",
         lambda plan: values_if(is_fsdp(plan.layout) and plan.heads % plan.cp, ranks=plan.cp), "start"),
    Rule("fsdp-key-value-heads", "num_key_value_heads must be divisible by sp ({heads} % {ranks}): no head is copied here",
         lambda plan: values_if(is_fsdp(plan.layout) and plan.groups % plan.cp, heads=plan.groups, ranks=plan.cp), "never"),
)
OWN = limits("chatlearn", RULES, release=COMMIT)
"""ChatLearn's own rules for the back end megatron."""
REPLACED = frozenset(
    f"megatron.{name}"
    for name in ("model", "task", "device", "precision", "optimizer", "schedule", "microbatches", "batch", "query-groups",
                 "copied-query-groups", "parameter-overlap", "mtp-context", "mtp-layout", "split", "flag", "graphs-recompute",
                 "graphs-offload", "deterministic-overlap")
)
"""Rules of Megatron-LM that have a form of ChatLearn's own here, or cannot be broken through it."""


def _below() -> Iterator[Limit]:
    """Megatron-LM's rules for what its back end is given; none of them speaks of the FSDP back end."""
    for limit in MEGATRON.at(CORE).limits:
        if limit.id not in REPLACED and not limit.id.startswith("megatron.expert-overlap"):
            noticed: Noticed = "start" if limit.noticed == "parse" else limit.noticed  # ChatLearn hands the arguments on unread
            own = limit.id.replace("megatron.", "chatlearn.", 1)
            yield structs.replace(limit, id=own, noticed=noticed, broken=partial(_on_megatron, limit))


def _on_megatron(limit: Limit, case: Case, layout: Layout) -> Values | None:
    return None if is_fsdp(layout) else limit.broken(case, layout)


LIMITS: tuple[Limit, ...] = (*OWN, *_below())
"""Every rule of the back end megatron, in the order in which they are reported."""
FSDP_LIMITS: tuple[Limit, ...] = limits("chatlearn", RULES, release=FSDP)
"""Every rule of the back end fsdp."""
