"""What a plan leaves off at its level of risk, and what it would save: said beside the list."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.errors import MeshwrightError, Message
from meshwright.words import percent, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.api.cases import Setup
    from meshwright.domain.layout import Layout
    from meshwright.search.result import PlanResult, SearchOptions

WORTH_SAYING = 0.005
"""Share of the step that is worth a line. Our judgement."""
WORDS = "with {words} plan {rank} would take {step}, {than}: --risk equivalent searches with it; it is left off since sums are " \
    "taken in another order, until a run is known to converge"


def left_off(given: Setup, result: PlanResult, options: SearchOptions) -> Iterator[Message]:
    """What the listed plans take with collectives beside compute that the level of risk leaves off, where that beats the first.

    An estimate of each listed plan and no search: ``--risk equivalent`` finds a plan at least as good.
    """
    from meshwright.estimate.several import estimates

    first = result.plans[0].estimate
    if options.risk != "exact" or "overlap" in options.pins or options.objective != "step-time":
        return
    layouts = {plan.rank: layout for plan in result.plans if (layout := more_overlapped(given, plan.estimate.layout)) is not None}
    if not layouts:
        return
    found = zip(layouts, estimates(given.case, list(layouts.values())), strict=True)
    rank, best = min(found, key=lambda each: each[1].expected_step_s)
    if best.expected_step_s > (1.0 - WORTH_SAYING) * first.expected_step_s:
        return
    values = {
        "words": overlap_words(best.layout), "rank": rank, "step": seconds(best.step_s),
        "than": f"{percent(1.0 - best.step_s / first.step_s)} less" + ("" if rank == 1 else " than plan 1"),
    }
    yield Message("plan.left-off", WORDS, values)


def more_overlapped(given: Setup, own: Layout) -> Layout | None:
    """A layout with all that may overlap at ``equivalent``; None where that is no more, or the framework does not run it."""
    from meshwright.api.legality import check_layout
    from meshwright.estimate.overlap import overlap_for

    words = given.framework.features.overlap_words(given.case.training.optimizer.name)
    layout = replace(own, overlap=overlap_for(given.case, "equivalent", words))
    layout = replace(layout, overlap=given.framework.overlap(given.case, layout))
    if layout.overlap == own.overlap:
        return None
    try:
        check_layout(given, layout, framework_asked=True)
    except MeshwrightError:
        return None
    return layout


def overlap_words(layout: Layout) -> str:
    """The word of a label that says what runs beside compute, where it is not the default."""
    from meshwright.domain.label import label

    return next((word for word in label(layout).split() if word.startswith("overlap=")), "the default's overlap")
