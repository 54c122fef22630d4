"""What others measured of exactly the planned case, where it contradicts the plan: said beside it, with both figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.legality import check_layout
from meshwright.errors import MeshwrightError, Message
from meshwright.units import gib
from meshwright.words import percent, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.api.cases import Setup
    from meshwright.domain.estimate import Estimate
    from meshwright.evidence.rows.near import Near
    from meshwright.evidence.rows.published_run import Published
    from meshwright.search.result import PlanResult, RankedPlan

FAR = 1.25
"""Times the upper end of the interval from which a measured step says that something else held the run up. Our judgement."""
UNSAID = ("overlap=", "context=", "layers=", "schedule=", "shard")
"""Words of a label that published runs leave out."""


def against(given: Setup, result: PlanResult, near: Near | None) -> Iterator[Message]:
    """Runs of the same model, devices and batch that took far longer than a listed plan of theirs, or less than the first plan.

    ``near``: the nearest published cell; nothing is said of one that differs in anything.
    """
    from meshwright.evidence.rows.attempts import runs_beside

    if near is None or near.differs or not near.cell.best.step_s:
        return
    runs = {_words(each.label): each for each in sorted(runs_beside(near.cell), key=_step_s, reverse=True)}
    slow = {plan.rank: run for plan in result.plans if (run := runs.get(_words(plan.label))) and _far(plan.estimate, run)}
    for rank, run in slow.items():
        plan = result.plans[rank - 1]
        yield Message(
            "plan.measured-slower",
            "plan {rank} was measured at {measured} a step, not {predicted} ({id}): something that no layout says held that run "
            "up; try it in a few steps before it is trusted{instead}",
            {"rank": rank, "measured": seconds(_step_s(run)), "predicted": seconds(plan.estimate.step_s), "id": run.id,
             "instead": _instead(result.plans, rank, slow)},
        )
    yield from _faster(given, result, near.cell.best)


def _instead(plans: tuple[RankedPlan, ...], rank: int, slow: dict[int, Published]) -> str:
    """The next plan of which no such run is known, beside the first."""
    other = next((each.rank for each in plans if each.rank not in slow), None)
    return f"; plan {other} is the first of which no such run is known" if rank == 1 and other else ""


def _faster(given: Setup, result: PlanResult, run: Published) -> Iterator[Message]:
    """That somebody took less time than the first plan is predicted to take, and what is predicted of that layout here."""
    first = result.plans[0]
    if _step_s(run) >= first.estimate.step_s or _words(run.label) == _words(first.label):
        return
    own = _predicted(given, run.label)
    here = "a layout that cannot be run here" if own is None else (
        f"predicted here with {seconds(own.step_s)}, {gib(own.memory_reserved_bytes)} and a chance of "
        f"{percent(own.memory_fit_probability, 0)} to fit"
    )
    yield Message(
        "plan.measured-faster",
        "{id} measured {measured} a step with {label}, less than plan 1 is predicted to take: {here}{more}",
        {"id": run.id, "measured": seconds(_step_s(run)), "label": run.label, "here": here,
         "more": "; it ran there, so measure it beside plan 1" if own is not None else ""},
    )


def _predicted(given: Setup, label: str) -> Estimate | None:
    """The estimate of a published layout for the case; None where it is not legal, or the framework refuses it."""
    from meshwright.estimate.single import estimate

    try:
        layout = given.layout(label)
        check_layout(given, layout, framework_asked=True)
    except MeshwrightError:
        return None
    return estimate(given.case, layout)


def _far(planned: Estimate, run: Published) -> bool:
    upper = planned.interval.step_s[1] if planned.interval is not None else planned.step_s
    return _step_s(run) > FAR * upper


def _step_s(run: Published) -> float:
    return run.step_s or 0.0


def _words(label: str) -> frozenset[str]:
    """What two labels must share to be one layout, as far as a published one says it."""
    return frozenset(word for word in label.split() if not word.startswith(UNSAID) and word not in {"zero0", "pp1"})
