"""What accelerate refuses of a case and a layout, in its own words, release by release."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, NoRecompute
from meshwright.frameworks import divisibility
from meshwright.frameworks.arithmetic import arithmetic
from meshwright.frameworks.manual import devices_per_node
from meshwright.frameworks.rules import rule, values_if, words_if

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Limit, Values

LIMITS: list[Limit] = []
_rule = partial(rule, LIMITS)


@_rule("accelerate.precision", "mixed_precision is bf16 or fp16 here, not {precision}", noticed="never", path="training")
def _precision(case: Case, layout: Layout) -> Values | None:
    return values_if(case.training.precision.name not in {"bf16", "fp16"}, precision=case.training.precision.name)


@_rule("accelerate.pipeline", "accelerate has no pipeline: {pp} stages", noticed="never")
def _pipeline(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.pipeline_parallel > 1, pp=layout.pipeline_parallel)


@_rule("accelerate.expert-parallel", "accelerate has no expert parallelism: {ep} x {etp}", noticed="never")
def _expert_parallel(case: Case, layout: Layout) -> Values | None:
    ep, etp = layout.expert_parallel, layout.expert_tensor_parallel
    return values_if(ep * etp > 1, ep=ep, etp=etp)


@_rule("accelerate.knobs", "accelerate has no key for {knobs}", noticed="never")
def _knobs(case: Case, layout: Layout) -> Values | None:
    has = [
        (layout.sequence_parallel, "sequence parallelism beside tensor parallelism"),
        (layout.recompute not in (NoRecompute(), Full()), "recomputing a part of the layers"),
        (layout.stage_layers is not None, "layers by stage"),
        (set(layout.offload) - {"optimizer"}, "offload of anything but all states"),
    ]
    return words_if("knobs", has)


_rule("accelerate.key-value-heads", "{heads} key-value heads are not divisible by tp_size {tp}", noticed="start")(
    divisibility.key_value_heads
)


@_rule("accelerate.pure-data", "Tensor/Context parallelism (tp/cp_size > 1) cannot be used with pure data parallelism "
       "(dp_replicate_size > 1 and dp_shard_size == 1).", noticed="start")
def _pure_data(case: Case, layout: Layout) -> Values | None:
    shard = layout.optimizer_shards // layout.context_parallel if layout.zero_stage else 1
    return values_if(layout.tensor_parallel * layout.context_parallel > 1 and layout.data_parallel > 1 and shard <= 1)


@_rule("accelerate.context-shards", "context parallelism is FSDP2's: stage {stage} shards nothing", noticed="start")
def _context_shards(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.context_parallel > 1 and layout.zero_stage < 2, stage=layout.zero_stage)


@_rule("accelerate.context-attention", "context parallelism runs through torch's causal attention: {model} has windows, "
                                       "sinks or ALiBi",
       noticed="step")
def _context_attention(case: Case, layout: Layout) -> Values | None:
    special = (
        any(kind.attention.window_tokens or kind.attention.sinks for kind in case.model.kinds) or case.model.position == "alibi"
    )
    return values_if(layout.context_parallel > 1 and special, model=case.model.name)


@_rule("accelerate.mesh", "a shard group of {group} is no multiple of the {cp} context-parallel ranks, or does not divide {ranks}",
       noticed="start")
def _mesh(case: Case, layout: Layout) -> Values | None:
    group, cp, ranks = layout.optimizer_shards, layout.context_parallel, layout.data_parallel * layout.context_parallel
    return values_if(layout.zero_stage and (group % cp or ranks % group), group=group, cp=cp, ranks=ranks)


@_rule("accelerate.shards", "optimizer state, gradients (and parameters) are sharded over one group, not {groups}", noticed="never")
def _shards(case: Case, layout: Layout) -> Values | None:
    groups = optimizer, gradient, parameter = (layout.optimizer_shards, layout.gradient_shards, layout.parameter_shards)
    return values_if(optimizer != gradient or parameter not in {1, optimizer}, groups=groups)


@_rule("accelerate.offload", "fsdp_offload_params is FSDP's: stage {stage} shards nothing", noticed="never")
def _offload(case: Case, layout: Layout) -> Values | None:
    return values_if(layout.offload and layout.zero_stage < 2, stage=layout.zero_stage)


def _whole(nodes: bool, case: Case, layout: Layout) -> Values | None:
    """All ranks; in FSDP1 also those of a node."""
    ranks, group = layout.data_parallel * layout.context_parallel, layout.optimizer_shards
    node = devices_per_node(layout.world, case.cluster.devices_per_node) if nodes else ranks
    return values_if(layout.zero_stage and group not in {ranks, node}, group=group, ranks=ranks)


def _flat(case: Case, layout: Layout) -> Values | None:
    tp, cp = layout.tensor_parallel, layout.context_parallel
    return values_if(tp * cp > 1, tp=tp, cp=cp)


@cache
def limits_of(release: str, features: Features) -> tuple[Limit, ...]:
    """Every rule of a release."""
    own: list[Limit] = []
    if release in {"fsdp1", "1.9"}:
        rule(own, "accelerate.no-mesh", "there is no parallelism_config: tp {tp}, cp {cp}", noticed="never")(_flat)
        words = "it shards over all {ranks} ranks, not over {group}"
        rule(own, "accelerate.no-hybrid", words, noticed="never")(partial(_whole, release == "fsdp1"))
    return (*LIMITS, *own, *arithmetic(features, skip=("shards", "key-value-heads", "expert-grid")))
