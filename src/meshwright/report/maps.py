"""A table as a map on a terminal: figures on the colour of their share; columns that do not fit stand in a map below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from meshwright.report.atlas_scale import ink_on, ramp
from meshwright.report.figures import LEAST_NAMES, plain_table
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

BLANKS = 1
"""Before the word of a cell."""


class Map(Value, frozen=True, kw_only=True):
    """Names, and columns of words with their shares of the scale; a word without a share has a style."""

    noun: str
    names: Sequence[str]
    heads: Sequence[str]
    cells: Sequence[Sequence[tuple[str, float | None, str]]]
    """Row by row: word, share, style."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """One table, or several of as many columns as there is room for."""
        widths = [
            max(cell_len(head), *(cell_len(row[place][0]) for row in self.cells)) + BLANKS for place, head in enumerate(self.heads)
        ]
        longest = max(map(cell_len, (self.noun, *self.names)))
        name = longest if longest + sum(widths) + len(widths) <= options.max_width else min(longest, LEAST_NAMES)
        rest = list(range(len(self.heads)))
        while rest:
            taken = [rest.pop(0)]
            while rest and name + sum(widths[each] + 1 for each in (*taken, rest[0])) <= options.max_width:
                taken.append(rest.pop(0))
            table = plain_table()
            table.padding = (0, 0, 0, 0)
            table.add_column(self.noun, width=name, overflow="fold")
            for each in taken:
                table.add_column(self.heads[each], justify="right", no_wrap=True, min_width=widths[each])
            for own, row in zip(self.names, self.cells, strict=True):
                table.add_row(Text(own), *(_shaded(*row[each]) for each in taken))
            yield table
            if rest:
                yield Text("")


def _shaded(word: str, share: float | None, style: str) -> Text:
    """A word on its colour."""
    if share is None:
        return Text(f" {word}", style=style)
    colour = ramp(share)
    return Text(f" {word}", style=f"{ink_on(colour)} on {colour}")
