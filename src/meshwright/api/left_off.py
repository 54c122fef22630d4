"""What a plan leaves off at its level of risk, and what it would save: said beside the list."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.errors import MeshwrightError, Message
from meshwright.words import percent, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.api.cases import Setup
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout
    from meshwright.search.result import PlanResult, SearchOptions

WORTH_SAYING = 0.005
"""Share of the step that is worth a line. Our judgement."""
WORDS = "with {words} plan {rank} would take {step}, {than}: --risk equivalent searches with it; it is left off since sums are " \
    "taken in another order, until a run is known to converge{dispatcher}"
UNSEARCHED = "not searched: {risk}--launch dispatcher=flex (one copy of a token per node, not per expert); for mixtures on " \
    "several nodes other layouts may be the fastest then"


def left_off(given: Setup, result: PlanResult, options: SearchOptions) -> Iterator[Message]:
    """What the listed plans take with collectives beside compute that the level of risk leaves off, where that beats the first.

    An estimate of each listed plan and no search: ``--risk equivalent`` finds a plan at least as good. Of the dispatcher of
    experts, which prefers other layouts, only that it was not searched.
    """
    if "overlap" in options.pins or options.objective != "step-time":
        return
    either = "; --launch dispatcher=flex, one copy of a token per node, is not searched either"
    dispatcher = either if _could_dispatch(given) else ""
    found = _best_overlapped(given, result) if options.risk == "exact" else None
    if found is None:
        if dispatcher:
            yield Message("plan.unsearched", UNSEARCHED, {"risk": "--risk equivalent, " if options.risk == "exact" else ""})
        return
    rank, best = found
    values = {
        "words": overlap_words(best.layout), "rank": rank, "step": seconds(best.step_s),
        "than": _less(best, result.plans[0].estimate) + ("" if rank == 1 else " than plan 1"), "dispatcher": dispatcher,
    }
    yield Message("plan.left-off", WORDS, values)


def _less(best: Estimate, first: Estimate) -> str:
    """What is saved: of the step, or where that is hardly shorter, of the expected one, which counts how likely each fits."""
    of_step, expected = (1.0 - own / other for own, other in ((best.step_s, first.step_s),
                                                              (best.expected_step_s, first.expected_step_s)))
    return f"{percent(of_step)} less" if of_step >= WORTH_SAYING else f"by the expected step {percent(expected)} less"


def _best_overlapped(given: Setup, result: PlanResult) -> tuple[int, Estimate] | None:
    """The best listed plan with all that may overlap, by its rank; None where it does not clearly beat the first."""
    from meshwright.estimate.several import estimates

    more = {plan.rank: more_overlapped(given, plan.estimate.layout) for plan in result.plans}
    layouts = {rank: layout for rank, layout in more.items() if layout is not None}
    if not layouts:
        return None
    found = zip(layouts, estimates(given.case, list(layouts.values())), strict=True)
    rank, best = min(found, key=lambda each: each[1].expected_step_s)
    return (rank, best) if best.expected_step_s <= (1.0 - WORTH_SAYING) * result.plans[0].estimate.expected_step_s else None


def _could_dispatch(given: Setup) -> bool:
    """Whether the framework has a dispatcher that sends less between nodes, where there are experts, nodes and none was named."""
    case = given.case
    return (
        case.model.is_moe and case.cluster.num_nodes > 1 and "dispatcher" not in case.launch.given
        and "flex" in given.framework.features.dispatchers and not case.implementation.expert_deduplication
    )


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
