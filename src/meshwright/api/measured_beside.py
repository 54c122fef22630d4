"""What others measured of exactly the planned case, where it contradicts the plan: said beside it, with both figures."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.api.left_off import overlap_words
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
    from meshwright.evidence.rows.run import Run
    from meshwright.search.result import PlanResult, RankedPlan

FAR = 1.25
"""Times the upper end of the interval from which a measured step says that something else held the run up. Our judgement."""
ALIKE = 0.01
"""Share by which two predictions differ and are one. Our judgement."""
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
    otherwise = _otherwise(given, own, _as_it_ran(given, run))
    here = "a layout that cannot be run here" if own is None else (
        f"predicted here with {seconds(own.step_s)}, {gib(own.memory_reserved_bytes)} and a chance of "
        f"{percent(own.memory_fit_probability, 0)} to fit"
    )
    yield Message(
        "plan.measured-faster",
        "{id} measured {measured} a step with {label}, less than plan 1 is predicted to take: {here}{ran}{more}",
        {"id": run.id, "measured": seconds(_step_s(run)), "label": run.label, "here": here, "ran": otherwise,
         "more": "; it ran there, so measure it beside plan 1" if own is not None and not otherwise else ""},
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


def _as_it_ran(given: Setup, published: Published) -> tuple[Run, Estimate] | None:
    """A published run with all that its source says beside the layout, and its estimate; None where its row cannot be read."""
    from meshwright.catalog.calibrations import NONE, calibration_table
    from meshwright.estimate.single import estimate
    from meshwright.evidence.fit.linear import key_of
    from meshwright.evidence.rows.attempts import data_path
    from meshwright.evidence.rows.reading import read_row
    from meshwright.evidence.rows.run import Run
    from meshwright.evidence.rows.table import rows_like

    name = given.request["calibration"]
    rows = rows_like(data_path("measured_runs.csv"), published.id, ("id",))
    run = read_row(rows[0]) if rows and name != NONE else None
    if not isinstance(run, Run):
        return None
    fitted = calibration_table(name).calibration(run.case.calibration.constants, key_of(run))
    return run, estimate(replace(run.case, calibration=fitted), run.layout)


def _otherwise(given: Setup, own: Estimate | None, ran: tuple[Run, Estimate] | None) -> str:
    """What is predicted of a published run as it ran, and how that differs from the case, where it matters."""
    if ran is None:
        return ""
    run, theirs = ran
    if own is not None and abs(theirs.step_s / own.step_s - 1.0) < ALIKE and \
            abs(theirs.memory_reserved_bytes / own.memory_reserved_bytes - 1.0) < ALIKE:
        return ""
    differs = ", ".join(_differences(given, own, run))
    return f"; as it ran{', with ' + differs if differs else ''}: {seconds(theirs.step_s)}, {gib(theirs.memory_reserved_bytes)}"


def _differences(given: Setup, own: Estimate | None, run: Run) -> Iterator[str]:
    """How a published run of the same case ran otherwise than the case is planned."""
    overlap = own.layout.overlap if own is not None else None
    if overlap is not None and (run.layout.overlap.tensor, run.layout.overlap.expert) != (overlap.tensor, overlap.expert):
        yield overlap_words(run.layout)
    ours, theirs = (case.training.precision for case in (given.case, run.case))
    if ours.gradient_bytes != theirs.gradient_bytes:
        asked = " (--gradient-dtype bf16)" if theirs.gradient_bytes == 2 else ""
        yield f"gradients of {theirs.gradient_bytes:g} bytes, not {ours.gradient_bytes:g}{asked}"
    if ours.master_bytes != theirs.master_bytes:
        yield f"master weights of {theirs.master_bytes:g} bytes, not {ours.master_bytes:g}"
    deduplicates = [case.implementation.expert_deduplication for case in (run.case, given.case)]
    if given.case.model.is_moe and deduplicates == [True, False]:
        yield "dispatcher=flex"
    if (kind := run.case.launch.graphs) not in (None, given.case.launch.graphs):
        yield f"graphs={kind}"


def _far(planned: Estimate, run: Published) -> bool:
    upper = planned.interval.step_s[1] if planned.interval is not None else planned.step_s
    return _step_s(run) > FAR * upper


def _step_s(run: Published) -> float:
    return run.step_s or 0.0


def _words(label: str) -> frozenset[str]:
    """What two labels must share to be one layout, as far as a published one says it."""
    return frozenset(word for word in label.split() if not word.startswith(UNSAID) and word not in {"zero0", "pp1"})
