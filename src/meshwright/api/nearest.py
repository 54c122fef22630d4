"""The nearest plan that a framework can run, where it cannot run the one that was saved: what changes, why, and what that costs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.api.views.edits import Change, NearestPlan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.api.cases import Setup
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout
    from meshwright.errors import Message

MAX_EDITS = 4
"""Knobs that move at most; what follows from them is not counted."""
SEARCHED = 50
"""Plans of the framework's own search that are looked through where so few knobs do not help."""
FAR = 1.25
"""A plan is told of beside the nearest one where the nearest takes so many times its step. Our judgement."""
FOLLOWS = "follows from the other changes"
FOLLOWING = {"data_parallel", "num_microbatches", "overlap"}
"""Keys of a layout that no knob is: what is left of the devices and the batch, and what the framework does by itself."""
SHARDS = {"optimizer_shards", "gradient_shards", "parameter_shards"}
"""Keys that one knob moves: the ZeRO stage with the size of its groups."""


def refused(given: Setup, layout: Layout, *, offered: bool) -> list[Message]:
    """Why the framework cannot run a plan; with ``offered`` the option that exports the nearest one, where a layout may help."""
    from meshwright.errors import Message

    reasons = list(given.framework.check(given.case, layout)) if given.framework.writer is not None else []
    if reasons and offered and all(each.path == "layout" for each in reasons):
        reasons.append(Message("export.nearest", "--nearest exports the nearest plan that {title} can run",
                               {"title": given.framework.title}))
    return reasons


def nearest_plan(given: Setup, layout: Layout) -> NearestPlan:
    """The plan with the fewest knobs moved that the framework runs and that fits, the fastest of these; where a few do not help, of
    its best plans the one that has most in common with the saved one. Where more changes are far faster, that is said.

    Errors:  ``NoAnswerError`` with the framework's reasons where none is found.
    """
    from meshwright.errors import Message, NoAnswerError
    from meshwright.estimate import estimate as predict
    from meshwright.search import layout_refusals
    from meshwright.search.repair import Legal, repair

    case, framework = given.case, given.framework
    if not framework.check(case, layout) and not layout_refusals(case, framework.features, layout):
        return NearestPlan(layout=layout, estimate=predict(case, layout))
    found = repair(
        case, framework.features, layout, Legal(), check=framework.check, said=framework.overlap, max_edits=MAX_EDITS, limit=8
    )
    best = next((each.estimate for each in found.found if each.estimate.fits), None)
    known = [] if found.blocked else _searched(given)
    best = best or _closest(layout, known)
    if best is None:
        none = Message("export.no_nearest", "no layout of the plan's devices and batch runs under {title} and fits",
                       {"title": framework.title})
        raise NoAnswerError([*(found.blocked or refused(given, layout, offered=False)), none])
    before = found.base_estimate or predict(case, layout)
    faster = _closest(layout, [each for each in known if each.step_s * FAR <= best.step_s])
    return NearestPlan(
        layout=best.layout, estimate=best, changes=_changes(given, layout, best.layout),
        step_change_ratio=best.step_s / before.step_s - 1.0,
        memory_change_bytes=best.memory_reserved_bytes - before.memory_reserved_bytes, knobs=_moved(layout, best.layout),
        faster=faster, faster_knobs=_moved(layout, faster.layout) if faster is not None else 0,
    )


def _closest(layout: Layout, known: Sequence[Estimate]) -> Estimate | None:
    """Of some plans the one with the fewest knobs moved, the fastest of these; None where there is none."""
    return min(known, key=lambda each: (_moved(layout, each.layout), each.expected_step_s), default=None)


def _moved(before: Layout, after: Layout) -> int:
    """How many knobs differ."""
    keys = _differing(before, after).keys()
    return len(keys - FOLLOWING - SHARDS) + bool(keys & SHARDS)


def _searched(given: Setup) -> list[Estimate]:
    """The best plans of the framework's own search that it runs and that fit; empty where there are none."""
    from meshwright.errors import InputError, NoAnswerError
    from meshwright.search import plan
    from meshwright.search.result import SearchOptions

    case, framework = given.case, given.framework
    try:
        result = plan(case, framework.features, SearchOptions(top=SEARCHED, pinnable=False), runner=framework)
    except (InputError, NoAnswerError):  # no layout is legal, or the framework runs none
        return []
    return [each.estimate for each in result.plans if each.estimate.fits and not framework.check(case, each.layout)]


def _changes(given: Setup, before: Layout, after: Layout) -> tuple[Change, ...]:
    """Every key that differs, with what the framework or the rules of layouts say against its former value."""
    return tuple(
        Change(field=name, before=old, after=new, why="; ".join(_against(given, before, after, name)) or FOLLOWS)
        for name, (old, new) in _differing(before, after).items()
    )


def _differing(before: Layout, after: Layout) -> dict[str, tuple[Any, Any]]:
    """Keys of the contract's layout with both values."""
    from meshwright.api.views.estimates import layout_view

    old, new = layout_view(before), layout_view(after)
    return {name: (old[name], new[name]) for name in old if old[name] != new[name]}


def _against(given: Setup, before: Layout, after: Layout, name: str) -> Sequence[str]:
    """What speaks against one key as it was; nothing where only devices or the batch do not come out."""
    from meshwright.estimate import estimate as predict
    from meshwright.search import layout_refusals
    from meshwright.search.legality import arithmetic_refusals
    from meshwright.words import gib_of

    case, framework = given.case, given.framework
    one = replace(after, **{name: getattr(before, name)})
    if arithmetic_refusals(case, framework.features, one):
        known = set(_said(given, replace(before, **{name: getattr(after, name)})))
        return [words for words in _said(given, before) if words not in known]
    rules = [*layout_refusals(case, framework.features, one), *_said(given, one)]
    estimate = predict(case, one)
    if not rules and not estimate.fits:
        rules.append(f"does not fit otherwise: {gib_of(estimate.memory_reserved_bytes, estimate.memory_capacity_bytes)}")
    return rules


def _said(given: Setup, layout: Layout) -> list[str]:
    """Why the framework cannot run a layout."""
    return [str(replace(each, path="")) for each in given.framework.check(given.case, layout)]
