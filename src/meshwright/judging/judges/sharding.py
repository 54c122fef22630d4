"""Sharding of optimizer states, gradients and parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.estimate.certainty import expected_s
from meshwright.estimate.many import price_many
from meshwright.judging.finding import Ruling, ratio, size
from meshwright.judging.neighbours import shard_ranks, shards
from meshwright.judging.predicates import SAME_RATIO, against, contest, does_not_apply, judges, speed
from meshwright.search.space import divisors
from meshwright.units import gib
from meshwright.words import seconds

if TYPE_CHECKING:
    from meshwright.catalog.guides import Rule
    from meshwright.judging.facts import Facts, Trial


def zero(facts: Facts, stage: int) -> Trial | None:
    """This layout at a ZeRO stage over all ranks, whether the framework has it or not; None with one rank."""
    ranks = shard_ranks(facts.features, facts.layout)
    if ranks == 1:
        return None
    return facts.trial(replace(facts.layout, **shards(stage, ranks)))  # type: ignore[arg-type]


def one_rank(facts: Facts) -> Ruling:
    """No data parallelism, nothing to shard."""
    return does_not_apply(facts, f"one data-parallel rank ({facts.layout.world} devices in one replica): nothing to shard")


@judges("unsaturated-sharding")
def unsaturated_sharding(facts: Facts, _: Rule) -> Ruling:
    """Every legal shard group of this layout against all ranks."""
    layout, ranks = facts.layout, shard_ranks(facts.features, facts.layout)
    groups = [k for k in divisors(ranks) if 1 < k < ranks]
    if not groups:
        return does_not_apply(facts, f"{ranks} data-parallel ranks have no divisor between 1 and themselves")
    stage = max(1, layout.zero_stage)
    layouts = [replace(layout, **shards(stage, k)) for k in (*groups, ranks)]  # type: ignore[arg-type]
    priced = price_many(facts.case, layouts)
    reserved, expected = priced[2], expected_s(facts.case, priced[1], priced[2])
    fitting = [
        (float(t), k) for t, k, bytes_ in zip(expected[:-1], groups, reserved[:-1], strict=True)
        if bytes_ <= facts.case.capacity_bytes
    ]
    if not fitting:
        return Ruling(
            verdict="fails", figure=size(float(reserved[:-1].min())),
            sentence=f"no group smaller than all {ranks} ranks fits: the least needs {gib(float(reserved[:-1].min()))}",
        )
    group = min(fitting)[1]
    found = against(facts, facts.trial(layouts[groups.index(group)]), facts.trial(layouts[-1]))
    able = "" if facts.features.partial_sharding else f"; {facts.features.name} shards over all ranks only"
    return Ruling(
        verdict="holds" if found.better and abs(found.ratio) >= SAME_RATIO else "fails",
        figure=ratio("expected_change_ratio", found.ratio),
        sentence=f"sharding over {group} ranks, against all {ranks} of them: {found.words}; "
        f"legal are {', '.join(map(str, groups))}{able}",
    )


@judges("distributed-optimizer")
def distributed_optimizer(facts: Facts, _: Rule) -> Ruling:
    """ZeRO-1 against ZeRO-0 on this layout."""
    off, on = zero(facts, 0), zero(facts, 1)
    if off is None or on is None:
        return one_rank(facts)
    freed, found = off.reserved_bytes - on.reserved_bytes, against(facts, on, off)
    return Ruling(
        verdict="holds" if freed >= 0 and (found.better or found.ratio <= facts.error_ratio) else "fails",
        figure=size(freed, "memory_freed_bytes"),
        sentence=f"ZeRO-1 takes this layout from {gib(off.reserved_bytes)} to {gib(on.reserved_bytes)} and is "
        f"{found.words}",
    )


@judges("zero-three")
def zero_three(facts: Facts, _: Rule) -> Ruling:
    """ZeRO-3 against ZeRO-1 on this layout, as arithmetic."""
    one, three = zero(facts, 1), zero(facts, 3)
    if one is None or three is None:
        return one_rank(facts)
    freed, found = one.reserved_bytes - three.reserved_bytes, against(facts, three, one)
    return Ruling(
        verdict="does-not-apply" if three.refused_because else "holds" if freed >= 0 else "fails",
        figure=ratio("expected_change_ratio", found.ratio),
        sentence=f"ZeRO-3 instead of ZeRO-1 frees {gib(freed)} and is {found.words}{_refused(three)}",
    )


def _refused(trial: Trial) -> str:
    return f"; refused: {trial.refused_because[0]}" if trial.refused_because else ""


@judges("zero-three-under-pipeline")
def zero_three_under_pipeline(facts: Facts, _: Rule) -> Ruling:
    """ZeRO-1, 2 and 3 on the stages of this layout."""
    layout = facts.layout
    trials = [zero(facts, stage) for stage in (1, 2, 3)]
    known = [trial for trial in trials if trial is not None]
    if layout.pipeline_parallel == 1 or not known:
        return does_not_apply(facts, f"no sharding under a pipeline here (pp{layout.pipeline_parallel}, dp{layout.data_parallel})")
    one, three = known[0], known[2]
    listed = ", ".join(
        f"ZeRO-{stage} {seconds(each.step_s)} {gib(each.reserved_bytes)}" for stage, each in enumerate(known, start=1)
    )
    return Ruling(
        verdict="wrong", figure=ratio("step_change_ratio", three.step_s / one.step_s - 1.0),
        sentence=f"under {layout.pipeline_parallel} stages: {listed}; the weights would be gathered "
        f"{layout.num_microbatches} times a step{_refused(three)}",
    )


@judges("zero-two-with-pipeline")
def zero_two_with_pipeline(facts: Facts, _: Rule) -> Ruling:
    """TP 8 with ZeRO-2 and PP against any, from 1024 devices; the framework may refuse."""
    world, layout = facts.layout.world, facts.layout
    one, two = zero(facts, 1), zero(facts, 2)
    own = ""
    if one is not None and two is not None and layout.pipeline_parallel > 1:
        freed = gib(one.reserved_bytes - two.reserved_bytes)
        own = f"ZeRO-2 on this layout, against ZeRO-1: {against(facts, two, one).words}, frees {freed}{_refused(two)}"
    if world < 1024:
        return does_not_apply(facts, f"{world} devices, said from 1024" + (f"; {own}" if own else ""))
    if "tp8-zero2-pp" not in facts.best:
        best = facts.best.get("any")
        words = f"; the best here: {speed(best)}" if best is not None and best.fits else ""
        relative = against(facts, two, one).ratio if one is not None and two is not None else 0.0
        return Ruling(
            verdict="fails",
            figure=ratio("expected_change_ratio", relative),
            sentence=f"{facts.features.name} has no ZeRO-2 under a pipeline{words}" + (f"; {own}" if own else ""),
        )
    return contest(facts, "tp8-zero2-pp", "any", "TP 8 with ZeRO-2 and PP", "best of all", tail=own)


@judges("zero-three-when-short")
def zero_three_when_short(facts: Facts, _: Rule) -> Ruling:
    """ZeRO-3 where ZeRO-1 and 2 do not fit."""
    if 3 not in facts.features.zero_stages:
        return does_not_apply(facts, f"{facts.features.name} has no ZeRO-3")
    rest = facts.best.get("zero<3")
    if rest is not None and rest.fits:
        room = facts.case.capacity_bytes - rest.memory_reserved_bytes
        return contest(
            facts, "zero3", "zero<3", "ZeRO-3", "without", tail=f"memory is not short: {gib(room)} are left without ZeRO-3"
        )
    return contest(facts, "zero3", "zero<3", "ZeRO-3", "without")
