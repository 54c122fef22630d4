"""The answer of ``fix``: what was wished and seen, the changes with what they cost, and the diff of one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.api.views.fix import wish_words
from meshwright.domain.label import label
from meshwright.report.edits import diff_text
from meshwright.report.ranking import narrow_chance
from meshwright.text import visible
from meshwright.units import GIB
from meshwright.words import gib, integer, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from meshwright.domain.estimate import Estimate
    from meshwright.fix import Change, Fixed, Observed
    from meshwright.search.repair import Repairs

_RESUME = {"same checkpoint": "green", "reshard": "yellow", "convert": "yellow", "not possible": "red"}
MOST_STAGES = 16


def fix_report(fixed: Fixed, shown: int = 1) -> Iterator[RenderableType]:
    """Wish, what is there, what was seen, the changes, and the diff of the one that is shown."""
    yield Text.assemble(("wish  ", "dim"), (wish_words(fixed.wish), "bold"))
    yield from _as_it_is(fixed)
    if fixed.observed is not None:
        yield from _observed(fixed.observed)
    for message in fixed.remarks:
        yield Text(f"note: {message}", style="yellow")
    if fixed.changes:
        yield _table(fixed)
        yield from one_change(fixed, fixed.changes[shown - 1], shown)
    elif fixed.wish is None and fixed.observed is None:
        yield Text(
            "nothing to fix: it fits, and keeps every rule; --faster, --memory and --to-devices wish for more", style="green"
        )
    elif fixed.granted:
        more = "" if fixed.observed is None else ", with what was observed, too: the layout is not what ran out"
        yield Text(f"nothing to change: that is so already{more}", style="green")
    else:
        yield from _nothing(fixed)
    for message in fixed.advice:
        yield Text(f"also: {message}", style="cyan")
    yield from _searched(fixed.repairs)


def _as_it_is(fixed: Fixed) -> Iterator[RenderableType]:
    """The configuration as it is."""
    yield Text.assemble(("as it is  ", "dim"), label(fixed.layout) if fixed.base is None else fixed.base.label)
    base = fixed.base
    if base is not None:
        stage, need, lift = _tightest(fixed, base)
        over = need + lift - fixed.bound_bytes
        fit = f"short of {gib(over)}" if over > 0 else f"{gib(-over)} left"
        lifted = f", by what was observed {gib(lift)} more," if lift > 0 else ""
        yield Text(f"  {seconds(base.step_s)} a step; stage {stage} needs {gib(need)}{lifted} of {gib(fixed.bound_bytes)}: {fit}",
                   style="" if over <= 0 else "red")
    for message in fixed.broken:
        yield Text(f"  broken: {message}", style="red")


def _tightest(fixed: Fixed, base: Estimate) -> tuple[int, float, float]:
    """The stage that needs most with what was observed: its number, its prediction, and what is added to it."""
    seen = fixed.observed.stage if fixed.observed is not None else None
    needs = [
        (each.stage, each.memory.reserved_bytes, fixed.extra_bytes if seen in (None, each.stage) else 0.0) for each in base.stages
    ]
    return max(needs, key=lambda need: need[1] + need[2])


def _observed(observed: Observed) -> Iterator[RenderableType]:
    """What the message shows."""
    said = observed.said
    who = f"rank {said.rank}" if said.rank is not None else "a rank"
    more = f" (first of {len(observed.ranks)})" if len(observed.ranks) > 1 else ""
    stage = "not known" if observed.stage is None else str(observed.stage)
    where = f", stage {stage}: {observed.why_stage}"
    yield Text.assemble(("message  ", "dim"), f"{who}{more} in line {said.line}{where}")
    for place, verdict in enumerate(observed.verdicts):
        yield Padding(Text.assemble((verdict.kind, "bold" if not place else ""), f": {verdict.message}"), (0, 0, 0, 2))


def _table(fixed: Fixed) -> RenderableType:
    """The changes, one a row."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("change", overflow="fold")
    table.add_column("memory, GiB", justify="right", no_wrap=True)
    table.add_column("left", justify="right", no_wrap=True)
    if risk := _says_chances(fixed):
        table.add_column("fits", justify="right", no_wrap=True)
    table.add_column("step", justify="right")
    table.add_column("resume")
    for number, change in enumerate(fixed.changes, start=1):
        table.add_row(
            str(number), "\n".join(move.words for move in change.moves), _memory(fixed.base, change), _left(change),
            *([narrow_chance(change.estimate.memory_fit_probability)] if risk else []), _step(change),
            Text(change.meaning.resume.replace(" ", "\n", 1), style=_RESUME[change.meaning.resume]),
        )
    return Padding(table, (1, 0, 0, 0))


def _says_chances(fixed: Fixed) -> bool:
    """Whether the calibration knows how probably a layout fits, and nothing that was observed stands above it."""
    return fixed.extra_bytes <= 0 and any(change.estimate.interval is not None for change in fixed.changes)


def _memory(base: Estimate | None, change: Change) -> str:
    """``77.5 -> 66.5``, of the fullest stages."""
    after = change.estimate.memory_reserved_bytes / GIB
    if change.moves[0].sort == "environment" and len(change.moves) == 1:
        return "no pieces lost"
    return f"{after:.1f}" if base is None else f"{base.memory_reserved_bytes / GIB:.1f} -> {after:.1f}"


def _left(change: Change) -> Text:
    """What stays free on the tightest stage, with what was observed."""
    left = change.margin_bytes
    return Text("" if left is None else f"{left / GIB:z.1f}", style="" if change.fits else "red")


def _step(change: Change) -> str:
    """``+6.1 %``, and below it where most runs lie: ``+4 to +8``."""
    if change.step_change_ratio is None:
        return seconds(change.estimate.step_s)
    text = f"{100 * change.step_change_ratio:+z.1f} %"
    if change.step_change_interval is None:
        return text
    low, high = change.step_change_interval
    return f"{text}\n{100 * low:+z.0f} to {100 * high:+z.0f}"


def one_change(fixed: Fixed, change: Change, number: int) -> Iterator[RenderableType]:
    """One change in full: its diff, what is left to do, the memory of each stage."""
    yield Padding(Text.assemble((f"Change {number}", "bold"), f"  {', '.join(move.words for move in change.moves)}"), (1, 0, 0, 0))
    if change.diff:
        yield diff_text(change.diff)
    else:
        for edit in change.edits:
            yield Text(f"  {edit.field}: {_value(edit.before)} -> {_value(edit.after)}")
    for message in change.by_hand:
        yield Text(f"by hand: {message}", style="yellow")
    for message in change.notes:
        yield Text(f"note: {message}")
    yield from _stages(fixed.base, change)
    yield Text.assemble(
        "a run that resumes: ", (change.meaning.resume, _RESUME[change.meaning.resume]), f" ({change.meaning.reason})"
    )
    left = change.margin_bytes
    if left is not None:
        yield Text(f"{gib(left)} left on the tightest stage" if left >= 0 else f"it still does not fit: {gib(-left)} short",
                   style="" if left >= 0 else "red")


def _stages(base: Estimate | None, change: Change) -> Iterator[RenderableType]:
    """Memory of each stage before and after, where it changes."""
    if change.estimate is base:
        return
    for name, each in (("before", base), ("after", change.estimate)):
        if each is None:
            continue
        values = [f"{stage.memory.reserved_bytes / GIB:.1f}" for stage in each.stages]
        if len(values) > MOST_STAGES:
            values = [*values[: MOST_STAGES // 2], "...", *values[-MOST_STAGES // 2 :]]
        yield Text(f"memory by stage, {name:<6}  {' '.join(values)} GiB", style="dim")


def _value(value: object) -> str:
    return "-" if value is None else visible(str(value))


def _nothing(fixed: Fixed) -> Iterator[RenderableType]:
    """That nothing helps, what is missing, and what comes nearest."""
    if fixed.wish is None:
        yield Text("no change of the layout helps against this", style="bold red")
        return
    yield Text("no change of these knobs grants the wish", style="bold red")
    near = fixed.repairs.nearest if fixed.repairs is not None else None
    if near is not None:
        missing = gib(near.missing) if near.unit == "B" else seconds(near.missing)
        edits = ", ".join(edit.words for edit in near.edits) or "the layout as it is"
        yield Text(f"nearest: {edits}; still {missing} missing")
    if fixed.levers:
        yield Text("what would close the gap:", style="bold")
    for lever in fixed.levers:
        yield Padding(Text(f"- {lever}"), (0, 0, 0, 2))


def _searched(searched: Repairs | None) -> Iterator[RenderableType]:
    """How far was looked."""
    if searched is None:
        return
    sure = "complete" if searched.proved else "not proved complete: what seemed too slow was not simulated"
    many = f"every combination of up to {plural(searched.searched_edits, 'edit')}, {integer(searched.candidates)} in all"
    yield Text(f"searched: {many}, in {seconds(searched.search_s)}; {sure}", style="dim")
