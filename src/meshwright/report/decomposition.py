"""Peaks of stages taken apart: what layers, ends and middle stages hold, how sure that is, and which dry runs would tell more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.report.balance import figure
from meshwright.words import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from meshwright.search.balance.decompose import Decomposition
    from meshwright.search.balance.probes import ProbeProposal, ProbeRound


def decomposition_report(found: Decomposition) -> Iterator[RenderableType]:
    """The memories with their intervals, then how far the peaks lie from them."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    table.add_column("memory", no_wrap=True)
    for name in ("MB", "95 % within", "moves by"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in found.components:
        ends = "" if each.interval_mb is None else f"{figure(round(each.interval_mb[0]))} to {figure(round(each.interval_mb[1]))}"
        table.add_row(each.name, figure(round(each.value_mb)), ends, f"{each.sensitivity:.2g} x")
    yield Padding(Text("Memories from the peaks", style="bold"), (1, 0, 0, 0))
    yield Padding(table, (0, 0, 0, 2))
    yield Text("  moves by: MB for an error of 1 MB in the peaks", style="dim")
    yield from _residuals(found)


def _residuals(found: Decomposition) -> Iterator[RenderableType]:
    """How well the memories explain the peaks."""
    peaks, unknowns = len(found.residuals), len(found.components)
    if found.exact:
        yield Text(f"  {peaks} peaks determine {unknowns} memories exactly: nothing says how good the fit is")
        return
    worst = max(found.residuals, key=lambda each: abs(each.residual_mb))
    place = f"stage {worst.peak.stage}" + (f" of round {worst.peak.round + 1}" if found.runs.rounds > 1 else "")
    yield Text(
        f"  {peaks} peaks for {unknowns} memories: residuals of {figure(round(found.rms_mb))} MB (root mean square), "
        f"at most {figure(round(found.max_residual_mb))} MB ({place})"
    )
    signed = ", ".join(f"{each.peak.stage}: {each.residual_mb:+z.0f}" for each in found.residuals if each.judged)
    yield Text(f"  residuals by stage: {signed}", style="dim")
    yield Text(f"  bounds are lowered by {figure(round(found.margin_mb))} MB, which the fit may be wrong by")


def guide_report(proposal: ProbeProposal) -> Iterator[RenderableType]:
    """Which dry runs to make, in MindFormers' words, and whose peaks to note."""
    for message in proposal.missing:
        yield Text(f"open: {message}", style="yellow")
    if not proposal.rounds:
        yield Text("the peaks that are known determine every memory: no further dry run is needed", style="bold green")
        return
    yield Text.assemble(
        (plural(len(proposal.rounds), "dry run"), "bold"),
        f": {proposal.equations} peaks for {len(proposal.unknowns)} memories ({', '.join(proposal.unknowns)})",
    )
    for place, each in enumerate(proposal.rounds, start=1):
        yield from _round(each, place)
    yield Padding(
        Text("note the peaks under memory_usage of an init file, then: meshwright balance FILE.yaml", style="dim"), (1, 0, 0, 0)
    )


def _round(each: ProbeRound, place: int) -> Iterator[RenderableType]:
    """One dry run."""
    yield Padding(Text(f"round {place}: note the peak of {_places(each.stages)}", style="bold"), (1, 0, 0, 0))
    for name in ("offset", "recompute", "select_recompute", "select_comm_recompute"):
        yield Text(f"  {name}: {list(getattr(each, name))}", no_wrap=True)


def _places(stages: Sequence[int]) -> str:
    return ("stage " if len(stages) == 1 else "stages ") + ", ".join(map(str, stages))
