"""A report with hosts, keys and paths blanked in every text of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.diagnose.redact import redacted
from meshwright.report.pieces import Pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import RenderableType


def blanked(parts: Iterable[RenderableType]) -> Iterator[RenderableType]:
    """The parts of a report, texts redacted: lines, what is padded, and cells of tables.

    Errors:  ``TypeError`` for a part of another kind, whose texts nobody would blank.
    """
    for part in parts:
        yield _blank(part)


def _blank(part: RenderableType) -> RenderableType:
    match part:
        case str() | Text():
            return _words(part)
        case Pieces():
            return replace(part, pieces=[_words(each) for each in part.pieces])
        case Padding():
            return Padding(_blank(part.renderable), (part.top, part.right, part.bottom, part.left))
        case Table():
            for column in part.columns:
                column._cells = [_blank(cell) for cell in column.cells]
            return part
        case _:
            raise TypeError(f"a {type(part).__name__} has texts that are not blanked")


def _words(part: Text | str) -> Text | str:
    return redacted(part) if isinstance(part, str) else Text(redacted(part.plain), style=part.style, no_wrap=part.no_wrap)
