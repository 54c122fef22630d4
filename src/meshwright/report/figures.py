"""Tables of many figures beside a name, for any width: columns move to tables of their own before a name is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

GAP = 2
"""Blanks between columns."""
WHOLE_NAMES, LEAST_NAMES = 24, 18
"""Columns that names keep, as far as they need them: in one table, and where figures stand in several."""


class Column(Value, frozen=True, kw_only=True):
    """A heading of one or more lines, and a figure for every name."""

    heading: str
    cells: Sequence[str]

    @property
    def width(self) -> int:
        """That of its widest line."""
        return max(map(cell_len, (*self.heading.split("\n"), *self.cells)))


class Figures(Value, frozen=True, kw_only=True):
    """Names with figures: one table where it fits, else one for each group of columns, names repeated and wrapped at words."""

    noun: str
    names: Sequence[str]
    groups: Sequence[Sequence[Column]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The tables of a width, a blank line between them."""
        for place, columns in enumerate(self.tables(options.max_width)):
            if place:
                yield Text("")
            yield self._table(columns, options.max_width)

    def tables(self, width: int) -> list[list[Column]]:
        """Which columns stand in which table."""
        everything = [column for group in self.groups for column in group]
        if min(self._longest, WHOLE_NAMES) + _width(everything) <= width:
            return [everything]
        result: list[list[Column]] = []
        for group in self.groups:
            row: list[Column] = []
            for column in group:
                if row and min(self._longest, LEAST_NAMES) + _width([*row, column]) > width:
                    result.append(row)
                    row = []
                row.append(column)
            if row:
                result.append(row)
        return result

    @property
    def _longest(self) -> int:
        return max(map(cell_len, (self.noun, *self.names)))

    def _table(self, columns: Sequence[Column], width: int) -> Table:
        table = plain_table()
        table.add_column(self.noun, width=min(self._longest, max(width - _width(columns), 1)), overflow="fold")
        for column in columns:
            table.add_column(column.heading, justify="right", no_wrap=True, min_width=column.width)
        for place, name in enumerate(self.names):
            table.add_row(Text(name), *(column.cells[place] for column in columns))
        return table


def plain_table() -> Table:
    """A table with a rule below its head and two blanks between columns."""
    return Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))


def _width(columns: Sequence[Column]) -> int:
    """What columns take beside the names."""
    return sum(column.width + GAP for column in columns)
