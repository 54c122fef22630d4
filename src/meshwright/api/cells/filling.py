"""Filling the cells: all of them coarsely, then one by one in place, whatever ends it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from meshwright.api.cells.difference import difference
from meshwright.api.cells.measured import by_place
from meshwright.api.cells.question import linearity_of, with_linearity
from meshwright.api.request import ticking

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.api.cells.asked import Asked
    from meshwright.api.cells.cell import Cell, Grade
    from meshwright.api.cells.difference import Difference
    from meshwright.api.cells.question import Linearity, Question
    from meshwright.api.request import Progress

    Cells = dict[tuple[str, str, int], Cell]
    Lines = dict[tuple[str, str], Linearity | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """What there is of an atlas."""

    cells: tuple[Cell, ...]
    """Predicted ones row by row, then measured ones."""
    differences: tuple[Difference, ...] | None
    missing: int
    """Cells that were not come to."""
    interrupted: bool = False


def filled(asked: Asked, *, progress: Progress | None = None, told: Callable[[Filled], None] | None = None) -> Filled:
    """The atlas, filled; ``told`` is called with the coarse one, where cells are left to refine.

    An interrupt ends what is being searched, not what was found; before the first cell it ends all.
    """
    cells: Cells = {}
    lines: Lines = {}
    interrupted = False
    try:
        _coarse(asked, cells, progress)
        _lines(asked, lines)
        if told is not None and not asked.coarse and any(each.grade == "coarse" for each in cells.values()):
            told(_gathered(asked, cells, lines))
        if not asked.coarse:
            _refined(asked, cells, progress)
    except KeyboardInterrupt:
        if not cells and not asked.measured:
            raise
        interrupted = True
    return replace(_gathered(asked, cells, lines), interrupted=interrupted)


def _coarse(asked: Asked, cells: Cells, progress: Progress | None) -> None:
    """Every cell that is not kept, by the grid alone; kept ones as they are."""
    tick = ticking(progress, "cells, coarsely")
    for number, each in enumerate(asked.questions):
        if tick is not None:
            tick(number, len(asked.questions))
        cells[each.place] = _kept_or(asked, each) or _found(asked, each, "coarse")


def _refined(asked: Asked, cells: Cells, progress: Progress | None) -> None:
    """Every coarse cell in place, as ``plan`` answers it."""
    left = [each for each in asked.questions if cells[each.place].grade == "coarse"]
    tick = ticking(progress, "cells refined")
    for number, each in enumerate(left):
        if tick is not None:
            tick(number, len(left))
        cells[each.place] = _found(asked, each, "refined")


def _found(asked: Asked, each: Question, grade: Grade) -> Cell:
    found = each.answer(grade)
    if found.label is None:  # whether anything fits is the same either way
        found = replace(found, grade="refined")
    if asked.kept.path is not None:
        asked.kept.add(each.key, found)
    return found


def _kept_or(asked: Asked, each: Question) -> Cell | None:
    return asked.kept.cells.get(each.key) if asked.kept.cells else None


def _lines(asked: Asked, lines: Lines) -> None:
    """What the cells of each row are compared with."""
    rows: dict[tuple[str, str], list[Question]] = {}
    for each in asked.questions:
        rows.setdefault(each.place[:2], []).append(each)
    for row, own in rows.items():
        lines[row] = linearity_of(own)


def _gathered(asked: Asked, cells: Cells, lines: Lines) -> Filled:
    """What there is of the atlas."""
    predicted = [with_linearity(cells[each.place], lines.get(each.place[:2])) for each in asked.questions if each.place in cells]
    found: tuple[Difference, ...] | None = None
    if asked.difference:
        runs = by_place(asked.measured)
        known = {each.place: each for each in predicted}
        found = tuple(
            difference(each.case, known[each.place], runs.get(each.place)) for each in asked.questions if each.place in known
        )
    return Filled(
        cells=(*predicted, *(each.cell for each in asked.measured)), differences=found,
        missing=len(asked.questions) - len(predicted),
    )
