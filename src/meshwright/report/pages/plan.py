"""The page of ``plan``: the winner and why, the ranking, memory, time, pipeline, knobs, what was refused, the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.estimate import Infeasible
from meshwright.report.blocks import (
    Block,
    Folded,
    Paragraph,
    Run,
    Section,
    View,
    flat,
    words,
)
from meshwright.report.compare import comparison_report
from meshwright.report.cost import minimum_lines, run_cost_lines
from meshwright.report.guided import guided_report
from meshwright.report.packing import packing_lines
from meshwright.report.page.drawn import Parted, Ranged
from meshwright.report.page.plots import plot
from meshwright.report.page.plotted import Paired
from meshwright.report.page.theme import OF_STYLE
from meshwright.report.pages.common import (
    asked_section,
    case_line,
    launch_section,
    memory_section,
    more_figures,
    page,
    tiles,
    time_section,
)
from meshwright.report.pages.knobs import knobs_section
from meshwright.report.pages.layouts import strip
from meshwright.report.pages.pipeline import pipeline_section
from meshwright.report.plan import notes, reason_lines, search_summary, told_of
from meshwright.report.ranking import pareto_table, ranked_table, riskier_table
from meshwright.report.rehearse import terse
from meshwright.report.runs import closest_line
from meshwright.report.stages import PARTS
from meshwright.report.svg import BLUE, GREY
from meshwright.report.verdict import amount, unmet_table
from meshwright.units import GIB
from meshwright.words import gib, percent, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.api.verbs.plan import PlanAnswer
    from meshwright.domain.estimate import Unmet
    from meshwright.search.result import PlanResult, RankedPlan

STILL = ": still "
"""In what is said of a lever that closes a part of the gap."""
CUTS = ("tp", "cp", "pp", "vp", "ep", "et", "dp", "mb", "ze")
MOST_NAMED = 12
"""Points of a front that have their names beside them."""


def page_of(answer: PlanAnswer) -> View:
    """The view of an answer."""
    result, case = answer.result, answer.given.case
    remarks, told = notes(result, idle=True), tuple(told_of(answer))
    if not answer.ok:
        unmet = result.verdict.unmet if isinstance(result.verdict, Infeasible) else ()
        gap = f": {amount(unmet[0].gap, unmet[0].unit).partition(' (')[0]} short on each device" if _of_memory(unmet) else ""
        return page(
            "plan", f"Nothing fits{gap}", subtitle=case_line(case), verdict="bad", told=told,
            first=(*(block for each in unmet for block in _unmet(each)), *remarks),
            sections=(asked_section(case), _search(result), _minimum(answer)),
        )
    best = result.plans[0]
    return page(
        "plan", f"Best plan: {seconds(best.estimate.step_s)} a step at {percent(best.estimate.mfu_ratio)} MFU",
        subtitle=case_line(case), verdict="good", told=told,
        first=(strip(best.label), tiles(best.estimate), *reason_lines(result), *remarks, more_figures(case, best.estimate)),
        sections=(
            _ranked(result), *_beside(result), memory_section(best.estimate), time_section(best.estimate),
            pipeline_section(answer.given, best.estimate), knobs_section(answer.given, best.estimate), *_asked_for(answer),
            _measured(answer), _search(result), launch_section(answer.given, best.estimate), asked_section(case),
        ),
    )


def _of_memory(unmet: Sequence[Unmet]) -> bool:
    return bool(unmet) and unmet[0].unit in ("B", "bytes")


def _unmet(unmet: Unmet) -> Iterator[Block]:
    """One constraint: what it takes against what there is, what would close the gap, and the figures to the byte."""
    yield Paragraph(words=words(unmet.constraint[0].upper() + unmet.constraint[1:]))
    if _of_memory([unmet]):
        parts = [(name, OF_STYLE[style]) for name, _, style in PARTS if name in unmet.terms]
        held = tuple(unmet.terms[name] / GIB for name, _ in parts)
        row = Parted(name="one device", parts=held, word=gib(unmet.demand), over=True)
        yield plot("stacked", rows=(row,), parts=parts, title="Memory that the least demanding layout takes",
                   limit=unmet.bound / GIB, limit_word=f"usable {gib(unmet.bound)}")
    if unmet.levers:
        yield Paragraph(words=words(Run("What would close the gap", "strong")), kind="head")
    for lever in sorted(unmet.levers, key=lambda each: STILL in each):
        yield Paragraph(words=words(Run(lever, "" if STILL in lever else "strong")), kind="item")
    yield Folded(title="To the byte", blocks=(unmet_table(unmet),))


def _ranked(result: PlanResult) -> Section:
    """Steps with their intervals, then the table."""
    plans = result.plans
    rows = [
        Ranged(name=f"{each.rank}  {_short(each)}", value=each.estimate.step_s, word=seconds(each.estimate.step_s),
               ends=each.estimate.interval.step_s if each.estimate.interval else None)
        for each in plans
    ]
    blocks = list(flat(ranked_table(plans, result.ranking_error_ratio, result.objective)))
    if len(plans) > 1:
        blocks.insert(0, plot(
            "ranges", rows=rows, title="Steps of the ranked plans", words="seconds", label="step",
            caption="The predicted step of each plan, and where most runs lie. Whiskers that overlap are plans to be measured.",
        ))
    return Section(title="Ranked plans", blocks=tuple(blocks))


def _beside(result: PlanResult) -> Iterator[Section]:
    """Riskier plans, and the front of memory against time."""
    yield from riskier_table(result.riskier)
    front = result.pareto
    if len(front) < 2:
        return
    near = [each for each in front if each.estimate.fits]
    chart: tuple[Block, ...] = ()
    if len(near) > 1:
        kinds = [Paired(name="plans that no other beats in both", points=tuple(map(_place, near)), joined=True, colour=BLUE,
                        values=tuple(map(_said, near)),
                        words=tuple(_short(each) for each in near) if len(near) <= MOST_NAMED else ())]
        others = [each for each in result.plans if each.label not in {one.label for one in near}]
        if others:
            kinds.append(Paired(name="other ranked plans", points=tuple(map(_place, others)), colour=GREY,
                                values=tuple(map(_said, others))))
        capacity = near[0].estimate.memory_capacity_bytes / GIB
        chart = (plot(
            "pairs", kinds=kinds, title="Memory against step", across="GiB reserved on the fullest device", up="expected step",
            words=("whole", "seconds"), limit=capacity, limit_word="usable", factors=True,
            caption="Down is faster, left is smaller.",
        ),)
    yield Section(title="Memory against time", blocks=(*chart, *flat(pareto_table(front, result.objective))))


def _said(plan: RankedPlan) -> str:
    return f"{plan.label}: expected {seconds(plan.estimate.expected_step_s)}, {gib(plan.estimate.memory_reserved_bytes)}"


def _place(plan: RankedPlan) -> tuple[float, float]:
    return plan.estimate.memory_reserved_bytes / GIB, plan.estimate.expected_step_s


def _short(plan: RankedPlan) -> str:
    """The words of a label that say how devices are cut, without those that say nothing."""
    kept = [each for each in terse(plan.label).split() if each[:2] in CUTS and "=" not in each]
    return " ".join(kept) or plan.label


def _asked_for(answer: PlanAnswer) -> Iterator[Section]:
    """What else was asked of the first plan."""
    best = answer.result.plans[0].estimate
    if answer.given.samples is not None:
        yield from packing_lines(answer.given.samples.figures(), answer.given.case.batch, best, answer.tried)
    if answer.comparison is not None:
        yield from comparison_report(answer.comparison)
    if answer.guided is not None:
        yield from guided_report(answer.guided, best)
    if answer.run is not None:
        yield from run_cost_lines(answer.run, best)
    if (least := _minimum(answer)) is not None:
        yield least


def _minimum(answer: PlanAnswer) -> Section | None:
    return None if answer.min_devices is None else next(minimum_lines(answer.min_devices))


def _measured(answer: PlanAnswer) -> Section | None:
    """What others measured nearest to the case."""
    return Section(title="The nearest published run", blocks=tuple(closest_line(answer.closest)))


def _search(result: PlanResult) -> Section:
    """How many layouts were looked at, and which rules refused how many."""
    return Section(title="What was searched and refused", blocks=tuple(search_summary(result, most=None)))
