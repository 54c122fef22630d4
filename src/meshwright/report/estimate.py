"""The report of ``estimate``: one layout, its figures, its memory by stage and its time by cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.estimate.figures import figures
from meshwright.report.headline import case_header, headline, standing
from meshwright.report.runs import closest_line
from meshwright.report.stages import host_memory, stage_memory
from meshwright.report.timesplit import time_split
from meshwright.report.verdict import amount
from meshwright.words import gib

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.evidence.rows.near import Near


def estimate_report(case: Case, estimate: Estimate, closest: Near | None = None) -> Iterator[RenderableType]:
    """The case, the figures (beside those of the closest published run), the memory and the time of one layout."""
    yield from case_header(case)
    yield from headline(estimate)
    yield from standing(case, estimate)
    yield from closest_line(closest)
    yield from stage_memory(estimate)
    yield from host_memory(estimate)
    yield from time_split(estimate)


def note_lines(notes: Sequence[str]) -> Iterator[RenderableType]:
    """What is to be known beside the estimate."""
    for note in notes:
        yield Padding(Text(f"note: {note}", style="yellow"), (1, 0, 0, 0))


def limit_lines(framework: str, limits: Sequence[str]) -> Iterator[RenderableType]:
    """What the framework lacks to run the layout."""
    for place, limit in enumerate(limits):
        yield Padding(Text(f"note: {framework} cannot run this: {limit}", style="yellow"), (0 if place else 1, 0, 0, 0))


def term_table(estimate: Estimate) -> Iterator[RenderableType]:
    """The figures behind the figures: value, formula and grade of every term."""
    for title, terms in figures(estimate).items():
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
        table.add_column("term", min_width=20, overflow="fold")
        table.add_column("value", justify="right", no_wrap=True)
        table.add_column("grade", no_wrap=True)
        table.add_column("formula", overflow="fold", style="dim")
        for term in terms:
            value = gib(term.value) if term.unit in {"B", "bytes"} else amount(term.value, term.unit)
            table.add_row(term.name, value, term.grade, term.formula.removeprefix("meshwright."))
        yield Padding(Text(title, style="bold"), (1, 0, 0, 0))
        yield Padding(table, (0, 0, 0, 2))
    yield Text("`python -m pydoc meshwright.FORMULA` shows equation, symbols, range and source of a formula", style="dim")
