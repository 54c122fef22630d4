"""The guide's own way to a layout, step by step: what somebody with the guide in hand would choose, and what each step comes to.

The steps and their order stand in ``guides.yaml``: by which rule each chooses, which function of ``walk_choices`` lists its
candidates (the guide's first wish first), and how one of them is taken. A step is a pure function of the case and of what is chosen
so far; a candidate that is not legal is passed over, and where none is left the layout stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.catalog.guides import guides
from meshwright.domain.label import OVERLAPS, recompute_word
from meshwright.domain.layout import Full, Layout, NoRecompute
from meshwright.estimate.single import estimate
from meshwright.judging.neighbours import shards
from meshwright.judging.walk_choices import CHOICES
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.catalog.guides import Stop
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.judging.ground import Ground, Knobs


class GuidedStep(Value, frozen=True, kw_only=True):
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
    stops = [stop for stop in guides().walk if ground.case.model.is_moe or not stop.experts]
    begun = (plain(ground, stage) for stage in sorted(ground.features.zero_stages))
    layout = next((each for each in begun if _taken(ground, each, stops[0]) is not None), None)
    if layout is None:
        return ()
    steps = []
    for stop in stops:
        layout = _taken(ground, layout, stop) or layout
        now, rule = estimate(ground.case, layout), guides().rule(stop.rule)
        loss = now.expected_step_s / best.expected_step_s - 1.0 if now.fits else None
        steps.append(GuidedStep(
            step=stop.step, rule=rule.id, source=rule.places, says=rule.says, choice=words(ground.case, layout, stop.knobs),
            estimate=now, searched=words(ground.case, best.layout, stop.knobs), loss_ratio=loss,
        ))
    return tuple(steps)


def _taken(ground: Ground, layout: Layout, stop: Stop) -> Layout | None:
    """What a step makes of the layout so far; None where none of its candidates may be taken."""
    return TAKES[stop.take](ground, layout, CHOICES[stop.choose](ground, layout))


def plain(ground: Ground, zero_stage: int) -> Layout:
    """Data parallelism alone, micro-batch 1, recomputed as little as the framework can: where the walk begins, with the lowest ZeRO
    stage from which it comes anywhere."""
    world, batch = ground.case.cluster.num_devices, ground.case.batch.global_batch_sequences
    layout = Layout(
        data_parallel=world, num_microbatches=max(1, batch // world),
        recompute=NoRecompute() if "none" in ground.features.recompute else Full(),
    )
    sharding: dict[str, Any] = {**shards(zero_stage, world)}
    return replace(layout, **sharding)


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
    return min(ground.fits(able), key=lambda each: estimate(ground.case, each).expected_step_s, default=None)


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
