"""What DeepSpeed refuses of a case and a layout, in its own words, release by release."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, NoRecompute
from meshwright.frameworks.arithmetic import arithmetic
from meshwright.frameworks.divisibility import CONTEXT_MIXERS, context_mixers
from meshwright.frameworks.rules import Rule, limits, values_if, words_if

if TYPE_CHECKING:
    from meshwright.domain.features import Features
    from meshwright.frameworks.base import Limit, Values
    from meshwright.frameworks.planned import Planned
    from meshwright.frameworks.rules import Words

EXPERT_PRESETS = frozenset(
    {"MixtralForCausalLM", "Qwen3MoeForCausalLM", "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM",
     "MiniMaxM3VLForCausalLM", "Qwen3_5MoeForCausalLM"}
)
"""Architectures whose experts AutoEP finds by itself (``module_inject/auto_ep_presets``)."""
WORDS: Words = {
    "batch": ("Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * "
              "world_size {batch} != {mb} * {gas} * {dp}", "start"),
    "context-heads": ("Attention head count {heads} is not divisible by SP size {ranks} (or {groups} key-value heads are "
                      "not)", "start"),
    "expert-grid": ("expert_parallel.autoep_size * expert_parallel.expert_tensor_parallel_size ({ep} * {etp}) must divide the "
                    "stage size ({stage})", "start"),
    "sequence": ("batch's seqlen={sequence} isn't divisible by sp-size={cp} (or its halves by tensor parallelism {tp})", "step"),
}
_BEFORE_16 = ("0.14", "0.15")
_BEFORE_17 = (*_BEFORE_16, "0.16")
_BEFORE_19 = (*_BEFORE_17, "0.17", "0.18")
"""Releases without AutoTP, without Ulysses, and without AutoEP but with MiCS."""
SHARDS = ("shard groups {groups} of optimizer state, gradients and parameters are neither all {ranks} ranks nor a "
          "zero_hpz_partition_size that divides them")
_ABSENT = "DeepSpeed {release} has no key for {knob}"


def _knobs(plan: Planned) -> Values | None:
    layout = plan.layout
    has = [
        (plan.sp, "sequence parallelism beside tensor parallelism"),
        (layout.recompute not in (NoRecompute(), Full()), "recomputing a part of the layers"),
        (layout.stage_layers is not None, "layers by stage"),
        (set(layout.offload) - {"optimizer"}, "offload of anything but the optimizer"),
    ]
    return words_if("knobs", has)


def _expert_preset(plan: Planned) -> Values | None:
    name = plan.case.model.architecture
    return values_if(plan.ep > 1 and name not in EXPERT_PRESETS, architecture=name or plan.model)


def _experts_hpz(plan: Planned) -> Values | None:
    optimizer, _, hpz = plan.shards
    return values_if(plan.ep > 1 and 1 < hpz < optimizer, hpz=hpz)


def shards(plan: Planned) -> Values | None:
    """All ranks, or all but the weights (hpZ)."""
    ranks, (optimizer, gradient, parameter) = plan.ranks, plan.shards
    whole = list(plan.shards) in ([1, 1, 1], [ranks, 1, 1], [ranks, ranks, 1], [ranks, ranks, ranks])
    hpz = optimizer == gradient == ranks and parameter > 1 and ranks % parameter == 0
    return values_if(not (whole or hpz), groups=plan.shards)


def _mics_shards(plan: Planned) -> Values | None:
    """All ranks, or all but the weights, or in stage 3 any divisor (MiCS)."""
    optimizer, gradient, parameter = plan.shards
    return None if 1 < optimizer == gradient == parameter and plan.ranks % optimizer == 0 else shards(plan)


_RULES = (
    Rule("precision", "DeepSpeed computes in bf16 or fp16, not in {precision}", lambda plan: plan.precision not in {"bf16", "fp16"},
         "never", "training"),
    Rule("optimizer", "DeepSpeed has no {optimizer}", lambda plan: plan.optimizer not in {"adamw", "sgd", "muon", "adamw-8bit"},
         "never", "training"),
    Rule("pipeline", "a pipeline is a PipelineModule in code, not a key: {pp} stages", lambda plan: plan.pp > 1, "never"),
    Rule("knobs", "DeepSpeed has no key for {knobs}", _knobs, "never"),
    Rule("expert-tensor", "expert_parallel.expert_tensor_parallel_size={etp} is reserved for expert-internal tensor parallelism "
         "and is not supported yet. Use expert_tensor_parallel_size=1", lambda plan: plan.etp > 1, "start"),
    Rule("expert-preset", "AutoEP has no preset for {architecture}: its layers must be named by patterns", _expert_preset, "start"),
    Rule("tensor-and-sequence", "tensor_parallel.autotp_size and Ulysses sequence parallelism are mutually exclusive "
         "(autotp_size={tp}, sp_size={cp})", lambda plan: plan.tp > 1 and plan.cp > 1, "never"),
    Rule("context-mixers", CONTEXT_MIXERS, context_mixers, "never"),
    Rule("experts-stage-3", "AutoEP with ZeRO Stage 3 does not support sequence parallelism yet (sequence_parallel_size={cp}).",
         lambda plan: plan.ep > 1 and plan.zero == 3 and plan.cp > 1, "start"),
    Rule("experts-hpz", "AutoEP with ZeRO Stage 3 does not support hpZeRO secondary tensor groups yet "
         "(zero_optimization.zero_hpz_partition_size={hpz}).", _experts_hpz, "start"),
    Rule("offload", "the optimizer is offloaded only where ZeRO shards it: stage 0 ignores offload_optimizer",
         lambda plan: plan.layout.offload and plan.zero == 0, "never"),
    Rule("offload-optimizer", "You are using ZeRO-Offload with a client provided optimizer ({optimizer}) which in most cases will "
         "yield poor performance. Please either use deepspeed.ops.adam.DeepSpeedCPUAdam or set an optimizer in your ds-config",
         lambda plan: plan.layout.offload and plan.optimizer != "adamw", "start"),
    Rule("shards", SHARDS, shards, "never", releases=("0.19",)),
    Rule("shards", SHARDS + " nor a mics_shard_size", _mics_shards, "never", releases=_BEFORE_19),
    Rule("mics-experts", "MiCS shards no experts", lambda plan: plan.zero == 3 and plan.shards[0] < plan.ranks and plan.moe,
         "never", releases=_BEFORE_19),
    Rule("tensor-stage-3", "Currently, the compatibility between 'autotp' and 'zero_stage = 3' has not been validated",
         lambda plan: plan.tp > 1 and plan.zero == 3, "start", releases=("0.16", "0.17", "0.18")),
    Rule("no-tensor", _ABSENT, lambda plan: values_if(plan.tp > 1, knob="tensor parallel"), "never", releases=_BEFORE_16),
    Rule("no-ulysses", _ABSENT, lambda plan: values_if(plan.cp > 1, knob="context parallel"), "never", releases=_BEFORE_17),
    Rule("no-autoep", _ABSENT, lambda plan: values_if(plan.ep > 1, knob="expert parallel"), "never", releases=_BEFORE_19),
)


@cache
def limits_of(release: str, features: Features) -> tuple[Limit, ...]:
    """Every rule of a release."""
    own = limits("deepspeed", _RULES, release=release)
    return (*own, *arithmetic(features, skip=("shards", "task"), words=WORDS))
