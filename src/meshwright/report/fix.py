"""The answer of ``fix``: what was wished and seen, the changes with what they cost, and the diff of one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.views.fix import wish_words
from meshwright.domain.label import label
from meshwright.report.blocks import DIFFERENCE, Block, Code, Run, Section, cell, figure, line, table
from meshwright.report.edits import RESUME
from meshwright.text import visible
from meshwright.words import bare_gib, gib, integer, narrow_chance, plural, seconds, signed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.api.verbs.fix import FixAnswer
    from meshwright.domain.estimate import Estimate
    from meshwright.fix import Change, Fixed, Observed
    from meshwright.report.blocks import Cell, Table, Told
    from meshwright.search.repair import Repairs

MOST_STAGES = 16


def told_of(answer: FixAnswer) -> tuple[Told, ...]:
    """What a terminal prints."""
    return tuple(fix_report(answer.fixed, answer.number))


def fix_report(fixed: Fixed, shown: int = 1) -> Iterator[Told]:
    """Wish, what is there, what was seen, the changes, and the diff of the one that is shown."""
    yield line(Run("wish  ", "dim"), Run(wish_words(fixed.wish), "strong"))
    yield from found_lines(fixed)
    if fixed.changes:
        yield changes_table(fixed)
        change = fixed.changes[shown - 1]
        blocks = (*change_lines(fixed, change), *stage_lines(fixed.base, change), *resume_lines(change))
        yield Section(title=f"Change {shown}", remark=", ".join(move.words for move in change.moves), blocks=blocks)
    else:
        yield from without_change(fixed)
    yield from beside_lines(fixed)


def found_lines(fixed: Fixed) -> Iterator[Block]:
    """The configuration as it is, what was seen, and what is to be known of both."""
    yield line(Run("as it is  ", "dim"), label(fixed.layout) if fixed.base is None else fixed.base.label)
    base = fixed.base
    if base is not None:
        stage, need, lift = _tightest(fixed, base)
        over = need + lift - fixed.bound_bytes
        fit = f"short of {gib(over)}" if over > 0 else f"{gib(-over)} left"
        lifted = f", by what was observed {gib(lift)} more," if lift > 0 else ""
        said = f"{seconds(base.step_s)} a step; stage {stage} needs {gib(need)}{lifted} of {gib(fixed.bound_bytes)}: {fit}"
        yield line(Run(said, "" if over <= 0 else "bad"), indent=2)
    for message in fixed.broken:
        yield line(Run(f"broken: {message}", "bad"), indent=2)
    if fixed.observed is not None:
        yield from _observed(fixed.observed)
    for message in fixed.remarks:
        yield line(f"note: {message}", kind="note")


def _tightest(fixed: Fixed, base: Estimate) -> tuple[int, float, float]:
    """The stage that needs most with what was observed: its number, its prediction, and what is added to it."""
    seen = fixed.observed.stage if fixed.observed is not None else None
    needs = [
        (each.stage, each.memory.reserved_bytes, fixed.extra_bytes if seen in (None, each.stage) else 0.0) for each in base.stages
    ]
    return max(needs, key=lambda need: need[1] + need[2])


def _observed(observed: Observed) -> Iterator[Block]:
    """What the message shows."""
    said = observed.said
    who = f"rank {said.rank}" if said.rank is not None else "a rank"
    more = f" (first of {len(observed.ranks)})" if len(observed.ranks) > 1 else ""
    stage = "not known" if observed.stage is None else str(observed.stage)
    where = f", stage {stage}: {observed.why_stage}"
    yield line(Run("message  ", "dim"), f"{who}{more} in line {said.line}{where}")
    for place, verdict in enumerate(observed.verdicts):
        yield line(Run(verdict.kind, "" if place else "strong"), f": {verdict.message}", indent=2)


def without_change(fixed: Fixed) -> Iterator[Block]:
    """Why there is no change to make, or what comes nearest."""
    if fixed.wish is None and fixed.observed is None:
        yield line(Run(
            "nothing to fix: it fits, and keeps every rule; --faster, --memory and --to-devices wish for more", "good"
        ))
    elif fixed.granted:
        more = "" if fixed.observed is None else ", with what was observed, too: the layout is not what ran out"
        yield line(Run(f"nothing to change: that is so already{more}", "good"))
    else:
        yield from _nothing(fixed)


def beside_lines(fixed: Fixed) -> Iterator[Block]:
    """What else would help, and how far was looked."""
    for message in fixed.advice:
        yield line(Run(f"also: {message}", "accent"))
    yield from _searched(fixed.repairs)


def changes_table(fixed: Fixed) -> Table:
    """The changes, one a row."""
    risk = _says_chances(fixed)
    head = ("#", "change", "memory, GiB", "left", *(["fits"] if risk else []), "step", "resume")
    rows = [
        (
            str(number), "\n".join(move.words for move in change.moves), _memory(fixed.base, change), _left(change),
            *([figure(change.estimate.memory_fit_probability, narrow_chance)] if risk else []), _step(change),
            Run(change.meaning.resume.replace(" ", "\n", 1), RESUME[change.meaning.resume]),
        )
        for number, change in enumerate(fixed.changes, start=1)
    ]
    step = len(head) - 2
    return table(head, rows, right={0, *range(2, step + 1)}, whole={0, *range(2, step)}, indent=0, above=True)


def _says_chances(fixed: Fixed) -> bool:
    """Whether the calibration knows how probably a layout fits, and nothing that was observed stands above it."""
    return fixed.extra_bytes <= 0 and any(change.estimate.interval is not None for change in fixed.changes)


def _memory(base: Estimate | None, change: Change) -> str | Cell:
    """``77.5 -> 66.5``, of the fullest stages."""
    if change.moves[0].sort == "environment" and len(change.moves) == 1:
        return "no pieces lost"
    after = figure(change.estimate.memory_reserved_bytes, bare_gib)
    return cell(after) if base is None else cell(figure(base.memory_reserved_bytes, bare_gib), " -> ", after)


def _left(change: Change) -> str | Run:
    """What stays free on the tightest stage, with what was observed."""
    left = change.margin_bytes
    return "" if left is None else figure(left, bare_gib, tone="" if change.fits else "bad")


def _step(change: Change) -> Run | Cell:
    """``+6.1 %``, and below it where most runs lie: ``+4 to +8``."""
    if change.step_change_ratio is None:
        return figure(change.estimate.step_s, seconds)
    step = figure(change.step_change_ratio, signed)
    if change.step_change_interval is None:
        return step
    low, high = (Run(f"{100 * end:+z.0f}", value=end, unit="ratio") for end in change.step_change_interval)
    return cell(step, "\n", low, " to ", high)


def change_lines(fixed: Fixed, change: Change) -> Iterator[Block]:
    """One change: its diff, and what is left to do."""
    if change.diff:
        yield Code(text=change.diff.rstrip("\n"), name=DIFFERENCE)
    else:
        for edit in change.edits:
            yield line(f"{edit.field}: {_value(edit.before)} -> {_value(edit.after)}", indent=2)
    for message in change.by_hand:
        yield line(Run(f"by hand: {message}", "warn"))
    for message in change.notes:
        yield line(f"note: {message}", kind="note")


def resume_lines(change: Change) -> Iterator[Block]:
    """What a run that resumes can use, and what stays free."""
    meaning = change.meaning
    yield line("a run that resumes: ", Run(meaning.resume, RESUME[meaning.resume]), f" ({meaning.reason})")
    left = change.margin_bytes
    if left is not None:
        short = Run(f"it still does not fit: {gib(-left)} short", "bad")
        yield line(f"{gib(left)} left on the tightest stage" if left >= 0 else short)


def stage_lines(base: Estimate | None, change: Change) -> Iterator[Block]:
    """Memory of each stage before and after, where it changes."""
    if change.estimate is base:
        return
    for name, each in (("before", base), ("after", change.estimate)):
        if each is None:
            continue
        values = [bare_gib(stage.memory.reserved_bytes) for stage in each.stages]
        if len(values) > MOST_STAGES:
            values = [*values[: MOST_STAGES // 2], "...", *values[-MOST_STAGES // 2 :]]
        yield line(f"memory by stage, {name:<6}  {' '.join(values)} GiB", kind="small")


def _value(value: object) -> str:
    return "-" if value is None else visible(str(value))


def _nothing(fixed: Fixed) -> Iterator[Block]:
    """That nothing helps, what is missing, and what comes nearest."""
    if fixed.wish is None:
        yield line(Run("no change of the layout helps against this", "bad", bold=True))
        return
    yield line(Run("no change of these knobs grants the wish", "bad", bold=True))
    near = fixed.repairs.nearest if fixed.repairs is not None else None
    if near is not None:
        missing = gib(near.missing) if near.unit == "B" else seconds(near.missing)
        edits = ", ".join(edit.words for edit in near.edits) or "the layout as it is"
        yield line(f"nearest: {edits}; still {missing} missing")
    if fixed.levers:
        yield line(Run("what would close the gap:", "strong"))
    for lever in fixed.levers:
        yield line(lever, kind="item", indent=2)


def _searched(searched: Repairs | None) -> Iterator[Block]:
    """How far was looked."""
    if searched is None:
        return
    sure = "complete" if searched.proved else "not proved complete: what seemed too slow was not simulated"
    many = f"every combination of up to {plural(searched.searched_edits, 'edit')}, {integer(searched.candidates)} in all"
    yield line(f"searched: {many}, in {seconds(searched.search_s)}; {sure}", kind="small")
