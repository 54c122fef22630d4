"""Stacked bars that read with and without colour: blocks where there is colour, one letter per part where not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.measure import Measurement
from rich.text import Text

from meshwright.report.blocks import Part
from meshwright.report.pieces import Pieces
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

BLOCK = "\u2588"
LIMIT = "|"
MIN_BAR = 10
__all__ = ["BLOCK", "MIN_BAR", "Legend", "Part", "StackedBar", "cells"]


def cells(values: Sequence[float], scale: float, width: int) -> list[int]:
    """Cells per value so that the bar ends at round(sum / scale * width): the largest remainders round up."""
    total = sum(values)
    if scale <= 0 or total <= 0:
        return [0] * len(values)
    filled = min(width, round(total / scale * width))
    exact = [value / total * filled for value in values]
    counts = [int(share) for share in exact]
    by_remainder = sorted(range(len(values)), key=lambda index: (counts[index] - exact[index], index))
    for index in by_remainder[: filled - sum(counts)]:
        counts[index] += 1
    return counts


class StackedBar(Value, frozen=True, kw_only=True):
    """Parts side by side on a scale, with a mark at a limit where one is given."""

    parts: Sequence[Part]
    scale: float
    width: int
    limit: float | None = None
    least: int = MIN_BAR
    """It shrinks to so many cells before figures are cut."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """One line of ``width`` cells, or fewer where there is no room."""
        coloured = console.color_system is not None and not console.no_color and not options.ascii_only
        width = min(self.width, options.max_width)
        line = Text(no_wrap=True)
        for part, count in zip(self.parts, cells([part.value for part in self.parts], self.scale, width), strict=True):
            line.append((BLOCK if coloured else part.letter) * count, style=part.style)
        line.append("." * (width - len(line)), style="dim")
        if self.limit is not None and self.limit < self.scale:
            place = min(width - 1, int(self.limit / self.scale * width))
            line = Text.assemble(line[:place], (LIMIT, "bold red"), line[place + 1 :], no_wrap=True)
        yield line

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """The bar shrinks before figures do."""
        return Measurement(min(self.least, self.width), self.width)


class Legend(Value, frozen=True, kw_only=True):
    """What the colours or letters of a bar mean."""

    parts: Sequence[Part]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """``P parameters  G gradients ...`` on one line or more."""
        coloured = console.color_system is not None and not console.no_color and not options.ascii_only
        mark = BLOCK if coloured else ""
        pieces = [Text.assemble((mark or part.letter, part.style), f" {part.name}") for part in self.parts]
        yield Pieces(pieces=pieces)
