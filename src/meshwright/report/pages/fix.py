"""The page of ``fix``: the changes beside each other, and each of them in full with its diff."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.views.fix import wish_words
from meshwright.report.blocks import Block, Folded, Paragraph, Section, Tile, Tiles, View, words
from meshwright.report.fix import (
    beside_lines,
    change_lines,
    changes_table,
    found_lines,
    resume_lines,
    stage_lines,
    told_of,
    without_change,
)
from meshwright.report.page.drawn import Changed, Parted
from meshwright.report.page.plots import plot
from meshwright.report.page.theme import OF_STYLE
from meshwright.report.pages.common import memory_section, page, time_section
from meshwright.report.stages import PARTS
from meshwright.units import GIB
from meshwright.words import gib, seconds, signed

if TYPE_CHECKING:
    from meshwright.api.verbs.fix import FixAnswer
    from meshwright.fix import Change, Fixed

MOST_STAGES = 8
"""Of a longer pipeline the first stages and the fullest are drawn before and after."""


def page_of(answer: FixAnswer) -> View:
    """The view of an answer."""
    fixed, number = answer.fixed, answer.number
    wish, told = wish_words(fixed.wish), told_of(answer)
    if not fixed.changes:
        title = "Nothing to change" if answer.ok else "No change grants the wish"
        sections = () if fixed.base is None else (memory_section(fixed.base), time_section(fixed.base))
        return page("fix", title, subtitle=f"wish: {wish}", verdict="good" if answer.ok else "bad", told=told,
                    first=(*found_lines(fixed), *without_change(fixed), *beside_lines(fixed)), sections=sections)
    shown = fixed.changes[number - 1]
    done = Paragraph(words=words(f"changed: {', '.join(answer.applied)}"), kind="note") if answer.applied else None
    return page(
        "fix", f"{_moves(shown)}: {gib(shown.estimate.memory_reserved_bytes)}, {seconds(shown.estimate.step_s)} a step",
        subtitle=f"change {number} of {len(fixed.changes)}; wish: {wish}", told=told,
        verdict="good" if shown.fits else "bad", first=(_tiles(fixed, shown), *([done] if done else ()), *found_lines(fixed)),
        sections=(
            _beside(fixed), _after(fixed, shown),
            Section(title=f"Change {number} in full", blocks=(*change_lines(fixed, shown), *resume_lines(shown))),
            _others(fixed, number), time_section(shown.estimate),
        ),
    )


def _moves(change: Change) -> str:
    return ", ".join(move.words for move in change.moves).replace(" -> ", " \u2192 ")


def _others(fixed: Fixed, shown: int) -> Section:
    """Every other change with its diff."""
    return Section(title="The other changes in full", blocks=tuple(
        Folded(title=f"{number}  {_moves(change)}",
               blocks=(*change_lines(fixed, change), *stage_lines(fixed.base, change), *resume_lines(change)))
        for number, change in enumerate(fixed.changes, start=1) if number != shown
    ))


def _tiles(fixed: Fixed, shown: Change) -> Tiles:
    """What the change that is shown comes to."""
    after, base = shown.estimate, fixed.base
    was = "" if base is None else f"now {gib(base.memory_reserved_bytes)}"
    step = "" if shown.step_change_ratio is None else f"{signed(shown.step_change_ratio)} against now"
    left = shown.margin_bytes
    return Tiles(tiles=(
        Tile(name="memory, fullest device", value=gib(after.memory_reserved_bytes), remark=was),
        Tile(name="left on the tightest stage", value="?" if left is None else gib(left), tone="bad" if (left or 0.0) < 0 else ""),
        Tile(name="step", value=seconds(after.step_s), remark=step),
        Tile(name="a run that resumes", value=shown.meaning.resume, remark=shown.meaning.reason),
    ))


def _beside(fixed: Fixed) -> Section:
    """All changes: what they do to the step, the table, and how far was looked."""
    rows = [
        Changed(name=f"{place}  {_moves(each)}", ratio=each.step_change_ratio, bad=not each.fits,
                word=signed(each.step_change_ratio))
        for place, each in enumerate(fixed.changes, start=1) if each.step_change_ratio is not None
    ]
    chart: tuple[Block, ...] = ()
    if len(rows) > 1 and any(each.ratio for each in rows):
        chart = (plot("changes", rows=rows, title="What the changes do to the step", less="shorter step", more="longer step"),)
    return Section(title="Changes beside each other", blocks=(*chart, changes_table(fixed), *beside_lines(fixed)))


def _after(fixed: Fixed, shown: Change) -> Section | None:
    """Memory of the stages before and after."""
    base, after = fixed.base, shown.estimate
    if base is None or after is base:
        return None
    rows = [
        Parted(name=f"stage {each.stage} {name}", gap=7.0 * (name == "then"),
               parts=tuple(getattr(each.memory, part) / GIB for part, *_ in PARTS),
               word=gib(each.memory.reserved_bytes), over=each.memory.reserved_bytes > fixed.bound_bytes)
        for stage in range(max(len(base.stages), len(after.stages))) if stage < MOST_STAGES
        for name, estimate in (("now", base), ("then", after)) if stage < len(estimate.stages)
        for each in (estimate.stages[stage],)
    ]
    return Section(title="Memory before and after", blocks=(plot(
        "stacked", rows=rows, parts=[(name, OF_STYLE[style]) for name, _, style in PARTS],
        title="Memory by stage before and after", limit=fixed.bound_bytes / GIB, limit_word=f"bound {gib(fixed.bound_bytes)}",
        caption="Predicted; what was observed beside it stands above." if fixed.extra_bytes else "",
    ),))
