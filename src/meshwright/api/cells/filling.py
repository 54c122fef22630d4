"""Filling the cells: all of them coarsely, then one by one in place, whatever ends it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.api.cells.difference import difference
from meshwright.api.cells.measured import by_place
from meshwright.api.cells.question import with_linearity
from meshwright.api.cells.workers import Workers
from meshwright.api.request import ticking
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshwright.api.cells.asked import Asked
    from meshwright.api.cells.cell import Cell, Grade
    from meshwright.api.cells.difference import Difference
    from meshwright.api.cells.question import Linearity, Question
    from meshwright.api.request import Progress

    Cells = dict[tuple[str, str, int], Cell]
    Batch = tuple[tuple[str, int | None], ...]
    Lines = dict[tuple[str, str, Batch], Linearity | None]
    """Row and, of packs, the batch -> what its cells are compared with."""


class Filled(Value, frozen=True, kw_only=True):
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
        with Workers(asked.jobs) as workers:
            _coarse(asked, workers, cells, progress)
            _lines(asked, workers, cells, lines)
            if told is not None and not asked.coarse and any(each.grade == "coarse" for each in cells.values()):
                told(_gathered(asked, cells, lines))
            if not asked.coarse:
                _refined(asked, workers, cells, progress)
                _lines(asked, workers, cells, lines)
    except KeyboardInterrupt:
        if not cells and not asked.measured:
            raise
        interrupted = True
    return replace(_gathered(asked, cells, lines), interrupted=interrupted)


def _coarse(asked: Asked, workers: Workers, cells: Cells, progress: Progress | None) -> None:
    """Every cell that is not kept, by the grid alone; kept ones as they are."""
    kept = {each.place: cell for each in asked.questions if (cell := _kept(asked, each)) is not None}
    cells.update(kept)
    left = [each for each in asked.questions if each.place not in kept]
    _answered(asked, workers, left, cells, "coarse", ticking(progress, "cells, coarsely"))


def _refined(asked: Asked, workers: Workers, cells: Cells, progress: Progress | None) -> None:
    """Every coarse cell in place, as ``plan`` answers it."""
    left = [each for each in asked.questions if cells[each.place].grade == "coarse"]
    _answered(asked, workers, left, cells, "refined", ticking(progress, "cells refined"))


def _answered(
    asked: Asked, workers: Workers, questions: Sequence[Question], cells: Cells, grade: Grade,
    tick: Callable[[float, float], None] | None,
) -> None:
    """The cells of some questions, each in its place as soon as it is found."""
    if tick is not None and questions:
        tick(0, len(questions))
    with closing(workers.of(questions, grade)) as answers:
        for number, each in enumerate(answers, start=1):
            cells[each.question.place] = _noted(asked, each.question, each.cell)
            if tick is not None and number < len(questions):
                tick(number, len(questions))


def _noted(asked: Asked, each: Question, found: Cell) -> Cell:
    """The cell, kept where cells are kept."""
    if found.label is None:  # whether anything fits is the same either way
        found = replace(found, grade="refined")
    if asked.kept.path is not None:
        asked.kept.add(each.key, found)
    return found


def _kept(asked: Asked, each: Question) -> Cell | None:
    return asked.kept.cells.get(each.key) if asked.kept.cells else None


def _lines(asked: Asked, workers: Workers, cells: Cells, lines: Lines) -> None:
    """What the cells of each row are compared with, where it is not known: once a row, once for each batch of packs in it."""
    rows: dict[tuple[str, str], list[Question]] = {}
    for each in asked.questions:
        rows.setdefault(each.place[:2], []).append(each)
    wanted: dict[tuple[str, str, Batch], Question] = {}
    for own in rows.values():
        widest = max(own, key=lambda each: each.case.cluster.num_devices)
        for each in own:
            if (key := _line(each, cells[each.place])) not in lines:
                wanted.setdefault(key, widest.under(cells[each.place]))
    found = workers.lines(list(wanted.values()))
    lines.update({key: found[place] for place, key in enumerate(wanted)})


def _line(question: Question, cell: Cell) -> tuple[str, str, Batch]:
    """Which line of linearity a cell is on."""
    return (*question.place[:2], tuple(cell.batch.items()) if question.packed else ())


def _gathered(asked: Asked, cells: Cells, lines: Lines) -> Filled:
    """What there is of the atlas."""
    predicted = [
        with_linearity(cells[each.place], lines.get(_line(each, cells[each.place])))
        for each in asked.questions if each.place in cells
    ]
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
