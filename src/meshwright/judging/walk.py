"""The guide's own way to a layout, step by step: what somebody with the guide in hand would choose, and what each step comes to.

The steps and their order stand in ``guides.yaml``: by which rule each chooses, which function here lists its candidates (the
guide's first wish first), and how one of them is taken. A step is a pure function of the case and of what is chosen so far; a
candidate that is not legal is passed over, and where none is left the layout stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import log
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.catalog.guides import guides
from meshwright.domain.label import OVERLAPS, recompute_word
from meshwright.domain.layout import Full, Layout, NoRecompute, Selective
from meshwright.estimate.certainty import expected_s
from meshwright.estimate.many import evaluate_many
from meshwright.estimate.single import estimate
from meshwright.judging.neighbours import OFF, shard_ranks, shards, vary
from meshwright.judging.questions import LONG_TOKENS, MICRO_BATCHES, START_PARAMETERS
from meshwright.perf.parameters import total_parameters
from meshwright.search import layout_refusals
from meshwright.search.rules import context_kinds
from meshwright.search.space import divisors

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Overlap

Knobs = Mapping[str, Any]
"""Fields of a layout that a candidate changes; the rest follows (``neighbours.vary``)."""
LARGE_BATCH_SEQUENCES = 1
"""Sequences per device from which a batch is large: the judge of the rule holds it so, too."""
STAGES = 2
CONTEXT = (2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a walk may tread on: the case, the framework's features, what it refuses, and the overlap that it has for a layout."""

    case: Case
    features: Features
    acceptable: Callable[[Layout], bool] = lambda _: True
    said: Callable[[Layout], Overlap] | None = None

    def layout(self, before: Layout, knobs: Knobs) -> Layout | None:
        """The layout with other knobs on the same devices; None where it is not legal."""
        found = vary(self.case, self.features, before, **knobs)
        if isinstance(found, str):
            return None
        kinds = context_kinds(self.case.model, self.features)
        found = replace(found, context_kind=kinds[0] if kinds and found.context_parallel > 1 else "ring")
        if self.said is not None and "overlap" not in knobs:
            found = replace(found, overlap=self.said(found))
        return None if layout_refusals(self.case, self.features, found) or not self.acceptable(found) else found

    def fits(self, layouts: list[Layout]) -> list[Layout]:
        """Those that fit."""
        if not layouts:
            return []
        _, reserved = evaluate_many(self.case, layouts)
        return [layout for layout, size in zip(layouts, reserved, strict=True) if size <= self.case.capacity_bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuidedStep:
    """One step of the walk: by which rule, what it chose, and the layout that there is then."""

    step: str
    rule: str
    source: str
    says: str
    choice: str
    """What it chose, as words of a label."""
    estimate: Estimate
    searched: str
    """The same knobs of the searched best."""
    loss_ratio: float | None
    """How much longer its expected step is than that of the searched best; None where it does not fit."""


def walk(ground: Ground, best: Estimate) -> tuple[GuidedStep, ...]:
    """The steps of the guide from nothing to a layout, each beside the searched best.

        loss = E(step) / E(best) - 1,   E the step over the probability that it fits

    Units:   ratios.
    Errors:  none; a case in which the first step finds nothing legal has no steps.
    """
    layout, begun, steps = plain(ground), False, []
    for stop in guides().walk:
        if stop.experts and not ground.case.model.is_moe:
            continue
        taken = TAKES[stop.take](ground, layout, CHOICES[stop.choose](ground, layout))
        begun = begun or taken is not None
        if not begun:
            return ()
        layout = taken or layout
        now, rule = estimate(ground.case, layout), guides().rule(stop.rule)
        loss = _expected_s(ground.case, now) / _expected_s(ground.case, best) - 1.0 if now.fits else None
        steps.append(GuidedStep(
            step=stop.step, rule=rule.id, source=rule.places, says=rule.says, choice=words(ground.case, layout, stop.knobs),
            estimate=now, searched=words(ground.case, best.layout, stop.knobs), loss_ratio=loss,
        ))
    return tuple(steps)


def plain(ground: Ground) -> Layout:
    """Data parallelism alone, micro-batch 1, sharded and recomputed as little as the framework can: where the walk begins."""
    world, batch = ground.case.cluster.num_devices, ground.case.batch.global_batch_sequences
    layout = Layout(
        data_parallel=world, num_microbatches=max(1, batch // world),
        recompute=NoRecompute() if "none" in ground.features.recompute else Full(),
    )
    sharding: dict[str, Any] = {**shards(min(ground.features.zero_stages, default=0), world)}
    return replace(layout, **sharding)


def _expected_s(case: Case, each: Estimate) -> float:
    return float(expected_s(case, np.asarray(each.step_s), np.asarray(each.memory_reserved_bytes)))


# ---- which candidates a rule has, its first wish first -------------------------------------------------------------------

def start(ground: Ground, layout: Layout) -> Iterable[Knobs]:
    """Degrees by how near n / (TP PP), or n / (ETP EP) of mixtures, is to 4 B; TP in a node, of the others no more than needed."""
    case, node = ground.case, ground.case.cluster.devices_per_node
    world, count = layout.world, total_parameters(case.model)
    every, inside = divisors(world), [degree for degree in divisors(node) if world % degree == 0]
    moe = case.model.is_moe

    def far(knobs: Knobs) -> tuple[float, ...]:
        tp, pp, ep, etp = (knobs[name] for name in PARTS)
        parts = ep * etp if moe else tp * pp
        return (round(abs(log(count / parts / START_PARAMETERS)), 9), knobs["context_parallel"], etp, pp, tp)

    names = (*PARTS, "context_parallel")
    return sorted((
        dict(zip(names, (tp, pp, ep, etp, cp), strict=True))
        for tp in inside for pp in every for cp in every if world % (tp * pp * cp) == 0
        for ep in (every if moe else (1,)) for etp in (inside if moe else (1,)) if world // pp % (ep * etp) == 0
    ), key=far)


def experts(_: Ground, layout: Layout) -> Iterator[Knobs]:
    """EP in the place of ETP: the whole product, else the EP that there is."""
    ep, etp = layout.expert_parallel, layout.expert_tensor_parallel
    yield from ({"expert_parallel": degree, "expert_tensor_parallel": 1} for degree in dict.fromkeys((ep * etp, ep)))


def stages(ground: Ground, layout: Layout) -> Iterator[Knobs]:
    """Two stages at least where the batch is large, in the place of TP; of mixtures, whose parts are experts, beside it."""
    large = ground.case.batch.global_batch_sequences >= LARGE_BATCH_SEQUENCES * layout.world
    tp, dense = layout.tensor_parallel, not ground.case.model.is_moe
    if large and layout.pipeline_parallel < STAGES and (tp > 1 or not dense):
        yield {"pipeline_parallel": STAGES} | ({"tensor_parallel": tp // STAGES} if dense else {})
    yield {}


def context(ground: Ground, layout: Layout) -> Iterator[Knobs]:
    """CP of 2 or more from 8192 tokens."""
    if ground.case.batch.sequence_tokens >= LONG_TOKENS:
        yield from ({"context_parallel": degree} for degree in CONTEXT if degree >= layout.context_parallel)
    yield {}


def fewer_stages(ground: Ground, layout: Layout) -> Iterator[Knobs]:
    """Fewer stages than micro-batches: the most that are, what they give up to TP as far as a node goes."""
    case, world, node = ground.case, layout.world, ground.case.cluster.devices_per_node
    for pp in reversed(divisors(layout.pipeline_parallel)):
        for tp in (layout.tensor_parallel * layout.pipeline_parallel // pp, layout.tensor_parallel):
            replicas = world // (tp * pp * layout.context_parallel)
            if tp <= node and replicas and (pp == 1 or pp < case.batch.global_batch_sequences // replicas):
                yield {"pipeline_parallel": pp, "tensor_parallel": tp}


def optimizer(ground: Ground, layout: Layout) -> Iterator[Knobs]:
    """The optimizer states over all replicas."""
    stage = min((each for each in ground.features.zero_stages if each >= 1), default=0)
    yield shards(max(stage, layout.zero_stage), shard_ranks(ground.features, layout) if stage else 1)


def parallelism(ground: Ground, layout: Layout) -> list[Knobs]:
    """The layout as it is, then ever more model parallelism: first by how much more, then stages, CP, TP, EP, and ETP last."""
    node, every = ground.case.cluster.devices_per_node, divisors(layout.world)
    now = {name: getattr(layout, name) for name in GROWN}

    def more(name: str) -> list[int]:
        most = node if name in ("tensor_parallel", "expert_tensor_parallel") else layout.world
        moe_only = name.startswith("expert") and not ground.case.model.is_moe
        return [now[name]] if moe_only else [degree for degree in every if degree % now[name] == 0 and degree <= most]

    grown = [
        dict(zip(GROWN, degrees, strict=True)) for degrees in _products([more(name) for name in GROWN], 64)
    ]
    return sorted(grown, key=lambda knobs: (
        np.prod([knobs[name] / now[name] for name in GROWN]), *(knobs[name] for name in reversed(GROWN))
    ))


def recomputes(ground: Ground, layout: Layout) -> Iterator[Knobs]:
    """None, then selective, then full; where even that does not fit, full with more model parallelism."""
    able = ground.features.recompute
    yield {"recompute": NoRecompute()}
    if "selective" in able:
        yield {"recompute": Selective(modules=ground.features.selective_default)}
    if "full" in able:
        yield from ({"recompute": Full(), **knobs} for knobs in parallelism(ground, layout))


def chunks(_: Ground, layout: Layout) -> Iterator[Knobs]:
    """One chunk or two."""
    yield {}
    if layout.pipeline_parallel > 1:
        yield {"virtual_stages": 2}


def micro_batches(_: Ground, layout: Layout) -> Iterator[Knobs]:
    """One, then more."""
    yield from ({"microbatch_sequences": size} for size in MICRO_BATCHES if size >= layout.microbatch_sequences)


def overlap_off(_: Ground, layout: Layout) -> Iterator[Knobs]:
    """Nothing beside compute; where a schedule needs its transfers beside it, nothing else."""
    yield {"overlap": OFF}
    yield {"overlap": replace(OFF, point_to_point=layout.overlap.point_to_point)}


PARTS = ("tensor_parallel", "pipeline_parallel", "expert_parallel", "expert_tensor_parallel")
GROWN = ("pipeline_parallel", "context_parallel", "tensor_parallel", "expert_parallel", "expert_tensor_parallel")
CHOICES: Mapping[str, Callable[[Ground, Layout], Iterable[Knobs]]] = {
    "start": start, "experts": experts, "stages": stages, "context": context, "fewer-stages": fewer_stages,
    "optimizer": optimizer, "parallelism": parallelism, "recomputes": recomputes, "chunks": chunks,
    "micro-batches": micro_batches, "overlap-off": overlap_off,
}
"""``choose`` of a step -> its candidates."""


def _products(lists: list[list[int]], factor: int) -> Iterator[tuple[int, ...]]:
    """One of each list, as long as all together are at most so many times the first of each."""
    if not lists:
        yield ()
        return
    first, *rest = lists
    for value in first:
        grown = value // first[0]
        if grown <= factor:
            yield from ((value, *more) for more in _products(rest, factor // grown))


# ---- which of them is taken --------------------------------------------------------------------------------------------

def legal(ground: Ground, layout: Layout, candidates: Iterable[Knobs]) -> Layout | None:
    """The first that is legal."""
    return next((found for knobs in candidates if (found := ground.layout(layout, knobs)) is not None), None)


def fitting(ground: Ground, layout: Layout, candidates: Iterable[Knobs]) -> Layout | None:
    """The first legal one that fits."""
    able = [found for knobs in candidates if (found := ground.layout(layout, knobs)) is not None]
    return next(iter(ground.fits(able)), None)


def fastest(ground: Ground, layout: Layout, candidates: Iterable[Knobs]) -> Layout | None:
    """The fastest legal one that fits, by the expected step; of equals the first."""
    able = [found for knobs in candidates if (found := ground.layout(layout, knobs)) is not None]
    return min(ground.fits(able), key=lambda each: _expected_s(ground.case, estimate(ground.case, each)), default=None)


TAKES: Mapping[str, Callable[[Ground, Layout, Iterable[Knobs]], Layout | None]] = {
    "legal": legal, "fits": fitting, "fastest": fastest,
}
"""``take`` of a step -> how it takes one of its candidates."""


# ---- words ----------------------------------------------------------------------------------------------------------------

_DEGREES = {
    "tp": "tensor_parallel", "cp": "context_parallel", "pp": "pipeline_parallel", "vp": "virtual_stages", "ep": "expert_parallel",
    "etp": "expert_tensor_parallel", "mb": "microbatch_sequences", "zero": "zero_stage",
}


def words(case: Case, layout: Layout, knobs: Iterable[str]) -> str:
    """Knobs of a layout as words of its label: ``tp8 pp2``, ``overlap=none``; those of experts where there are some."""
    said = {"recompute": recompute_word(layout.recompute), "overlap": _overlap(layout)}
    asked = [knob for knob in knobs if case.model.is_moe or knob not in ("ep", "etp")]
    return " ".join(f"{knob}={said[knob]}" if knob in said else f"{knob}{getattr(layout, _DEGREES[knob])}" for knob in asked)


def _overlap(layout: Layout) -> str:
    return ",".join(word for word, name in OVERLAPS.items() if getattr(layout.overlap, name)) or "none"
