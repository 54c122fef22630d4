"""Rows of the tables that Ascend's profiler writes."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from meshwright.errors import fault
from meshwright.readers import loose

if TYPE_CHECKING:
    from meshwright.readers.source import Source


def rows(source: Source) -> Iterator[dict[str, str]]:
    """Rows by the names of their columns, blanks around both taken off; whole rows only.

    Errors:  ``InputError`` where it is no table.
    """
    with source.open() as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="") as text:
        reader = csv.reader(text)
        try:
            header = [each.strip() for each in next(reader, [])]
            for row in reader:
                if len(row) == len(header):
                    yield {key: value.strip() for key, value in zip(header, row, strict=True)}
        except csv.Error as error:
            raise fault("trace.table", "no table: {reason}", path=source.shown, reason=str(error)) from None


def first(row: Mapping[str, str], *names: str) -> str:
    """The value of the first column that the table has; nothing where it has none."""
    return next((row[each] for each in names if each in row), "")


def number(text: str | None) -> float:
    """The number, or not a number where there is none."""
    found = loose.number(text)
    return math.nan if found is None else found
