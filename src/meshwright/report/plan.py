"""The report of ``plan``: the case, the winner and why, the ranking, where memory and time go, what was refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.text import Text

from meshwright.domain.estimate import Infeasible
from meshwright.domain.launching import settings_of
from meshwright.report.headline import case_header, headline, standing
from meshwright.report.ranking import pareto_table, ranked_table, riskier_table
from meshwright.report.runs import closest_line
from meshwright.report.stages import stage_memory
from meshwright.report.timesplit import time_split
from meshwright.report.verdict import infeasible
from meshwright.words import integer, percent, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rich.console import RenderableType

    from meshwright.domain.case import Case
    from meshwright.evidence.rows.near import Near
    from meshwright.search.result import PlanResult

MAX_REASONS = 8


def plan_report(case: Case, result: PlanResult, closest: Near | None = None) -> Iterator[RenderableType]:
    """Everything that ``plan`` prints before comparisons and costs."""
    yield from case_header(case)
    if isinstance(result.verdict, Infeasible) or not result.plans:
        if isinstance(result.verdict, Infeasible):
            yield from infeasible(result.verdict)
        else:
            yield Padding(Text("There is no plan.", style="bold red"), (1, 0, 0, 0))
        yield from notes(result)
        yield from search_summary(result)
        return
    winner = result.plans[0]
    yield from headline(winner.estimate, title="Best plan")
    yield from standing(case, winner.estimate)
    if result.idle_devices:
        idle = f"{integer(result.idle_devices)} stay idle, in whole nodes that are paid for all the same"
        yield Text(f"  uses {integer(result.used_devices)} devices; {idle}", style="yellow")
    for reason in winner.reasons:
        yield Padding(Text(f"- {reason}"), (0, 0, 0, 2))
    yield from closest_line(closest)
    yield from ranked_table(result.plans, result.ranking_error_ratio, result.objective)
    yield from riskier_table(result.riskier)
    yield from pareto_table(result.pareto, result.objective)
    yield from stage_memory(winner.estimate)
    yield from time_split(winner.estimate)
    yield Text("  `meshwright estimate ... --layout LABEL --terms` names the formula of every figure", style="dim")
    yield Padding(Text(f"launched as {launch_line(case)} (see docs/launch.md)", style="dim"), (0, 0, 0, 2))
    yield from notes(result)
    yield from search_summary(result)


def launch_line(case: Case) -> str:
    """What a plan assumes of the launch."""
    given = case.launch.given
    words = (f"{name}={value}{' (given)' if name in given else ''}" for name, value in settings_of(case).items())
    return ", ".join(words)


def notes(result: PlanResult) -> Iterator[RenderableType]:
    """Remarks that belong to the answer; what stays idle is said beside the headline."""
    for place, note in enumerate(each for each in result.notes if each.id != "plan.idle"):
        yield Padding(Text(f"note: {note}", style="yellow"), (0 if place else 1, 0, 0, 0))


def search_summary(result: PlanResult) -> Iterator[RenderableType]:
    """How many layouts were looked at, how fast, and what the rules refused."""
    yield Padding(Text(searched_words(result), style="dim"), (1, 0, 0, 0))
    yield from rejected_lines(result.rejected)


def searched_words(result: PlanResult) -> str:
    """How many layouts there are, which of them were looked at, and how fast."""
    return (
        f"{plural(result.legal, 'legal layout')}: {integer(result.bounded)} ruled out by a bound, "
        f"{integer(result.evaluated)} evaluated, of which {integer(result.fitting)} fit; "
        f"{result.search_s:.2f} s, {integer(result.decided_per_s)} layouts/s"
    )


def refused_words(rejected: Mapping[str, int]) -> str:
    """How many layouts rules refused."""
    return f"{integer(sum(rejected.values()))} layouts refused by rules"


def rejected_rows(rejected: Mapping[str, int]) -> list[tuple[str, int, float]]:
    """Rule, how many layouts it refused, and which share of all, the most frequent first."""
    total = sum(rejected.values())
    ordered = sorted(rejected.items(), key=lambda item: (-item[1], item[0]))
    return [(reason, times, times / total) for reason, times in ordered]


def rejected_lines(rejected: Mapping[str, int]) -> Iterator[RenderableType]:
    """Counts by the rule that refused, the most frequent first."""
    rows = rejected_rows(rejected)
    if not rows:
        return
    yield Text(refused_words(rejected), style="dim")
    for reason, times, share in rows[:MAX_REASONS]:
        yield Text(f"  {integer(times):>12}  {percent(share, 0):>5}  {reason}", style="dim")
    if len(rows) > MAX_REASONS:
        rest = sum(times for _, times, _ in rows[MAX_REASONS:])
        others = plural(len(rows) - MAX_REASONS, "other rule")
        yield Text(f"  {integer(rest):>12}  {percent(sum(share for *_, share in rows[MAX_REASONS:]), 0):>5}  {others}", style="dim")
