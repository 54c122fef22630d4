"""Answering cells on several processes: each is sent a case and sends a cell; what cannot travel is answered here."""

from __future__ import annotations

import sys
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import replace
from os import cpu_count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from meshwright.evidence.fit.processes import processes, submit
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from concurrent.futures import ProcessPoolExecutor

    from meshwright.api.cells.cell import Cell, Grade
    from meshwright.api.cells.question import Linearity, Question

Result = TypeVar("Result")
MAX_JOBS = 4
"""Processes where nobody says how many: each has a whole program in memory."""
WORTH_IT = 24
"""Cells from which a process pays for its start where nobody says how many."""

Sent = tuple[str, Any, Any, str, Any, tuple[Any, ...]]
"""Series, case, features, framework with its release, options, and cases of packs."""


class Answered(Value, frozen=True, kw_only=True):
    """A question and its cell."""

    question: Question
    cell: Cell


class Workers:
    """Cells of questions, as they are found; processes begin when there is enough to do, and end with the context.

    ``jobs``: processes; None: as many as pay on the command line, and this one in Python.
    Holds:   a cell is the same wherever it is answered; with several processes their order is that in which they are done.
    """

    def __init__(self, jobs: int | None = None) -> None:
        self._jobs = jobs
        self._pool: ProcessPoolExecutor | None = None
        self._held = ExitStack()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()

    def of(self, questions: Sequence[Question], grade: Grade) -> Generator[Answered, None, None]:
        """The cells of some questions."""
        for place, cell in self._spread(_answer, questions, grade):
            yield Answered(question=questions[place], cell=cell)

    def lines(self, widest: Sequence[Question]) -> dict[int, Linearity | None]:
        """What the cells of each row are compared with; a row's question is that of its most devices. Place -> baseline."""
        return dict(self._spread(_line, widest))

    def _spread(
        self, function: Callable[..., Result], questions: Sequence[Question], *more: object
    ) -> Generator[tuple[int, Result], None, None]:
        """``function`` of each question: its place and what came of it."""
        left = {place: each for place, each in enumerate(questions) if _travels(each)}
        pays = len(left) >= WORTH_IT and _our_own_program()
        jobs = min(self._jobs or (min(MAX_JOBS, cpu_count() or 1) if pays else 1), len(left))
        if jobs > 1 and self._pool is None:
            self._pool = self._held.enter_context(processes(jobs))
        done: set[int] = set()
        if self._pool is not None:
            try:
                waiting = {submit(self._pool, _there, function, _sent(each), *more): place for place, each in left.items()}
                for future in as_completed(waiting):
                    found = future.result()
                    done.add(waiting[future])
                    yield waiting[future], found
            except BrokenProcessPool:  # no room for a second process, or a script without a main guard
                self._pool, self._jobs = None, 1
        for place, each in enumerate(questions):
            if place not in done:
                yield place, function(each, *more)


def _our_own_program() -> bool:
    """Whether the command line is what runs: a script of somebody's would be run again by each process that it has no guard for."""
    main = sys.modules["__main__"]
    name = str(getattr(main, "__package__", None) or Path(str(getattr(main, "__file__", None) or "-")).stem)
    return name.partition(".")[0] == "meshwright"


def _travels(question: Question) -> bool:
    """Whether another process can make the question again: its framework is one that is known there by its name."""
    from meshwright.errors import MeshwrightError
    from meshwright.frameworks import framework
    from meshwright.frameworks.base import Framework

    if question.never or not isinstance(question.runner, Framework):
        return False
    try:
        known = framework(question.program).for_case(question.case)
    except MeshwrightError:
        return False
    return known.features == question.features and (known.name, known.version) == (question.runner.name, question.runner.version)


def _sent(question: Question) -> Sent:
    packed = tuple(each.case for each in question.packed)
    return question.series, question.case, question.features, question.program, question.options, packed


def _there(function: Callable[..., Result], sent: Sent, *more: object) -> Result:
    """In another process: the question made again, and what comes of it."""
    from meshwright.api.cells.question import Question
    from meshwright.frameworks import framework

    series, case, features, program, options, packed = sent

    def again(one: Any) -> Question:
        own = framework(program).for_case(one)
        return Question(series=series, case=one, features=own.features, runner=own, program=program, options=options)

    return function(replace(again(case), features=features, packed=tuple(map(again, packed))), *more)


def _answer(question: Question, grade: Grade) -> Cell:
    return question.answer(grade)


def _line(question: Question) -> Linearity | None:
    from meshwright.api.cells.question import linearity_of

    return linearity_of(question)
