"""Where text goes: a console of 80 to 140 columns, plain where it is piped or NO_COLOR is set."""

from __future__ import annotations

import shutil
import sys
from typing import IO, TYPE_CHECKING

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

MIN_WIDTH, PIPED_WIDTH, MAX_WIDTH = 80, 110, 140


def console(stream: IO[str] | None = None, width: int | None = None) -> Console:
    """A console on a stream (standard output), without markup, so that names with brackets stay what they are."""
    if width is None:
        width = shutil.get_terminal_size((PIPED_WIDTH, 24)).columns
    return Console(
        file=stream if stream is not None else sys.stdout,
        width=min(max(width, MIN_WIDTH), MAX_WIDTH),
        markup=False, highlight=False, emoji=False,
    )


def show(parts: Iterable[RenderableType], stream: IO[str] | None = None, width: int | None = None) -> None:
    """Print the parts of a report, one after the other; piped text carries no blanks at the ends of lines."""
    target = console(stream, width)
    if target.is_terminal:
        _print(target, parts)
        return
    with target.capture() as captured:
        _print(target, parts)
    target.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _print(target: Console, parts: Iterable[RenderableType]) -> None:
    """Parts one after the other; a text that must not wrap (a path) runs over the edge instead."""
    for part in parts:
        target.print(part, soft_wrap=isinstance(part, Text) and bool(part.no_wrap))
