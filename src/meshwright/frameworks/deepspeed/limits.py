"""What DeepSpeed refuses of a case and a layout, in its own words, release by release."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, NoRecompute
from meshwright.frameworks.arithmetic import arithmetic
from meshwright.frameworks.rules import rule, values_if, words_if

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Limit, Values
    from meshwright.frameworks.rules import Words

EXPERT_PRESETS = frozenset(
    {"MixtralForCausalLM", "Qwen3MoeForCausalLM", "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "MiniMaxM3ForCausalLM"}
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
LIMITS: list[Limit] = []
_rule = partial(rule, LIMITS)


@_rule("deepspeed.precision", "DeepSpeed computes in bf16 or fp16, not in {precision}", noticed="never", path="training")
def _precision(case: Case, layout: Layout) -> Values | None:
    return values_if(case.training.precision.name not in {"bf16", "fp16"}, precision=case.training.precision.name)


@_rule("deepspeed.optimizer", "DeepSpeed has no {optimizer}", noticed="never", path="training")
def _optimizer(case: Case, layout: Layout) -> Values | None:
    name = case.training.optimizer.name
    return values_if(name not in {"adamw", "sgd", "muon", "adamw-8bit"}, optimizer=name)


@_rule("deepspeed.pipeline", "a pipeline is a PipelineModule in code, not a key: {pp} stages", noticed="never")
def _pipeline(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.pipeline_parallel > 1, pp=layout.pipeline_parallel)


@_rule("deepspeed.knobs", "DeepSpeed has no key for {knobs}", noticed="never")
def _knobs(case: Case, layout: Layout) -> Values | None:
    has = [
        (layout.sequence_parallel, "sequence parallelism beside tensor parallelism"),
        (layout.recompute not in (NoRecompute(), Full()), "recomputing a part of the layers"),
        (layout.stage_layers is not None, "layers by stage"),
        (set(layout.offload) - {"optimizer"}, "offload of anything but the optimizer"),
    ]
    return words_if("knobs", has)


@_rule("deepspeed.expert-tensor", "expert_parallel.expert_tensor_parallel_size={etp} is reserved for expert-internal tensor "
       "parallelism and is not supported yet. Use expert_tensor_parallel_size=1", noticed="start")
def _expert_tensor(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.expert_tensor_parallel > 1, etp=layout.expert_tensor_parallel)


@_rule("deepspeed.expert-preset", "AutoEP has no preset for {architecture}: its layers must be named by patterns", noticed="start")
def _expert_preset(case: Case, layout: Layout) -> Values | None:
    name = case.model.architecture
    return values_if(layout.expert_parallel > 1 and name not in EXPERT_PRESETS, architecture=name or case.model.name)


@_rule("deepspeed.tensor-and-sequence", "tensor_parallel.autotp_size and Ulysses sequence parallelism are mutually exclusive "
       "(autotp_size={tp}, sp_size={cp})", noticed="never")
def _tensor_and_sequence(case: Case, layout: Layout) -> Values | None:
    tp, cp = layout.tensor_parallel, layout.context_parallel
    return values_if(tp > 1 and cp > 1, tp=tp, cp=cp)


@_rule("deepspeed.experts-stage-3", "AutoEP with ZeRO Stage 3 does not support sequence parallelism yet "
                                    "(sequence_parallel_size={cp}).",
       noticed="start")
def _experts_stage_3(case: Case, layout: Layout) -> Values | None:
    wrong = layout.expert_parallel > 1 and layout.zero_stage == 3 and layout.context_parallel > 1
    return values_if(wrong, cp=layout.context_parallel)


@_rule("deepspeed.experts-hpz", "AutoEP with ZeRO Stage 3 does not support hpZeRO secondary tensor groups yet "
       "(zero_optimization.zero_hpz_partition_size={hpz}).", noticed="start")
def _experts_hpz(case: Case, layout: Layout) -> Values | None:
    hpz = layout.parameter_shards
    return values_if(layout.expert_parallel > 1 and 1 < hpz < layout.optimizer_shards, hpz=hpz)


@_rule(
    "deepspeed.offload", "the optimizer is offloaded only where ZeRO shards it: stage 0 ignores offload_optimizer", noticed="never"
)
def _offload(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.offload and layout.zero_stage == 0)


@_rule("deepspeed.offload-optimizer", "You are using ZeRO-Offload with a client provided optimizer ({optimizer}) which in "
                                      "most cases "
       "will yield poor performance. Please either use deepspeed.ops.adam.DeepSpeedCPUAdam or set an optimizer in your ds-config",
       noticed="start")
def _offload_optimizer(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.offload and case.training.optimizer.name != "adamw", optimizer=case.training.optimizer.name)


def _shards(mics: bool, case: Case, layout: Layout) -> Values | None:
    """All ranks, or all but the weights (hpZ); with MiCS any divisor in stage 3."""
    ranks = layout.data_parallel * layout.context_parallel
    optimizer, gradient, parameter = groups = (layout.optimizer_shards, layout.gradient_shards, layout.parameter_shards)
    whole = list(groups) in ([1, 1, 1], [ranks, 1, 1], [ranks, ranks, 1], [ranks, ranks, ranks])
    hpz = optimizer == gradient == ranks and parameter > 1 and ranks % parameter == 0
    group = mics and 1 < optimizer == gradient == parameter and ranks % optimizer == 0
    return values_if(not (whole or hpz or group), groups=groups, ranks=ranks)


def _mics_experts(case: Case, layout: Layout) -> Values | None:
    partial_group = layout.zero_stage == 3 and layout.optimizer_shards < layout.data_parallel * layout.context_parallel
    return values_if(partial_group and case.model.is_moe)


@cache
def limits_of(release: str, features: Features) -> tuple[Limit, ...]:
    """Every rule of a release."""
    own: list[Limit] = []
    mics = features.partial_sharding
    rule(own, "deepspeed.shards", "shard groups {groups} of optimizer state, gradients and parameters are neither all "
                                  "{ranks} ranks "
         "nor a zero_hpz_partition_size that divides them" + (" nor a mics_shard_size" if mics else ""), noticed="never")(
        partial(_shards, mics)
    )
    if mics:
        rule(own, "deepspeed.mics-experts", "MiCS shards no experts", noticed="never")(_mics_experts)
    if release in {"0.16", "0.17", "0.18"}:
        rule(own, "deepspeed.tensor-stage-3", "Currently, the compatibility between 'autotp' and 'zero_stage = 3' has not "
                                              "been validated",
             noticed="start")(lambda case, layout: values_if(layout.tensor_parallel > 1 and layout.zero_stage == 3))
    for name, has, knob in (
        ("tensor", release not in {"0.14", "0.15"}, "tensor_parallel"), ("ulysses", features.context_parallel, "context_parallel"),
        ("autoep", features.expert_parallel, "expert_parallel"),
    ):
        if not has:
            rule(own, f"deepspeed.no-{name}", "DeepSpeed {release} has no key for {knob}", noticed="never")(
                partial(_absent, release, knob)
            )
    return (*LIMITS, *own, *arithmetic(features, skip=("shards", "task"), words=WORDS))


def _absent(release: str, knob: str, case: Case, layout: Layout) -> Values | None:
    """A degree that a release has no key for."""
    return values_if(getattr(layout, knob) > 1, release=release, knob=knob.replace("_", " "))
