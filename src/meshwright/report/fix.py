"""The answer of ``fix``: what was wished and seen, the changes with what they cost, and the diff of one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.domain.label import label
from meshwright.report.edits import diff_text
from meshwright.report.findings import simple
from meshwright.report.words import gib, integer, percent, plural, seconds
from meshwright.search.repair import Devices, Faster, Legal, WithinMemory
from meshwright.text import visible
from meshwright.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from meshwright.domain.estimate import Estimate
    from meshwright.fix import Change, Fixed, Observed
    from meshwright.search.repair import Nearest, Repairs, Wish

_RESUME = {"same checkpoint": "green", "reshard": "yellow", "convert": "yellow", "not possible": "red"}
MOST_STAGES = 16


def fix_view(fixed: Fixed, applied: Sequence[str] = ()) -> dict[str, Any]:
    """``fix --json``: the contract's keys, and what else is known of each change."""
    base, searched = fixed.base, fixed.repairs
    return {
        "changes": [_change_view(each) for each in fixed.changes],
        "wish": wish_words(fixed.wish), "label": label(fixed.layout),
        "base": None if base is None else {
            "fits": base.fits, "memory_peak_bytes": round(base.memory_peak_bytes),
            "memory_reserved_bytes": round(base.memory_reserved_bytes),
            "step_s": base.step_s, "stages": _stages_view(base),
        },
        "broken": [str(message) for message in fixed.broken],
        "out_of_memory": None if fixed.observed is None else _observed_view(fixed.observed),
        "bound_bytes": fixed.bound_bytes, "extra_bytes": fixed.extra_bytes,
        "searched": None if searched is None else {
            "edits": searched.searched_edits, "candidates": searched.candidates, "complete": searched.proved,
            "search_s": searched.search_s,
        },
        "nearest": None if searched is None or searched.nearest is None else _nearest_view(searched.nearest),
        "advice": [str(message) for message in fixed.advice], "remarks": [str(message) for message in fixed.remarks],
        "applied": list(applied),
    }


def _change_view(change: Change) -> dict[str, Any]:
    """One change."""
    each = change.estimate
    return {
        "edits": [
            {"field": edit.field, "from": simple(edit.before), "to": simple(edit.after), "file": edit.file or None,
             "line": edit.line or None, "resume": edit.meaning.resume if edit.meaning else None}
            for edit in change.edits
        ],
        "fits": change.fits, "memory_peak_bytes": round(each.memory_peak_bytes), "step_s": each.step_s,
        "step_change_ratio": change.step_change_ratio,
        "step_change_interval": None if change.step_change_interval is None else list(change.step_change_interval),
        "moves": [move.words for move in change.moves], "label": label(change.layout),
        "memory_reserved_bytes": each.memory_reserved_bytes, "memory_change_bytes": change.memory_change_bytes,
        "margin_bytes": change.margin_bytes, "stages": _stages_view(each), "risk": change.risk,
        "resume": change.meaning.resume, "resume_reason": change.meaning.reason, "diff": change.diff,
        "by_hand": [str(message) for message in change.by_hand], "notes": [str(message) for message in change.notes],
    }


def _stages_view(each: Estimate) -> list[dict[str, Any]]:
    return [
        {"stage": one.stage, "layers": one.layers, "memory_peak_bytes": round(one.memory.allocated_bytes),
         "memory_reserved_bytes": one.memory.reserved_bytes}
        for one in each.stages
    ]


def _observed_view(observed: Observed) -> dict[str, Any]:
    """The message that counts, and what it shows."""
    said = observed.said
    return {
        "kind": observed.kind,
        "verdicts": [
            {"kind": each.kind, "reason": str(each.message), "short_bytes": each.short_bytes} for each in observed.verdicts
        ],
        "rank": said.rank, "ranks": list(observed.ranks), "stage": observed.stage, "stage_reason": observed.why_stage,
        "phase": said.phase or None, "line": said.line,
        "requested_bytes": said.requested_bytes, "capacity_bytes": said.capacity_bytes, "free_bytes": said.free_bytes,
        "allocated_bytes": said.allocated_bytes, "unallocated_bytes": said.unallocated_bytes,
        "needed_bytes": observed.needed_bytes, "margin_bytes": observed.margin_bytes,
    }


def _nearest_view(nearest: Nearest) -> dict[str, Any]:
    return {
        "edits": [{"field": edit.field, "from": edit.before, "to": edit.after} for edit in nearest.edits],
        "label": label(nearest.layout), "missing": nearest.missing, "unit": nearest.unit,
    }


def wish_words(wish: Wish | None) -> str:
    """What is wished, in a few words."""
    match wish:
        case WithinMemory(bound_bytes=bound):
            return "fit in memory" if bound is None else f"fit in {gib(bound)} on each device"
        case Faster(ratio=ratio):
            return f"at least {percent(ratio)} more tokens/s"
        case Devices(count=count):
            return f"run on {plural(count, 'device')}"
        case Legal():
            return "keep every rule of layouts and of the framework"
    return "nothing"


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
        yield from _one(fixed, fixed.changes[shown - 1], shown)
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
    yield Text.assemble(("as it is  ", "dim"), label(fixed.layout))
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
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("resume", no_wrap=True)
    for number, change in enumerate(fixed.changes, start=1):
        table.add_row(
            str(number), "\n".join(move.words for move in change.moves), _memory(fixed.base, change), _left(change), _step(change),
            Text(change.meaning.resume, style=_RESUME[change.meaning.resume]),
        )
    return Padding(table, (1, 0, 0, 0))


def _memory(base: Estimate | None, change: Change) -> str:
    """``77.5 -> 66.5``, of the fullest stages."""
    after = change.estimate.memory_reserved_bytes / GIB
    if change.moves[0].sort == "environment" and len(change.moves) == 1:
        return "no pieces lost"
    return f"{after:.1f}" if base is None else f"{base.memory_reserved_bytes / GIB:.1f} -> {after:.1f}"


def _left(change: Change) -> Text:
    """What stays free on the tightest stage, with what was observed."""
    left = change.margin_bytes
    return Text("" if left is None else f"{left / GIB:.1f}", style="" if change.fits else "red")


def _step(change: Change) -> str:
    """``+6.1 % (+4.0 to +8.2)``."""
    if change.step_change_ratio is None:
        return seconds(change.estimate.step_s)
    text = f"{100 * change.step_change_ratio:+.1f} %"
    if change.step_change_interval is None:
        return text
    low, high = change.step_change_interval
    return f"{text} ({100 * low:+.0f} to {100 * high:+.0f})"


def _one(fixed: Fixed, change: Change, number: int) -> Iterator[RenderableType]:
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


def _searched(searched: Repairs | None) -> Iterator[RenderableType]:
    """How far was looked."""
    if searched is None:
        return
    sure = "complete" if searched.proved else "not proved complete: what seemed too slow was not simulated"
    many = f"every combination of up to {plural(searched.searched_edits, 'edit')}, {integer(searched.candidates)} in all"
    yield Text(f"searched: {many}, in {seconds(searched.search_s)}; {sure}", style="dim")
