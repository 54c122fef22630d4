"""A view on a terminal: every block as rich's, for any width. What a terminal cannot draw (charts, tiles) is left out.

Words and figures are those of the view; here is only where they stand and how they look.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich import box
from rich.cells import cell_len
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from meshwright.report import bars, figures, maps
from meshwright.report import pieces as side_by_side
from meshwright.report.blocks import (
    DIFFERENCE,
    Bar,
    Beside,
    Cell,
    Code,
    Folded,
    Legend,
    Paragraph,
    Pieces,
    Run,
    Section,
    Table,
)
from meshwright.report.folded import FoldedLabel
from meshwright.report.unbroken import Unbroken
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from meshwright.report.blocks import Told, Words

STYLES = {"": "", "strong": "bold", "dim": "dim", "good": "green", "bad": "red", "warn": "yellow", "accent": "cyan"}
"""Tone -> style."""
MARK = "bold black on yellow"
BADGE = 8
"""Columns of a badge that begins a line."""
LOOKS: dict[str, dict[str, Any]] = {
    "ruled": {"box": box.SIMPLE_HEAD, "show_edge": False, "pad_edge": False, "padding": (0, 1)},
    "tight": {"box": box.SIMPLE_HEAD, "show_edge": False, "pad_edge": False, "padding": (0, 1), "collapse_padding": True},
    "close": {"box": box.SIMPLE_HEAD, "show_edge": False, "pad_edge": False, "padding": (0, 1, 0, 0)},
    "plain": {"box": None, "show_header": False, "pad_edge": False, "padding": (0, 1)},
    "grid": {"box": None, "show_header": False, "show_edge": False, "pad_edge": False, "padding": (0, 2), "collapse_padding": True},
    "headed": {"box": None, "pad_edge": False, "padding": (0, 1), "header_style": "dim"},
}
_CHANGED = {"+": "green", "-": "red", "@": "cyan"}


def renderables(parts: Iterable[Told]) -> Iterator[RenderableType]:
    """Sections and blocks, one after the other."""
    for part in parts:
        match part:
            case Section():
                yield Padding(_heading(part), (1, 0, 0, 0))
                yield from renderables(part.blocks)
            case Folded() | Beside():
                yield from renderables(part.blocks)
            case Paragraph(whole=True, above=True):  # inside a padding it would be cut at the edge
                yield from (Text(), _paragraph(replace(part, above=False)))
            case Paragraph():
                yield _paragraph(part)
            case Pieces():
                style = "dim" if part.kind == "small" else ""
                told = side_by_side.Pieces(pieces=[text_of(each, style) for each in part.pieces], indent=part.indent)
                yield _placed(told, 0, part.above)
            case Table():
                yield _placed(_table(part), part.indent, part.above)
                if part.notes and not part.choices:
                    yield from _notes(part)
            case Bar():
                yield Padding(_bar(part), (0, 0, 0, 2))
            case Legend():
                yield bars.Legend(parts=part.parts)
            case Code(name=name, text=text) if name == DIFFERENCE:
                yield difference(text)


def text_of(said: Words, style: str = "") -> Text:
    """Runs as a text."""
    return Text.assemble(*((each.text, style_of(each)) for each in said), style=style)


def style_of(run: Run) -> str:
    """The style of a run."""
    if run.badge and run.bold and run.tone == "warn":
        return MARK
    return " ".join(filter(None, ("bold" if run.bold else "", STYLES[run.tone])))


def _heading(section: Section) -> Text:
    said = Text.assemble((section.title, "bold"), f"  {section.remark}" if section.remark else "")
    return said.append("  ").append(section.mark, style=MARK) if section.mark else said


def _paragraph(part: Paragraph) -> RenderableType:
    style = {"small": "dim", "note": "yellow"}.get(part.kind, "")
    said = text_of(part.words, style)
    if part.kind == "item":
        hanging = RichTable.grid()
        hanging.add_row("- ", Unbroken.of(said))
        return _placed(hanging, part.indent, part.above)
    if part.kind == "head" and part.words[0].badge:
        said = text_of((replace(part.words[0], text=f"{part.words[0].text:<{BADGE}}"), *part.words[1:]), style)
    if part.whole:
        return Text(" " * part.indent, no_wrap=True, overflow="ignore").append_text(said)
    return _placed(said, part.indent, part.above)


def _placed(told: RenderableType, indent: int, above: bool) -> RenderableType:
    return Padding(told, (int(above), 0, 0, indent)) if indent or above else told


def _bar(bar: Bar) -> bars.StackedBar:
    return bars.StackedBar(parts=bar.parts, scale=bar.scale, width=bar.width, limit=bar.limit, least=bar.least)


def _notes(table: Table) -> Iterator[RenderableType]:
    for note in table.notes:
        yield Padding(text_of(note, "dim"), (0, 0, 0, 2))


def _table(table: Table) -> RenderableType:
    if table.look == "map":
        return maps.Map(
            noun=table.head[0], names=[_said(row[0]) for row in table.rows], heads=table.head[1:],
            cells=[[(_said(each), each.shade, style_of(each.words[0]) if each.words else "") for each in row[1:]]
                   for row in table.rows],
        )
    if table.groups:
        columns = [_plain_column(table, place) for place in range(len(table.head))]
        names = [_said(row[0]) for row in table.rows]
        return figures.Figures(
            noun=table.head[0], names=names, groups=[[columns[place] for place in group] for group in table.groups]
        )
    return _Chosen(table) if table.choices else _rich_table(table, range(len(table.head)))


def _plain_column(table: Table, place: int) -> figures.Column:
    return figures.Column(heading=table.head[place], cells=[_said(row[place]) for row in table.rows])


def _said(cell: Cell) -> str:
    return "".join(each.text for each in cell.words)


def _rich_table(table: Table, shown: Sequence[int]) -> RichTable:
    """The table with some of its columns."""
    told = RichTable(**LOOKS[table.look])
    least = dict(table.least)
    if table.choices:  # whether a choice fits is seen only where columns that are never broken keep their width
        columns = ((place, [_said(row[place]) for row in table.rows]) for place in table.whole)
        least |= {place: max(map(cell_len, (*table.head[place].split("\n"), *own))) for place, own in columns}
    for place in shown:
        told.add_column(
            table.head[place], justify="right" if place in table.right else "left", no_wrap=place in table.whole,
            overflow="fold", min_width=least.get(place),
        )
    for number, row in enumerate(table.rows):
        if number in table.ruled:
            told.add_section()
        told.add_row(*(_cell(row[place]) for place in shown), style="bold" if number in table.bold else "")
    return told


def _cell(cell: Cell) -> RenderableType:
    if cell.bar is not None:
        return _bar(cell.bar)
    if cell.key is not None:
        return Text(cell.key.letter, style=cell.key.style)
    return FoldedLabel(_said(cell)) if cell.label else Unbroken.of(text_of(cell.words))


def difference(text: str) -> Text:
    """A difference of files, its lines by their colours."""
    said = Text(no_wrap=True)
    for line in text.splitlines():
        file = line.startswith(("+++", "---"))
        said.append(f"{line}\n", style="bold" if file else _CHANGED.get(line[:1], ""))
    return said


class _Chosen(Value, frozen=True):
    """A table with the first choice of columns that there is room for, else with the last."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table of a width, then its notes."""
        least = _least_widths(console, options.update(max_width=10 * options.max_width), self.table)
        for choice in self.table.choices:
            forced = choice.from_width is not None and options.max_width + self.table.indent >= choice.from_width
            if forced or least_width(self.table, [least[place] for place in choice.shown]) <= options.max_width:
                break
        yield _rich_table(self.table, choice.shown)
        if choice.notes:
            for note in self.table.notes:
                yield text_of(note, "dim")


def least_width(table: Table, columns: Sequence[int]) -> int:
    """Columns of a terminal that a table needs whose own columns need so many.

    Holds:   what rich says of the same table, which measures every cell for every choice twice.
    Source:  rich's ``Table``, asked by ``tests/report/test_chosen_columns.py``.
    """
    look = LOOKS[table.look]
    _, right, _, left = Padding.unpack(look["padding"])
    gap = right + (max(0, left - right) if look.get("collapse_padding") else left) + bool(look["box"])
    return sum(columns) + (len(columns) - 1) * gap


def _least_widths(console: Console, options: ConsoleOptions, table: Table) -> list[int]:
    """What every column of a table needs without the blanks beside it."""
    told = _rich_table(table, range(len(table.head)))
    heads = [[column.header] if told.show_header else [] for column in told.columns]
    return [
        max([column.min_width or 1, *(Measurement.get(console, options, each).minimum for each in (*head, *column.cells))])
        for head, column in zip(heads, told.columns, strict=True)
    ]
