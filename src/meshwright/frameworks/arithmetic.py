"""Rules that arithmetic gives to every framework: what divides what. A framework says them in its own words where it has any."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks import divisibility
from meshwright.frameworks.rules import Rule, limits, values_if

if TYPE_CHECKING:
    from collections.abc import Collection

    from meshwright.domain.features import Features
    from meshwright.frameworks.base import Limit, Values
    from meshwright.frameworks.planned import Planned
    from meshwright.frameworks.rules import Words


def _context_heads(plan: Planned) -> Values | None:
    if plan.cp == 1 or plan.kind != "ulysses":
        return None
    ranks = plan.cp * plan.tp
    for attention in plan.case.model.attentions:
        heads = attention.num_heads
        groups = heads if attention.latent else attention.num_key_value_heads
        if heads % ranks or groups % ranks:
            return {"heads": heads, "groups": groups, "ranks": ranks}
    return None


def _schedule(plan: Planned) -> bool:
    return not (plan.vp == 1 and (plan.schedule == "1f1b" or plan.pp == 1))


_RULES = (
    Rule("device", "{device} does not compute in {precision}",
         lambda plan: not plan.case.training.precision.runs_on(plan.case.cluster.device), "never", "training"),
    Rule("position-table", "the sequence of {sequence} tokens exceeds the position table of {rows} rows",
         divisibility.position_table, "never", "model"),
    Rule("heads", "{heads} attention heads are not divisible by {tp}", divisibility.heads, "never"),
    Rule("key-value-heads", "{heads} key-value heads and tensor parallelism {tp} do not divide each other",
         divisibility.copied_key_value_heads, "never"),
    Rule("width", "a width of {width} is not divisible by {tp}", divisibility.width, "never"),
    Rule("sequence", "a sequence of {sequence} tokens does not split over context parallelism {cp} (both halves) and tensor "
         "parallelism {tp}", divisibility.sequence, "never"),
    Rule("context-heads", "{heads} heads and {groups} key-value heads are not divisible by {ranks}", _context_heads, "never"),
    Rule("experts", "{experts} experts are not divisible by {ep}", divisibility.experts, "never"),
    Rule("expert-grid", "{ep} x {etp} expert ranks do not divide the {stage} ranks of a stage", divisibility.expert_grid, "never"),
    Rule("expert-sequence", "experts under tensor parallelism {tp} need sequence parallelism", divisibility.expert_sequence,
         "never"),
    Rule("schedule", "it has no schedule {schedule} with {vp} virtual stages", _schedule, "never"),
    Rule("batch", "global batch {batch} is not {mb} x {gas} x {dp}", divisibility.batch, "never"),
)


def _of_features(features: Features) -> tuple[Rule, ...]:
    """Rules that ask what the framework can do."""

    def positions(plan: Planned) -> Values | None:
        return values_if(plan.case.model.position not in features.positions, position=plan.case.model.position)

    def context_kind(plan: Planned) -> bool:
        able = plan.kind in features.context_kinds and features.context_parallel
        return plan.cp > 1 and (not able or divisibility.context_window(plan))

    def stages(plan: Planned) -> bool:
        uneven = plan.layers % plan.pp and not features.uneven_stages and plan.case.implementation.stage_split == "even"
        return plan.pp > plan.layers or bool(uneven)

    def shards(plan: Planned) -> Values | None:
        ranks = plan.dp * (plan.cp if features.shards_over_context else 1)
        smaller = features.partial_sharding and ranks % max(plan.shards) == 0
        known = {1, max(plan.shards) if smaller else ranks}
        falling = list(plan.shards) == sorted(plan.shards, reverse=True)
        return values_if(not (set(plan.shards) <= known and falling), groups=plan.shards, ranks=ranks)

    return (
        Rule("task", "it has no {task}", lambda plan: plan.task not in features.tasks, "never", "training"),
        Rule("positions", "it has no {position} positions", positions, "never", "model"),
        Rule("context-kind", "it has no {kind} context parallelism for {model}", context_kind, "never"),
        Rule("stages", "{layers} layers do not split over {pp} stages", stages, "never"),
        Rule("shards", "shard groups {groups} of optimizer state, gradients and parameters: it has one group, of all {ranks} ranks",
             shards, "never"),
        Rule("zero-stage", "it has no ZeRO stage {stage}",
             lambda plan: values_if(plan.zero not in features.zero_stages, stage=plan.zero), "never"),
    )


def arithmetic(features: Features, *, skip: Collection[str] = (), words: Words | None = None) -> tuple[Limit, ...]:
    """The rules as limits of a framework, ids ``<name>.<rule>``."""
    return limits(features.name, (*_RULES, *_of_features(features)), words=words, skip=skip)
