"""What ChatLearn refuses of a case and a layout (commit b7af31a9), in its own words or those of the Megatron-LM below it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from meshwright.domain.layout import Full
from meshwright.domain.model import Mlp
from meshwright.frameworks.megatron import MEGATRON
from meshwright.frameworks.rules import attention_of, rule, values_if, words_if

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.domain.model import Model
    from meshwright.frameworks.base import Limit, Noticed, Values

CORE = "0.13"
"""Release of Megatron-Core that ChatLearn's backend is of (its scripts name commits of June and September 2025)."""
EXPERTS_KNOWN = ("Qwen3MoeForCausalLM", "DeepseekV3ForCausalLM")
"""Architectures whose experts ``utils/megatron_utils.py`` takes over from the Hugging Face configuration."""
OWN: list[Limit] = []
_rule = partial(rule, OWN)


def is_fsdp(layout: Layout) -> bool:
    """Whether the layout is one of the back end ``fsdp``: parameters sharded over all GPUs."""
    return layout.zero_stage >= 2


# Both back ends.


@_rule("chatlearn.task", "ChatLearn trains a policy (task sft), not {task}", noticed="never", path="training")
def _task(case: Case, layout: Layout) -> Values | None:
    return values_if(case.training.task == "lora", task=case.training.task)


@_rule("chatlearn.device", "ChatLearn runs on NVIDIA GPUs, not on {device}", noticed="never", path="cluster")
def _device(case: Case, layout: Layout) -> Values | None:
    device = case.cluster.device
    return values_if(device.family in {"ascend", "cpu"}, device=device.name)


@_rule("chatlearn.precision", "ChatLearn has no key for {precision}: it computes in bf16", noticed="never", path="training")
def _precision(case: Case, layout: Layout) -> Values | None:
    precision = case.training.precision
    right = precision.name == "bf16" and (precision.gradient_bytes, precision.master_bytes) == (4.0, 4.0)
    return values_if(not right, precision=precision.name)


@_rule("chatlearn.optimizer", "ChatLearn has AdamW only, not {optimizer}", noticed="never", path="training")
def _optimizer(case: Case, layout: Layout) -> Values | None:
    return values_if(case.training.optimizer.name != "adamw", optimizer=case.training.optimizer.name)


@_rule("chatlearn.schedule", "ChatLearn has the schedules 1f1b and interleaved (vp > 1), not {schedule}", noticed="never")
def _schedule(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.schedule != ("interleaved" if layout.virtual_stages > 1 else "1f1b"), schedule=layout.schedule)


@_rule(
    "chatlearn.batch",
    "runtime_args.train_global_batch_size ({batch}) must be divisible by models.policy_trainer.num_replica (1) times "
    "models.policy_trainer.replica_dp_size ({dp}).",
)
def _batch(case: Case, layout: Layout) -> Values | None:
    batch, dp = case.batch.global_batch_sequences, layout.data_parallel
    return values_if(batch % dp, batch=batch, dp=dp)


@_rule(
    "chatlearn.microbatch",
    "train_global_batch_size_per_dp_rank of policy_trainer ({batch}) must be divisible by runtime_args.train_micro_batch_size "
    "({size}), and {count} micro-batches of that size are to be all of it",
)
def _microbatch(case: Case, layout: Layout) -> Values | None:
    batch, size = case.batch.global_batch_sequences // layout.data_parallel, layout.microbatch_sequences
    return values_if(batch != size * layout.num_microbatches, batch=batch, size=size, count=layout.num_microbatches)


@_rule(
    "chatlearn.gradient-overlap",
    "Cannot set grad twice: ChatLearn sets no no_sync_func, so overlap_grad_reduce fails from the second micro-batch on",
    noticed="step",
)
def _gradient_overlap(case: Case, layout: Layout) -> Values | None:
    several = layout.data_parallel * layout.context_parallel > 1 and not is_fsdp(layout)
    return values_if(several and (layout.overlap.gradient_reduce or layout.overlap.parameter_gather))


@_rule(
    "chatlearn.expert-overlap",
    "forward_step() got an unexpected keyword argument 'return_schedule_plan': ChatLearn's own step knows no expert overlap",
    noticed="step",
)
def _expert_overlap(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.overlap.expert and layout.expert_parallel > 1)


# The back end megatron.


@_rule(
    "chatlearn.model",
    "ChatLearn's Megatron back end cannot build {model}: {reason}; its FSDP back end can "
    "(--pin zero=3 --pin tp=1 --pin pp=1 --pin recompute=full)",
    noticed="start",
)
def _model(case: Case, layout: Layout) -> Values | None:
    if is_fsdp(layout):
        return None
    found = foreign(case.model)
    return values_if(found, model=case.model.name, reason="; ".join(found))


def foreign(model: Model) -> list[str]:
    """What ``update_cfg`` makes of a model's Hugging Face configuration that is not the model; empty where it is."""
    attention, kinds = model.kinds[0].attention, model.kinds
    reasons = [
        (model.is_moe and model.architecture not in EXPERTS_KNOWN, f"the experts of {model.architecture} are not taken over"),
        (not attention.latent and attention.query_key_norm != "head", "a norm of queries and keys is always added"),
        (attention.latent is not None and model.architecture != "DeepseekV3ForCausalLM", "latent attention of DeepSeek-V3 only"),
        (not attention.latent and not model.architecture.startswith("Qwen")
         and attention.num_key_value_heads != attention.num_heads, "query groups are taken over for Qwen only"),
        (attention.query_bias or attention.key_value_bias or attention.output_bias, "its projections have biases"),
        (any(kind.attention.window_tokens or kind.attention.sinks for kind in kinds), "its attention has windows or sinks"),
        (any(kind.parallel_block or kind.norms != 2 for kind in kinds), "its layers are built differently"),
        (model.position != "rope", f"its positions are {model.position}"),
        (model.norm != "rms", f"its norm is {model.norm}"),
        (any(isinstance(kind.feed_forward, Mlp) and (not kind.feed_forward.gated or kind.feed_forward.bias) for kind in kinds),
         "its MLP is not a gated one without bias"),
    ]
    return [reason for broken, reason in reasons if broken]


@_rule("chatlearn.query-groups", "num_query_groups ({groups}) must be a multiple of tensor_model_parallel_size ({tp}).",
       noticed="start")
def _query_groups(case: Case, layout: Layout) -> Values | None:
    groups, tp = attention_of(case).num_key_value_heads, layout.tensor_parallel
    return values_if(not is_fsdp(layout) and not attention_of(case).latent and groups % tp, groups=groups, tp=tp)


# The back end fsdp.


@_rule("chatlearn.fsdp", "ChatLearn's FSDP back end has no key for {knobs}", noticed="never")
def _fsdp(case: Case, layout: Layout) -> Values | None:
    if not is_fsdp(layout):
        return None
    has = [
        (layout.tensor_parallel > 1, "tensor parallelism"), (layout.pipeline_parallel > 1, "pipeline stages"),
        (layout.expert_parallel * layout.expert_tensor_parallel > 1, "expert parallelism"), (bool(layout.offload), "offload"),
        (layout.context_parallel > 1 and layout.context_kind != "ulysses", f"{layout.context_kind} context parallelism"),
        (layout.overlap.tensor and layout.tensor_parallel > 1, "overlap of tensor parallelism"),
    ]
    return words_if("knobs", has)


@_rule("chatlearn.fsdp-size", "fsdp_size is hard-coded to all {world} GPUs, for parameters, gradients and optimizer, not {sizes}",
       noticed="never")
def _fsdp_size(case: Case, layout: Layout) -> Values | None:
    world = layout.world
    sizes = (layout.parameter_shards, layout.gradient_shards, layout.optimizer_shards)
    return values_if(is_fsdp(layout) and set(sizes) != {world}, world=world, sizes=", ".join(map(str, sizes)))


@_rule("chatlearn.fsdp-recompute", "The FSDP back end always recomputes every layer: gradient_checkpointing: false has no effect",
       noticed="never")
def _fsdp_recompute(case: Case, layout: Layout) -> Values | None:
    return values_if(is_fsdp(layout) and layout.recompute != Full())


@_rule("chatlearn.fsdp-heads", "num_attention_heads must be divisible by sp ({heads} % {ranks})", noticed="start")
def _fsdp_heads(case: Case, layout: Layout) -> Values | None:
    heads, ranks = attention_of(case).num_heads, layout.context_parallel
    return values_if(is_fsdp(layout) and heads % ranks, heads=heads, ranks=ranks)


@_rule("chatlearn.fsdp-key-value-heads", "num_key_value_heads must be divisible by sp ({heads} % {ranks}): no head is copied here",
       noticed="never")
def _fsdp_key_value_heads(case: Case, layout: Layout) -> Values | None:
    heads, ranks = attention_of(case).num_key_value_heads, layout.context_parallel
    return values_if(is_fsdp(layout) and heads % ranks, heads=heads, ranks=ranks)


REPLACED = frozenset(
    f"megatron.{name}"
    for name in ("model", "task", "device", "precision", "optimizer", "schedule", "microbatches", "batch", "query-groups",
                 "copied-query-groups", "parameter-overlap", "mtp-context", "mtp-layout", "split", "flag")
)
"""Rules of Megatron-LM that have a form of ChatLearn's own here, or cannot be broken through it."""


def _below() -> Iterator[Limit]:
    """Megatron-LM's rules for what its back end is given; none of them speaks of the FSDP back end."""
    for limit in MEGATRON.at(CORE).limits:
        if limit.id not in REPLACED and not limit.id.startswith("megatron.expert-overlap"):
            noticed: Noticed = "start" if limit.noticed == "parse" else limit.noticed  # ChatLearn hands the arguments on unread
            own = limit.id.replace("megatron.", "chatlearn.", 1)
            yield replace(limit, id=own, noticed=noticed, broken=partial(_on_megatron, limit))


def _on_megatron(limit: Limit, case: Case, layout: Layout) -> Values | None:
    return None if is_fsdp(layout) else limit.broken(case, layout)


LIMITS: tuple[Limit, ...] = (*OWN, *_below())
"""Every rule, in the order in which they are reported."""
