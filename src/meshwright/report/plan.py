"""The report of ``plan``: the case, the winner and why, the ranking, where memory and time go, what was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.estimate import Infeasible
from meshwright.domain.launching import settings_of
from meshwright.report.blocks import Block, Run, Table, figure, line, table
from meshwright.report.headline import case_header, headline, standing
from meshwright.report.ranking import pareto_table, ranked_table, riskier_table
from meshwright.report.runs import closest_line
from meshwright.report.stages import stage_memory
from meshwright.report.timesplit import time_split
from meshwright.report.verdict import infeasible
from meshwright.words import integer, percent, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.api.verbs.plan import PlanAnswer
    from meshwright.domain.case import Case
    from meshwright.evidence.rows.near import Near
    from meshwright.report.blocks import Told
    from meshwright.search.result import PlanResult

MAX_REASONS = 8


def told_of(answer: PlanAnswer) -> Iterator[Told]:
    """What a terminal prints: plans, then what was asked about the first, each of whose reports is imported where it is."""
    given, result = answer.given, answer.result
    yield from plan_report(given.case, result, answer.closest)
    if given.samples is not None:
        from meshwright.report.packing import packing_lines

        best = result.plans[0].estimate if answer.ok else None
        yield from packing_lines(given.samples.figures(), given.case.batch, best, answer.tried)
    if answer.comparison is not None:
        from meshwright.report.compare import comparison_report

        yield from comparison_report(answer.comparison)
    if answer.guided is not None:
        from meshwright.report.guided import guided_report

        yield from guided_report(answer.guided, result.plans[0].estimate)
    if answer.run is not None:
        from meshwright.report.cost import run_cost_lines

        yield from run_cost_lines(answer.run, result.plans[0].estimate)
    if answer.min_devices is not None:
        from meshwright.report.cost import minimum_lines

        yield from minimum_lines(answer.min_devices)
    if answer.saved is not None:
        from meshwright.report.cost import saved_lines

        yield from saved_lines(answer.saved)


def plan_report(case: Case, result: PlanResult, closest: Near | None = None) -> Iterator[Told]:
    """Everything that ``plan`` prints before comparisons and costs."""
    yield from case_header(case)
    if isinstance(result.verdict, Infeasible) or not result.plans:
        if isinstance(result.verdict, Infeasible):
            yield from infeasible(result.verdict)
        else:
            yield line(Run("There is no plan.", "bad", bold=True), above=True)
        yield from notes(result)
        yield from search_summary(result)
        return
    winner = result.plans[0]
    yield from headline(winner.estimate, title="Best plan")
    yield from standing(case, winner.estimate)
    if result.idle_devices:
        idle = f"{integer(result.idle_devices)} stay idle, in whole nodes that are paid for all the same"
        yield line(Run(f"uses {integer(result.used_devices)} devices; {idle}", "warn"), indent=2)
    yield from reason_lines(result)
    yield from closest_line(closest)
    yield from ranked_table(result.plans, result.ranking_error_ratio, result.objective)
    yield from riskier_table(result.riskier)
    yield from pareto_table(result.pareto, result.objective)
    yield from stage_memory(winner.estimate)
    yield from time_split(winner.estimate)
    yield line("`meshwright estimate ... --layout LABEL --terms` names the formula of every figure", kind="small", indent=2)
    yield line(f"launched as {launch_line(case)} (see docs/launch.md)", kind="small", indent=2)
    yield from notes(result)
    yield from search_summary(result)


def reason_lines(result: PlanResult) -> Iterator[Block]:
    """Why the first plan is the first."""
    for reason in result.plans[0].reasons:
        yield line(reason, kind="item", indent=2)


def launch_line(case: Case) -> str:
    """What a plan assumes of the launch."""
    given = case.launch.given
    words = (f"{name}={value}{' (given)' if name in given else ''}" for name, value in settings_of(case).items())
    return ", ".join(words)


def notes(result: PlanResult, *, idle: bool = False) -> Iterator[Block]:
    """Remarks that belong to the answer; what stays idle is said beside the headline, unless it is asked for here."""
    for place, note in enumerate(each for each in result.notes if idle or each.id != "plan.idle"):
        yield line(f"note: {note}", kind="note", above=not place)


def search_summary(result: PlanResult, most: int | None = MAX_REASONS) -> Iterator[Block]:
    """How many layouts were looked at, how fast, and what the rules refused: the most frequent, and the others together."""
    yield line(searched_words(result), kind="small", above=True)
    if result.rejected:
        yield line(f"{integer(sum(result.rejected.values()))} layouts refused by rules", kind="small")
        yield rejected_table(result.rejected, most)


def searched_words(result: PlanResult) -> str:
    """How many layouts there are, which of them were looked at, and how fast."""
    return (
        f"{plural(result.legal, 'legal layout')}: {integer(result.bounded)} ruled out by a bound, "
        f"{integer(result.evaluated)} evaluated, of which {integer(result.fitting)} fit; "
        f"{result.search_s:.2f} s, {integer(result.decided_per_s)} layouts/s"
    )


def rejected_table(rejected: Mapping[str, int], most: int | None) -> Table:
    """How many layouts each rule refused, and which share of all, the most frequent first; those beyond ``most`` together."""
    total = sum(rejected.values())
    rows = sorted(rejected.items(), key=lambda item: (-item[1], item[0]))
    if most is not None and len(rows) > most:
        rest = rows[most:]
        rows = [*rows[:most], (plural(len(rest), "other rule"), sum(times for _, times in rest))]
    told = [(figure(times, integer, tone="dim"), figure(times / total, percent, 0, tone="dim"), Run(reason, "dim"))
            for reason, times in rows]
    return table(["layouts", "share", "refused because"], told, right=(0, 1), whole=(0, 1), look="plain", least=((0, 12), (1, 5)),
                 caption="Of a layout that several rules refuse the first is counted.")
