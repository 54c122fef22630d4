"""Where text goes: a console of 80 to 140 columns, plain where it is piped or NO_COLOR is set."""

from __future__ import annotations

import shutil
import sys
from typing import IO, TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from meshwright.report.terminal import renderables
from meshwright.report.unbroken import Unbroken
from meshwright.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import ConsoleOptions, RenderableType

    from meshwright.report.blocks import Told

MIN_WIDTH, PIPED_WIDTH, MAX_WIDTH = 80, 110, 140


class _Visible(Console):
    """A console on which every piece of text is visible, whoever wrote it: it moves no cursor and turns no direction.

    Here every line is broken, and none between a figure and its unit.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of a renderable; what only rich puts in (colours, cursor) stands beside their text."""
        text = self.render_str(renderable) if isinstance(renderable, str) else renderable
        segments = super().render(Unbroken.of(text) if isinstance(text, Text) else text, options)
        return segments if isinstance(text, (Padding, Table)) else map(_seen, segments)  # what stands in those comes by itself


def _seen(segment: Segment) -> Segment:
    """A segment in whose text nothing hides."""
    return segment if segment.control else Segment(visible(segment.text, keep="\n"), segment.style)


def console(stream: IO[str] | None = None, width: int | None = None) -> Console:
    """A console on a stream (standard output), without markup, so that names with brackets stay what they are."""
    if width is None:
        width = shutil.get_terminal_size((PIPED_WIDTH, 24)).columns
    return _Visible(
        file=stream if stream is not None else sys.stdout,
        width=min(max(width, MIN_WIDTH), MAX_WIDTH),
        markup=False, highlight=False, emoji=False,
    )


def show(parts: Iterable[Told], stream: IO[str] | None = None, width: int | None = None) -> None:
    """Print sections and blocks, one after the other; piped text carries no blanks at the ends of lines."""
    target = console(stream, width)
    if target.is_terminal:
        _print(target, parts)
        return
    with target.capture() as captured:
        _print(target, parts)
    target.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _print(target: Console, parts: Iterable[Told]) -> None:
    """Parts one after the other; a text that must not wrap (a path) runs over the edge instead."""
    for part in renderables(parts):
        target.print(part, soft_wrap=isinstance(part, Text) and bool(part.no_wrap))
