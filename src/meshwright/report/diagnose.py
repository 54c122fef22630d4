"""A diagnosis as people read it: the verdict, where the step went, the findings with what to change, what was read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.diagnose.bandwidth import reached
from meshwright.report.findings import STYLES
from meshwright.report.runs import closest_line
from meshwright.units import gib
from meshwright.words import percent, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from meshwright.api.verbs.diagnose import DiagnoseAnswer
    from meshwright.diagnose.diagnosis import Diagnosis
    from meshwright.diagnose.finding import Finding
    from meshwright.diagnose.split import Split

VERDICTS = {
    "normal": ("normal: as fast as predicted, or faster", "bold green"),
    "slow": ("slow: slower than predicted", "bold yellow"),
    "failed": ("failed", "bold red"),
    "hung": ("hung", "bold red"),
    "unknown": ("no verdict: nothing to compare it with", "bold"),
}
PARTS = (
    ("compute_ratio", "compute"),
    ("communication_exposed_ratio", "communication"),
    ("waiting_ratio", "waiting"),
    ("bubble_ratio", "bubble"),
    ("data_ratio", "data"),
    ("host_ratio", "host"),
    ("idle_ratio", "idle"),
    ("other_ratio", "other"),
)
BAR = 40
MOST = 12
"""Findings that are shown."""


def diagnose_report(answer: DiagnoseAnswer) -> Iterator[Any]:
    """Verdict and figures, the split, findings worst first, guides' thresholds, files."""
    found = answer.diagnosis
    words, style = VERDICTS[found.verdict]
    yield Text(words, style=style)
    yield from _figures(found)
    if found.run.split is not None:
        yield from _split(found.run.split)
    if found.expected:
        yield Padding(_expected(found), (1, 0, 0, 0))
    if found.findings:
        yield Text("")
    for each in found.findings[:MOST]:
        yield from _finding(each)
    if len(found.findings) > MOST:
        yield Text(f"and {plural(len(found.findings) - MOST, 'finding')} more: --json has all", style="dim")
    if not found.findings:
        yield Padding(Text("nothing found that costs time or memory"), (1, 0, 0, 0))
    yield from _guides(found)
    yield from closest_line(answer.closest)
    yield Text("")
    for file, names in answer.observed.read[:MOST]:
        yield Text(f"read {file}: {', '.join(names)}", style="dim", no_wrap=True)
    if len(answer.observed.read) > MOST:
        yield Text(f"and {plural(len(answer.observed.read) - MOST, 'file')} more", style="dim")
    for why in answer.observed.left[:MOST]:
        yield Text(f"left {why}", style="dim", no_wrap=True)
    for note in (*(str(each) for each in answer.notes if each not in answer.observed.left), *found.notes):
        yield Text(f"note: {note}", style="dim")


def _figures(found: Diagnosis) -> Iterator[RenderableType]:
    run = found.run
    steady, pieces = run.steady, []
    if run.step_s is not None:
        span = f" ({seconds(steady.low_s)} to {seconds(steady.high_s)})" if steady is not None and len(steady.steps) > 1 else ""
        pieces.append(f"{seconds(run.step_s)} a step{span}")
    if steady is not None:
        dropped = f", {steady.dropped} of warming up left out" if steady.dropped else ""
        pieces.append(f"{plural(len(steady.steps), 'step')}{dropped}")
    if run.tokens_per_s_per_device is not None:
        pieces.append(f"{run.tokens_per_s_per_device:,.0f} tokens/s/device")
    if run.model_flops_per_s_per_device is not None:
        pieces.append(f"{run.model_flops_per_s_per_device / 1e12:,.1f} TFLOP/s/device")
    if run.mfu_ratio is not None:
        pieces.append(f"MFU {percent(run.mfu_ratio)}")
    if run.memory_bytes is not None:
        pieces.append(f"{gib(run.memory_bytes)} reserved at most")
    if run.world is not None:
        pieces.append(plural(run.world, "device"))
    if pieces:
        yield Padding(Text("   ".join(pieces)), (0, 0, 0, 2))
    for each in reached(run.bandwidths)[:MOST]:
        ranks = f" of {each.ranks:,} ranks" if each.ranks else ""
        bus = f"{each.bus_bytes_per_s / 1e9:.3g} GB/s of bus bandwidth at most"
        yield Padding(Text(f"{each.operation}{ranks}: {bus}, with messages of {each.message_bytes:,.0f} bytes"), (0, 0, 0, 2))
    if run.label is not None:
        model = f"{run.case.model.name}   " if run.case is not None else ""
        yield Padding(Text(f"{model}{run.label}", style="dim"), (0, 0, 0, 2))


def _split(split: Split) -> Iterator[RenderableType]:
    yield Padding(Text(f"Where a step of {seconds(split.step_s)} goes, by {split.about}", style="bold"), (1, 0, 0, 0))
    for name, word in PARTS:
        ratio = getattr(split, name)
        if ratio is None or (not ratio and name != "compute_ratio"):
            continue
        bar = "█" * max(0, min(BAR, round(ratio * BAR)))
        within = (
            f"  ({', '.join(f'{key} {seconds(value)}' for key, value in split.exposed.items() if value)})"
            if word == "communication"
            else ""
        )
        yield Text(f"  {word:<14}{percent(ratio):>7}  {bar}{within}".replace("  ()", ""), no_wrap=True)
    if split.communication_exposed_ratio is None:
        yield Text("  communication is not known: no communication kernels were recognised", style="dim")


def _expected(found: Diagnosis) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("part", "observed", "predicted", "90 % lie within"):
        table.add_column(name, justify="left" if name == "part" else "right")
    for each in found.expected:
        if each.observed_s is None and each.part != "step":
            continue
        between = f"{seconds(each.interval[0])} to {seconds(each.interval[1])}" if each.interval is not None else ""
        table.add_row(each.part, "?" if each.observed_s is None else seconds(each.observed_s), seconds(each.predicted_s), between)
    return table


def worth(loss_ratio: float | None, gain_ratio: float | None, change: str | None, *, at_most: bool) -> tuple[str, str]:
    """What a finding costs, and what would be won by which change; blank where nobody knows."""
    lost = "" if loss_ratio is None else f"{percent(loss_ratio)} lost"
    if not gain_ratio:
        return lost, ""
    return lost, f"at most {percent(gain_ratio)} less without it" if at_most else f"{percent(gain_ratio)} less with {change}"


def _finding(each: Finding) -> Iterator[RenderableType]:
    head = Text.assemble((f"{each.severity:<8}", STYLES[each.severity]), (each.id, "bold"))
    lost, won = worth(each.loss_ratio, each.predicted_gain_ratio, each.change, at_most=each.at_most)
    head.append(f"  {lost}" if lost else "")
    head.append(f"   {won}" if won else "", style="green")
    yield head
    yield Padding(Text(each.message.words), (0, 0, 0, 8))
    for seen in each.evidence[:3]:
        where = "" if seen.place is None else f"{seen.place.file}:{seen.place.line}" if seen.place.line else seen.place.file
        yield Padding(Text(f"{seen.text}  {where}".rstrip(), style="dim"), (0, 0, 0, 8))
    for remedy in each.remedies[:4]:
        yield Padding(Text(f"→ {remedy}"), (0, 0, 0, 8))


def _guides(found: Diagnosis) -> Iterator[RenderableType]:
    known = [each for each in found.guides if each.holds is not None]
    if known:
        yield Padding(Text("The guides' thresholds", style="bold"), (1, 0, 0, 0))
    for each in known:
        assert each.observed_ratio is not None, "what holds or not was observed"
        yield Text(
            f"  {'holds' if each.holds else 'fails':<6} {each.says}: {percent(each.observed_ratio)}  ({each.source})",
            style="" if each.holds else "yellow",
        )
