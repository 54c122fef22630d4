"""Peaks of stages taken apart: what layers, ends and middle stages hold, how sure that is, and which dry runs would tell more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.report.blocks import Block, Run, Section, line, table
from meshwright.words import plural, unitless

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.report.blocks import Told
    from meshwright.search.balance.decompose import Decomposition
    from meshwright.search.balance.probes import ProbeProposal, ProbeRound


def decomposition_report(found: Decomposition) -> Iterator[Told]:
    """The memories with their intervals, then how far the peaks lie from them."""
    rows = []
    for each in found.components:
        ends = "" if each.interval_mb is None else " to ".join(unitless(round(end)) for end in each.interval_mb)
        rows.append((each.name, _megabytes(each.value_mb), ends, Run(f"{each.sensitivity:.2g} x", value=each.sensitivity)))
    known = table(["memory", "MB", "95 % within", "moves by"], rows, right=[1, 2, 3], whole=range(4))
    said = line("moves by: MB for an error of 1 MB in the peaks", kind="small", indent=2)
    yield Section(title="Memories from the peaks", blocks=(known, said, *_residuals(found)))


def _megabytes(value_mb: float) -> Run:
    return Run(unitless(round(value_mb)), value=value_mb, unit="mb")


def _residuals(found: Decomposition) -> Iterator[Block]:
    """How well the memories explain the peaks."""
    peaks, unknowns = len(found.residuals), len(found.components)
    if found.exact:
        yield line(f"{peaks} peaks determine {unknowns} memories exactly: nothing says how good the fit is", indent=2)
        return
    worst = max(found.residuals, key=lambda each: abs(each.residual_mb))
    place = f"stage {worst.peak.stage}" + (f" of round {worst.peak.round + 1}" if found.runs.rounds > 1 else "")
    yield line(
        f"{peaks} peaks for {unknowns} memories: residuals of {unitless(round(found.rms_mb))} MB (root mean square), "
        f"at most {unitless(round(found.max_residual_mb))} MB ({place})", indent=2,
    )
    signed = ", ".join(f"{each.peak.stage}: {each.residual_mb:+z.0f}" for each in found.residuals if each.judged)
    yield line(f"residuals by stage: {signed}", kind="small", indent=2)
    yield line(f"bounds are lowered by {unitless(round(found.margin_mb))} MB, which the fit may be wrong by", indent=2)


def guide_report(proposal: ProbeProposal) -> Iterator[Told]:
    """Which dry runs to make, in MindFormers' words, and whose peaks to note."""
    for message in proposal.missing:
        yield line(Run(f"open: {message}", "warn"))
    if not proposal.rounds:
        known = "the peaks that are known determine every memory: no further dry run is needed"
        yield line(Run(known, "good", bold=True))
        return
    yield line(
        Run(plural(len(proposal.rounds), "dry run"), "strong"),
        f": {proposal.equations} peaks for {len(proposal.unknowns)} memories ({', '.join(proposal.unknowns)})",
    )
    for place, each in enumerate(proposal.rounds, start=1):
        yield _round(each, place)
    yield line("note the peaks under memory_usage of an init file, then: meshwright balance FILE.yaml", kind="small", above=True)


def _round(each: ProbeRound, place: int) -> Section:
    """One dry run."""
    names = ("offset", "recompute", "select_recompute", "select_comm_recompute")
    lines = tuple(line(f"{name}: {list(getattr(each, name))}", whole=True, indent=2) for name in names)
    return Section(title=f"round {place}: note the peak of {_places(each.stages)}", blocks=lines)


def _places(stages: Sequence[int]) -> str:
    return ("stage " if len(stages) == 1 else "stages ") + ", ".join(map(str, stages))
