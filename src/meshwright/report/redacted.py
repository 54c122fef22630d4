"""A report with hosts, keys and paths blanked in every text of it."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.diagnose.redact import redacted
from meshwright.report.blocks import Block, Section
from meshwright.report.pieces import Pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def blanked(parts: Iterable[Any]) -> Iterator[Any]:
    """The parts of a report, texts redacted: blocks, lines, what is padded, and cells of tables.

    Errors:  ``TypeError`` for a part of another kind, whose texts nobody would blank.
    """
    for part in parts:
        yield _blank(part)


def _blank(part: Any) -> Any:
    match part:
        case str() | Text():
            return _words(part)
        case _ if isinstance(part, Section | Block):
            return _plain(part)
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


def _plain(value: Any) -> Any:
    """A block, every text of it redacted."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{each.name: _plain(getattr(value, each.name)) for each in fields(value)})
    return value


def _words(part: Text | str) -> Text | str:
    return redacted(part) if isinstance(part, str) else Text(redacted(part.plain), style=part.style, no_wrap=part.no_wrap)
