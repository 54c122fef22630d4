"""What slime refuses of a plan, in its own words, and what the Megatron-LM below it does."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from msgspec import structs

from meshwright.frameworks.megatron import MEGATRON
from meshwright.frameworks.megatron.limits import expert_overlap
from meshwright.frameworks.megatron.precision_arguments import FP8_RECIPES, MOMENTS
from meshwright.frameworks.rules import Rule, limits, values_if, words_if
from meshwright.frameworks.slime.flags import CORE, NAME, own_id
from meshwright.frameworks.verl.batch import longest_tokens, samples_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.frameworks.base import Limit, Values
    from meshwright.frameworks.planned import Planned

PRECISIONS = ("bf16", "fp16", *FP8_RECIPES)
OPTIMIZERS = (*MOMENTS, "sgd")


def _sharding(plan: Planned) -> Values | None:
    has = [
        (plan.zero == 0 and plan.ranks > 1, "always shards optimizer state: use_distributed_optimizer is True whatever is said"),
        (plan.zero > 1, "wraps its models in DDP: nothing of it is written for Megatron-FSDP"),
    ]
    return words_if("words", has)


def _batch(plan: Planned) -> Values | None:
    size, samples = (1, samples_of(plan.case)) if _packs(plan) else (plan.mb, plan.batch)
    return values_if(samples % (size * plan.dp), batch=samples, size=size)


def _packs(plan: Planned) -> bool:
    return plan.case.batch.packing is not None


def _virtual(plan: Planned) -> Values | None:
    """Micro-batches of all ranks that are no multiple of what the interleaved schedule takes at once."""
    made, group = plan.microbatches * plan.dp, plan.pp * plan.dp
    wrong = plan.vp > 1 and made % group
    return values_if(wrong, made=made, align=group, raised=-(-made // group) * group, step=plan.batch, size=plan.mb)


def _few(plan: Planned) -> Values | None:
    samples = samples_of(plan.case)
    return values_if(samples < plan.dp, samples=samples)


def _longest(plan: Planned) -> Values | None:
    tokens = longest_tokens(plan.case)
    return values_if(tokens > plan.mb * plan.sequence, tokens=tokens, limit=plan.mb * plan.sequence)


_RULES = (
    Rule("task", "slime trains all weights: for LoRA use bridge or ms-swift-megatron", lambda plan: plan.task == "lora", "never",
         "training"),
    Rule("device", "slime's files are written for NVIDIA GPUs here, not for {device}",
         lambda plan: plan.case.cluster.device.family in {"ascend", "cpu"}, "never", "cluster"),
    Rule("precision", "slime computes in bf16 unless --fp16 is given, or by Megatron-LM's recipes of FP8: not in {precision}",
         lambda plan: plan.precision not in PRECISIONS, "never", "training"),
    Rule("optimizer", "{optimizer} optimizer is not supported.", lambda plan: plan.optimizer not in OPTIMIZERS, "start",
         "training"),
    Rule("sharding", "slime {words}", _sharding, "never"),
    Rule("schedule", "slime has the schedules 1f1b and interleaved (vp > 1), not {schedule}",
         lambda plan: plan.schedule != ("interleaved" if plan.vp > 1 else "1f1b"), "never"),
    Rule("batch", "global batch size ({batch}) is not divisible by micro batch size ({size}) times data parallel size ({dp})",
         _batch, "start"),
    Rule("samples", "step 0: {samples} samples < dp_size {dp}; each step needs at least one sample per rank.", _few, "step"),
    Rule("virtual-batches", "static path: num_mbs ({made}) is not a multiple of dp_size * mb_group ({align}); got "
         "step_size={step}, micro_batch_size={size}, dp_size={dp}, mb_group={pp}. Splitting static mbs would break the fixed-size "
         "invariant; adjust the config so step_size % (dp_size * micro_batch_size * mb_group) == 0.",
         lambda plan: None if _packs(plan) else _virtual(plan), "step"),
    Rule("virtual-packs", "{made} packed micro-batches are split into {raised}, a multiple of dp_size * mb_group ({align})",
         lambda plan: _virtual(plan) if _packs(plan) else None, "never"),
    Rule("longest", "a sample of {tokens} tokens is longer than a micro-batch of {limit}: it gets one of its own, above "
         "max_tokens_per_gpu", _longest, "never"),
    Rule("context-kind", "samples are cut into zigzag pieces of a ring here, not by {kind}",
         lambda plan: plan.cp > 1 and plan.kind != "ring", "never"),
    Rule("tensor-overlap", "the buffers of --tp-comm-overlap have one size, of --seq-length tokens, and micro-batches here "
         "have any",
         lambda plan: plan.layout.overlap.tensor and plan.tp > 1, "never"),
    Rule("mtp-expert-overlap", "MTP training should not be enabled when using combined 1f1b",
         lambda plan: expert_overlap(plan) and plan.case.model.num_mtp_layers, "step"),
)
_REPLACED = frozenset(f"megatron.{name}" for name in (
    "task", "device", "precision", "optimizer", "schedule", "batch", "interleaved-batch", "context-kind", "context-heads",
    "context-hybrid", "tensor-overlap", "fsdp-pipeline", "fsdp-optimizer", "muon", "split", "expert-overlap-mtp",
    "expert-overlap-mtp-pipeline",
))
"""Rules of Megatron-LM that have a form of slime's own, or cannot be broken through it."""


_BUILT = tuple(f"megatron.{name}" for name in (
    "heads", "query-groups", "expert-bias", "expert-overlap", "recompute", "delta", "graphs", "offload-layers", "deterministic",
))
"""Rules of the transformer's configuration, which slime makes in its actors and not where it reads the flags."""


@cache
def all_limits() -> tuple[Limit, ...]:
    """Every rule, in the order in which they are reported."""
    return (*limits(NAME, _RULES), *_below())


def _below() -> Iterator[Limit]:
    """Megatron-LM's rules: its ``validate_args`` is called with the actor's devices."""
    for limit in MEGATRON.at(CORE).limits:
        if limit.id not in _REPLACED and not limit.id.startswith(("megatron.hybrid", "megatron.mamba")):
            built = limit.noticed == "parse" and limit.id.startswith(_BUILT)
            yield structs.replace(limit, id=own_id(limit.id), noticed="start" if built else limit.noticed)
