"""What accelerate refuses of a case and a layout, in its own words, release by release."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from meshwright.domain.layout import Full, NoRecompute
from meshwright.frameworks import divisibility
from meshwright.frameworks.arithmetic import arithmetic
from meshwright.frameworks.divisibility import CONTEXT_MIXERS, context_mixers
from meshwright.frameworks.manual import devices_per_node
from meshwright.frameworks.rules import Rule, limits, values_if, words_if

if TYPE_CHECKING:
    from meshwright.domain.features import Features
    from meshwright.frameworks.base import Limit, Values
    from meshwright.frameworks.planned import Planned

_WITHOUT_MESHES = ("fsdp1", "1.9")
"""Releases before ``parallelism_config``."""


def _knobs(plan: Planned) -> Values | None:
    layout = plan.layout
    has = [
        (plan.sp, "sequence parallelism beside tensor parallelism"),
        (layout.recompute not in (NoRecompute(), Full()), "recomputing a part of the layers"),
        (layout.stage_layers is not None, "layers by stage"),
        (set(layout.offload) - {"optimizer"}, "offload of anything but all states"),
    ]
    return words_if("knobs", has)


def _pure_data(plan: Planned) -> bool:
    shard = plan.shards[0] // plan.cp if plan.zero else 1
    return plan.tp * plan.cp > 1 and plan.dp > 1 and shard <= 1


def _context_attention(plan: Planned) -> bool:
    special = any(each.window_tokens or each.sinks for each in plan.case.model.attentions)
    return plan.cp > 1 and (special or plan.case.model.position == "alibi")


def _mesh(plan: Planned) -> Values | None:
    group = plan.shards[0]
    return values_if(plan.zero and (group % plan.cp or plan.ranks % group), group=group)


def _shards(plan: Planned) -> Values | None:
    optimizer, gradient, parameter = plan.shards
    return values_if(optimizer != gradient or parameter not in {1, optimizer}, groups=plan.shards)


def _hybrid(plan: Planned) -> Values | None:
    """All ranks; in FSDP1 also those of a node."""
    node = devices_per_node(plan.world, plan.case.cluster.devices_per_node) if plan.release == "fsdp1" else plan.ranks
    return values_if(plan.zero and plan.shards[0] not in {plan.ranks, node}, group=plan.shards[0])


_RULES = (
    Rule("precision", "mixed_precision is bf16 or fp16 here, not {precision}", lambda plan: plan.precision not in {"bf16", "fp16"},
         "never", "training"),
    Rule("pipeline", "accelerate has no pipeline: {pp} stages", lambda plan: plan.pp > 1, "never"),
    Rule("expert-parallel", "accelerate has no expert parallelism: {ep} x {etp}", lambda plan: plan.ep * plan.etp > 1, "never"),
    Rule("knobs", "accelerate has no key for {knobs}", _knobs, "never"),
    Rule("key-value-heads", "{heads} key-value heads are not divisible by tp_size {tp}", divisibility.key_value_heads, "start"),
    Rule("pure-data", "Tensor/Context parallelism (tp/cp_size > 1) cannot be used with pure data parallelism (dp_replicate_size > "
         "1 and dp_shard_size == 1).", _pure_data, "start"),
    Rule("context-shards", "context parallelism is FSDP2's: stage {stage} shards nothing",
         lambda plan: values_if(plan.cp > 1 and plan.zero < 2, stage=plan.zero), "start"),
    Rule("context-attention", "context parallelism runs through torch's causal attention: {model} has windows, sinks or ALiBi",
         _context_attention, "step"),
    Rule("context-mixers", CONTEXT_MIXERS, context_mixers, "never"),
    Rule("mesh", "a shard group of {group} is no multiple of the {cp} context-parallel ranks, or does not divide {ranks}", _mesh,
         "start"),
    Rule("shards", "optimizer state, gradients (and parameters) are sharded over one group, not {groups}", _shards, "never"),
    Rule("offload", "fsdp_offload_params is FSDP's: stage {stage} shards nothing",
         lambda plan: values_if(plan.layout.offload and plan.zero < 2, stage=plan.zero), "never"),
    Rule("no-mesh", "there is no parallelism_config: tp {tp}, cp {cp}", lambda plan: plan.tp * plan.cp > 1, "never",
         releases=_WITHOUT_MESHES),
    Rule("no-hybrid", "it shards over all {ranks} ranks, not over {group}", _hybrid, "never", releases=_WITHOUT_MESHES),
)


@cache
def limits_of(release: str, features: Features) -> tuple[Limit, ...]:
    """Every rule of a release."""
    own = limits("accelerate", _RULES, release=release)
    return (*own, *arithmetic(features, skip=("shards", "key-value-heads", "expert-grid")))
