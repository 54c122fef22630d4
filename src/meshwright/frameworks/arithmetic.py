"""Rules that arithmetic gives to every framework: what divides what. A framework says them in its own words where it has any."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from meshwright.frameworks import divisibility
from meshwright.frameworks.rules import limits_from, values_if

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Limit, Values
    from meshwright.frameworks.rules import Rules, Words


def _device(case: Case, layout: Layout) -> Values | None:
    recipe, device = case.training.precision, case.cluster.device
    return values_if(not recipe.runs_on(device), device=device.name, precision=recipe.name)


def _positions(features: Features, case: Case, layout: Layout) -> Values | None:
    return values_if(case.model.position not in features.positions, position=case.model.position)


def _task(features: Features, case: Case, layout: Layout) -> Values | None:
    return values_if(case.training.task not in features.tasks, task=case.training.task)


def _context_kind(features: Features, case: Case, layout: Layout) -> Values | None:
    able = layout.context_kind in features.context_kinds and features.context_parallel
    wrong = layout.context_parallel > 1 and (not able or divisibility.context_window(case, layout) is not None)
    return values_if(wrong, kind=layout.context_kind, model=case.model.name)


def _context_heads(case: Case, layout: Layout) -> Values | None:
    if layout.context_parallel == 1 or layout.context_kind != "ulysses":
        return None
    ranks = layout.context_parallel * layout.tensor_parallel
    for kind in case.model.kinds:
        heads = kind.attention.num_heads
        groups = heads if kind.attention.latent else kind.attention.num_key_value_heads
        if heads % ranks or groups % ranks:
            return {"heads": heads, "groups": groups, "ranks": ranks, "cp": layout.context_parallel}
    return None


def _stages(features: Features, case: Case, layout: Layout) -> Values | None:
    pp, layers = layout.pipeline_parallel, case.model.num_layers
    uneven = layers % pp and not features.uneven_stages and case.implementation.stage_split == "even"
    return values_if(pp > layers or uneven, layers=layers, pp=pp)


def _schedule(case: Case, layout: Layout) -> Values | None:
    plain = layout.virtual_stages == 1 and (layout.schedule == "1f1b" or layout.pipeline_parallel == 1)
    return values_if(not plain, schedule=layout.schedule, vp=layout.virtual_stages)


def _shards(features: Features, case: Case, layout: Layout) -> Values | None:
    ranks = layout.data_parallel * (layout.context_parallel if features.shards_over_context else 1)
    groups = (layout.optimizer_shards, layout.gradient_shards, layout.parameter_shards)
    smaller = features.partial_sharding and ranks % max(groups) == 0
    known = {1, max(groups) if smaller else ranks}
    falling = list(groups) == sorted(groups, reverse=True)
    return values_if(not (set(groups) <= known and falling), groups=groups, ranks=ranks)


def _zero_stage(features: Features, case: Case, layout: Layout) -> Values | None:
    return values_if(layout.zero_stage not in features.zero_stages, stage=layout.zero_stage)


_RULES: Rules = {
    "device": (_device, "training", "{device} does not compute in {precision}"),
    "position-table": (divisibility.position_table, "model", "the sequence of {sequence} tokens exceeds the position table of "
                                                             "{rows} rows"),
    "heads": (divisibility.heads, "layout", "{heads} attention heads are not divisible by {tp}"),
    "key-value-heads": (divisibility.copied_key_value_heads, "layout", "{heads} key-value heads and tensor parallelism {tp} do "
                                                                       "not divide each other"),
    "width": (divisibility.width, "layout", "a width of {width} is not divisible by {tp}"),
    "sequence": (divisibility.sequence, "layout", "a sequence of {sequence} tokens does not split over context parallelism {cp} "
                                                  "(both halves) and tensor parallelism {tp}"),
    "context-heads": (_context_heads, "layout", "{heads} heads and {groups} key-value heads are not divisible by {ranks}"),
    "experts": (divisibility.experts, "layout", "{experts} experts are not divisible by {ep}"),
    "expert-grid": (divisibility.expert_grid, "layout", "{ep} x {etp} expert ranks do not divide the {stage} ranks of a stage"),
    "expert-sequence": (divisibility.expert_sequence, "layout", "experts under tensor parallelism {tp} need sequence parallelism"),
    "schedule": (_schedule, "layout", "it has no schedule {schedule} with {vp} virtual stages"),
    "batch": (divisibility.batch, "layout", "global batch {batch} is not {mb} x {gas} x {dp}"),
}
_FEATURE_RULES: Mapping[str, tuple[Callable[[Features, Case, Layout], Values | None], str, str]] = {
    "task": (_task, "training", "it has no {task}"),
    "positions": (_positions, "model", "it has no {position} positions"),
    "context-kind": (_context_kind, "layout", "it has no {kind} context parallelism for {model}"),
    "stages": (_stages, "layout", "{layers} layers do not split over {pp} stages"),
    "shards": (_shards, "layout", "shard groups {groups} of optimizer state, gradients and parameters: it has one group, "
                                  "of all {ranks} ranks"),
    "zero-stage": (_zero_stage, "layout", "it has no ZeRO stage {stage}"),
}
"""The same for predicates that ask what the framework can do."""


def arithmetic(features: Features, *, skip: Collection[str] = (), words: Words | None = None) -> tuple[Limit, ...]:
    """The rules as limits of a framework, ids ``<name>.<rule>``."""
    able = {name: (partial(broken, features), path, plain) for name, (broken, path, plain) in _FEATURE_RULES.items()}
    return tuple(limits_from(features.name, {**_RULES, **able}, words or {}, skip=skip))
