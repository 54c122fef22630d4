"""Rules that arithmetic gives to every framework: what divides what. A framework says them in its own words where it has any."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from meshwright.domain.model import Mlp
from meshwright.frameworks.base import Limit
from meshwright.frameworks.rules import values_if

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Noticed, Values


def _device(features: Features, case: Case, layout: Layout) -> Values | None:
    recipe, device = case.training.precision, case.cluster.device
    return values_if(not recipe.runs_on(device), device=device.name, precision=recipe.name)


def _positions(features: Features, case: Case, layout: Layout) -> Values | None:
    return values_if(case.model.position not in features.positions, position=case.model.position)


def _position_table(features: Features, case: Case, layout: Layout) -> Values | None:
    model, length = case.model, case.batch.sequence_tokens
    return values_if(model.position == "learned" and length > model.position_table, sequence=length, rows=model.position_table)


def _task(features: Features, case: Case, layout: Layout) -> Values | None:
    return values_if(case.training.task not in features.tasks, task=case.training.task)


def _heads(features: Features, case: Case, layout: Layout) -> Values | None:
    tp = layout.tensor_parallel
    broken = [kind.attention.num_heads for kind in case.model.kinds if kind.attention.num_heads % tp]
    return values_if(broken, heads=broken[0] if broken else 0, tp=tp)


def _key_value_heads(features: Features, case: Case, layout: Layout) -> Values | None:
    tp = layout.tensor_parallel
    groups = [kind.attention.num_key_value_heads for kind in case.model.kinds if kind.attention.latent is None]
    broken = [count for count in groups if count % tp and tp % count]
    return values_if(broken, heads=broken[0] if broken else 0, tp=tp)


def _width(features: Features, case: Case, layout: Layout) -> Values | None:
    tp, blocks = layout.tensor_parallel, [kind.feed_forward for kind in case.model.kinds]
    widths = [case.model.hidden, *(block.width if isinstance(block, Mlp) else block.shared_width for block in blocks)]
    broken = [width for width in widths if width % tp]
    return values_if(broken, width=broken[0] if broken else 0, tp=tp)


def _sequence(features: Features, case: Case, layout: Layout) -> Values | None:
    cp, tp, length = layout.context_parallel, layout.tensor_parallel, case.batch.sequence_tokens
    zigzag = 2 * cp if cp > 1 else 1
    return values_if(length % zigzag or length % (cp * tp), sequence=length, cp=cp, tp=tp)


def _context_kind(features: Features, case: Case, layout: Layout) -> Values | None:
    windowed = any(kind.attention.window_tokens for kind in case.model.kinds)
    sinks = any(kind.attention.sinks for kind in case.model.kinds)
    kind = layout.context_kind
    able = kind in features.context_kinds and features.context_parallel
    wrong = not able or (windowed and kind in {"ring", "hybrid"}) or (sinks and kind != "ulysses")
    return values_if(layout.context_parallel > 1 and wrong, kind=kind, model=case.model.name)


def _context_heads(features: Features, case: Case, layout: Layout) -> Values | None:
    if layout.context_parallel == 1 or layout.context_kind != "ulysses":
        return None
    ranks = layout.context_parallel * layout.tensor_parallel
    for kind in case.model.kinds:
        heads = kind.attention.num_heads
        groups = heads if kind.attention.latent else kind.attention.num_key_value_heads
        if heads % ranks or groups % ranks:
            return {"heads": heads, "groups": groups, "ranks": ranks, "cp": layout.context_parallel}
    return None


def _experts(features: Features, case: Case, layout: Layout) -> Values | None:
    count, ep = case.model.experts.num_experts if case.model.experts else 1, layout.expert_parallel
    return values_if(count % ep, experts=count, ep=ep)


def _expert_grid(features: Features, case: Case, layout: Layout) -> Values | None:
    stage, ranks = layout.world // layout.pipeline_parallel, layout.expert_parallel * layout.expert_tensor_parallel
    return values_if(stage % ranks, stage=stage, ep=layout.expert_parallel, etp=layout.expert_tensor_parallel)


def _expert_sequence(features: Features, case: Case, layout: Layout) -> Values | None:
    return values_if(case.model.is_moe and layout.tensor_parallel > 1 and not layout.sequence_parallel, tp=layout.tensor_parallel)


def _stages(features: Features, case: Case, layout: Layout) -> Values | None:
    pp, layers = layout.pipeline_parallel, case.model.num_layers
    uneven = layers % pp and not features.uneven_stages and case.implementation.stage_split == "even"
    return values_if(pp > layers or uneven, layers=layers, pp=pp)


def _schedule(features: Features, case: Case, layout: Layout) -> Values | None:
    plain = layout.virtual_stages == 1 and (layout.schedule == "1f1b" or layout.pipeline_parallel == 1)
    return values_if(not plain, schedule=layout.schedule, vp=layout.virtual_stages)


def _batch(features: Features, case: Case, layout: Layout) -> Values | None:
    mb, gas, dp = layout.microbatch_sequences, layout.num_microbatches, layout.data_parallel
    batch = case.batch.global_batch_sequences
    return values_if(batch != mb * gas * dp, batch=batch, mb=mb, gas=gas, dp=dp)


def _shards(features: Features, case: Case, layout: Layout) -> Values | None:
    ranks = layout.data_parallel * (layout.context_parallel if features.shards_over_context else 1)
    groups = (layout.optimizer_shards, layout.gradient_shards, layout.parameter_shards)
    partial = features.partial_sharding and ranks % max(groups) == 0
    known = {1, max(groups) if partial else ranks}
    rising = list(groups) == sorted(groups, reverse=True)
    return values_if(not (set(groups) <= known and rising), groups=groups, ranks=ranks)


def _stage_shards(features: Features, case: Case, layout: Layout) -> Values | None:
    return values_if(layout.zero_stage not in features.zero_stages, stage=layout.zero_stage)


_RULES: Mapping[str, tuple[Callable[[Features, Case, Layout], Values | None], str, str]] = {
    "device": (_device, "training", "{device} does not compute in {precision}"),
    "task": (_task, "training", "it has no {task}"),
    "positions": (_positions, "model", "it has no {position} positions"),
    "position-table": (_position_table, "model", "the sequence of {sequence} tokens exceeds the position table of {rows} rows"),
    "heads": (_heads, "layout", "{heads} attention heads are not divisible by {tp}"),
    "key-value-heads": (_key_value_heads, "layout", "{heads} key-value heads and tensor parallelism {tp} do not divide each other"),
    "width": (_width, "layout", "a width of {width} is not divisible by {tp}"),
    "sequence": (_sequence, "layout", "a sequence of {sequence} tokens does not split over context parallelism {cp} (both "
                                      "halves) and tensor parallelism {tp}"),
    "context-kind": (_context_kind, "layout", "it has no {kind} context parallelism for {model}"),
    "context-heads": (_context_heads, "layout", "{heads} heads and {groups} key-value heads are not divisible by {ranks}"),
    "experts": (_experts, "layout", "{experts} experts are not divisible by {ep}"),
    "expert-grid": (_expert_grid, "layout", "{ep} x {etp} expert ranks do not divide the {stage} ranks of a stage"),
    "expert-sequence": (_expert_sequence, "layout", "experts under tensor parallelism {tp} need sequence parallelism"),
    "stages": (_stages, "layout", "{layers} layers do not split over {pp} stages"),
    "schedule": (_schedule, "layout", "it has no schedule {schedule} with {vp} virtual stages"),
    "batch": (_batch, "layout", "global batch {batch} is not {mb} x {gas} x {dp}"),
    "shards": (_shards, "layout", "shard groups {groups} of optimizer state, gradients and parameters: it has one group, "
                                  "of all {ranks} ranks"),
    "zero-stage": (_stage_shards, "layout", "it has no ZeRO stage {stage}"),
}  # fmt: skip
"""Name -> predicate, what it is about, words where the framework has none."""


def arithmetic(
    features: Features, *, skip: tuple[str, ...] = (), words: Mapping[str, tuple[str, Noticed]] | None = None
) -> list[Limit]:
    """The rules as limits of a framework, ids ``<name>.<rule>``.

    ``words``: rule -> the framework's own words and when it notices; without them nothing is noticed and we refuse.
    """
    own = words or {}
    limits = []
    for name, (predicate, path, plain) in _RULES.items():
        if name in skip:
            continue
        text, noticed = own.get(name, (plain, "never"))
        limits.append(
            Limit(id=f"{features.name}.{name}", words=text, noticed=noticed, broken=partial(predicate, features), path=path)
        )
    return limits
