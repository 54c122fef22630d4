"""The report of ``estimate``: one layout, its figures, its memory by stage and its time by cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.estimate.figures import figures
from meshwright.report.blocks import Block, Run, Section, line, table
from meshwright.report.headline import case_header, headline, standing
from meshwright.report.packing import packing_lines
from meshwright.report.runs import closest_line
from meshwright.report.stages import host_memory, stage_memory
from meshwright.report.timesplit import time_split
from meshwright.report.verdict import BASE, amount
from meshwright.words import gib

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.api.verbs.estimate import EstimateAnswer
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.evidence.rows.near import Near
    from meshwright.report.blocks import Told


def told_of(answer: EstimateAnswer) -> Iterator[Told]:
    """What a terminal prints: the estimate, and what the framework lacks for it."""
    given, estimate = answer.given, answer.estimate
    yield from estimate_report(given.case, estimate, answer.closest)
    if given.samples is not None:
        yield from packing_lines(given.samples.figures(), given.case.batch, estimate)
    yield from note_lines(answer.notes)
    yield from limit_lines(given.framework.name, answer.limits)


def estimate_report(case: Case, estimate: Estimate, closest: Near | None = None) -> Iterator[Told]:
    """The case, the figures (beside those of the closest published run), the memory and the time of one layout."""
    yield from case_header(case)
    yield from headline(estimate)
    yield from standing(case, estimate)
    yield from closest_line(closest)
    yield from stage_memory(estimate)
    yield from host_memory(estimate)
    yield from time_split(estimate)


def note_lines(notes: Sequence[str]) -> Iterator[Block]:
    """What is to be known beside the estimate."""
    for note in notes:
        yield line(f"note: {note}", kind="note", above=True)


def limit_lines(framework: str, limits: Sequence[str]) -> Iterator[Block]:
    """What the framework lacks to run the layout."""
    for place, limit in enumerate(limits):
        yield line(f"note: {framework} cannot run this: {limit}", kind="note", above=not place)


def term_table(estimate: Estimate) -> Iterator[Told]:
    """The figures behind the figures: value, formula and grade of every term."""
    for title, terms in figures(estimate).items():
        rows = [
            (
                term.name, Run(gib(term.value) if term.unit in {"B", "bytes"} else amount(term.value, term.unit), value=term.value,
                               unit=BASE.get(term.unit, term.unit)),
                term.grade, Run(term.formula.removeprefix("meshwright."), "dim"),
            )
            for term in terms
        ]
        told = table(("term", "value", "grade", "formula"), rows, right=(1,), whole=(1, 2), least=((0, 20),))
        yield Section(title=title, blocks=(told,))
    yield line("`python -m pydoc meshwright.FORMULA` shows equation, symbols, range and source of a formula", kind="small")
