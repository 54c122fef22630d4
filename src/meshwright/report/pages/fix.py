"""The page of ``fix``: the changes beside each other, and each of them in full with its diff."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.views.fix import wish_words
from meshwright.report.blocks import Block, Folded, Page, Paragraph, Section, Tile, Tiles, drawn_twice, words
from meshwright.report.fix import fix_report, one_change
from meshwright.report.page.drawn import Changed, Parted, changes, stacked
from meshwright.report.page.reading import blocks_of, body_of
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


def page_of(answer: FixAnswer) -> Page:
    """The page of an answer."""
    fixed = answer.fixed
    wish = wish_words(fixed.wish)
    if not fixed.changes:
        title = "Nothing to change" if answer.ok else "No change grants the wish"
        sections = () if fixed.base is None else (memory_section(fixed.base), time_section(fixed.base))
        return page("fix", title, subtitle=f"wish: {wish}", verdict="good" if answer.ok else "bad",
                    first=blocks_of(fix_report(fixed, answer.number)), sections=sections)
    shown = fixed.changes[answer.number - 1]
    done = Paragraph(words=words(f"changed: {', '.join(answer.applied)}"), kind="note") if answer.applied else None
    title = f"Change {answer.number} of {len(fixed.changes)}: {_moves(shown)}"
    above = tuple(each for each in body_of(fix_report(fixed, answer.number)) if not _begins(each, "wish"))
    cut = next((place for place, block in enumerate(above) if block in _table_of(fixed, answer.number)), 0)
    return page(
        "fix", title, subtitle=f"wish: {wish}", verdict="good" if shown.fits else "bad",
        first=(_tiles(fixed, shown), *([done] if done else ()), *above[:cut]),
        sections=(
            _beside(fixed, answer.number), _after(fixed, shown),
            Section(title=f"Change {answer.number} in full", blocks=_in_full(fixed, shown, answer.number)),
            _others(fixed, answer.number), time_section(shown.estimate),
        ),
    )


def _moves(change: Change) -> str:
    return ", ".join(move.words for move in change.moves).replace(" -> ", " \u2192 ")


def _begins(block: Block, words_of_it: str) -> bool:
    return isinstance(block, Paragraph) and "".join(each.text for each in block.words).startswith(words_of_it)


def _in_full(fixed: Fixed, change: Change, number: int) -> tuple[Block, ...]:
    """A change with its diff; the memory of the stages stands in bars already."""
    return tuple(each for each in body_of(one_change(fixed, change, number)) if not _begins(each, "memory by stage"))


def _table_of(fixed: Fixed, number: int) -> tuple[Block, ...]:
    """The table of all changes."""
    from meshwright.report.blocks import Table

    return tuple(each for each in blocks_of(fix_report(fixed, number)) if isinstance(each, Table))[:1]


def _others(fixed: Fixed, shown: int) -> Section:
    """Every other change with its diff."""
    return Section(title="The other changes in full", blocks=tuple(
        Folded(title=f"{number}  {_moves(change)}",
               blocks=body_of(one_change(fixed, change, number)))
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


def _beside(fixed: Fixed, number: int) -> Section:
    """All changes: what they do to the step, and the table."""
    rows = [
        Changed(name=f"{place}  {_moves(each)}", ratio=each.step_change_ratio, bad=not each.fits,
                word=signed(each.step_change_ratio))
        for place, each in enumerate(fixed.changes, start=1) if each.step_change_ratio is not None
    ]
    chart: tuple[Block, ...] = ()
    if len(rows) > 1 and any(each.ratio for each in rows):
        chart = (drawn_twice(lambda width: changes(rows, width, title="What the changes do to the step", less="shorter step",
                                                   more="longer step")),)
    return Section(title="Changes beside each other", blocks=(*chart, *_table_of(fixed, number)))


def _after(fixed: Fixed, shown: Change) -> Section | None:
    """Memory of the stages before and after."""
    base, after = fixed.base, shown.estimate
    if base is None or after is base:
        return None
    rows = [
        Parted(name=f"stage {each.stage} {name}", gap=7.0 * (name == "then"),
               parts=tuple(getattr(each.memory, part) / GIB for part, *_ in PARTS),
               word=f"{each.memory.reserved_bytes / GIB:.1f} GiB", over=each.memory.reserved_bytes > fixed.bound_bytes)
        for stage in range(max(len(base.stages), len(after.stages))) if stage < MOST_STAGES
        for name, estimate in (("now", base), ("then", after)) if stage < len(estimate.stages)
        for each in (estimate.stages[stage],)
    ]
    bound = fixed.bound_bytes / GIB
    return Section(title="Memory before and after", blocks=(drawn_twice(
        lambda width: stacked(rows, [(name, OF_STYLE[style]) for name, _, style in PARTS], width,
                              title="Memory by stage before and after", limit=bound, limit_word=f"bound {bound:.1f} GiB"),
        caption="Predicted; what was observed beside it stands above." if fixed.extra_bytes else "",
    ),))
