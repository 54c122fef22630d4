"""Figures side by side: a line breaks between them, never inside one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, ConsoleOptions, RenderResult


class Pieces(Value, frozen=True, kw_only=True):
    """Pieces of text with a gap between them, indented, on as many lines as they need."""

    pieces: Sequence[Text | str]
    indent: int = 2
    gap: int = 3
    style: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Fill line after line."""
        line = Text(" " * self.indent)
        for each in self.pieces:
            piece = each if isinstance(each, Text) else Text(each, style=self.style)
            if len(line) > self.indent:
                if len(line) + self.gap + len(piece) <= options.max_width:
                    line.append(" " * self.gap)
                else:
                    yield line
                    line = Text(" " * self.indent)
            line.append_text(piece)
        yield line


