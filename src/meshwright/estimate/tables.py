"""Records of columns in one block of memory, so that any of their columns are gathered in one go."""

from __future__ import annotations

import math
from copy import copy
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import numpy as np
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Record = TypeVar("Record")


class Table(Generic[Record]):
    """Columns of a record of arrays: its fields, nested records, tuples and mappings among them, row under row.

    Shapes:  every array ``[..., column]``; numbers and rows of one column are the same in all columns.
    """

    __slots__ = ("_form", "rows")

    def __init__(self, record: Record, columns: int) -> None:
        """The table of a record with so many columns."""
        self._form = record
        blocks = [_block(each) for each in _arrays(record)]
        self.rows: Floats = np.empty((sum(map(len, blocks)), columns))
        at = 0
        for block in blocks:
            self.rows[at : at + len(block)] = block
            at += len(block)

    @classmethod
    def joined(cls, tables: Sequence[Table[Record]]) -> Table[Record]:
        """The columns of several tables of one record, one after the other."""
        first = tables[0]
        if len(tables) > 1:
            first.rows = np.concatenate([each.rows for each in tables], axis=1)
        return first

    def of(self, rows: Floats) -> Table[Record]:
        """A table of the same record with other columns."""
        other = copy(self)
        other.rows = rows
        return other

    @property
    def record(self) -> Record:
        """The record of all columns."""
        return cast("Record", _Rebuilding(self.rows).of(self._form))

    def take(self, index: NDArray[np.int64] | int) -> Record:
        """The record of chosen columns; of one by its number, as arrays of a dimension less."""
        return cast("Record", _Rebuilding(self.rows.take(index, axis=1)).of(self._form))


class _Rebuilding:
    """Arrays of a record, as its rows in a table are read one after the other."""

    __slots__ = ("_at", "_rows")

    def __init__(self, rows: Floats) -> None:
        self._rows, self._at = rows, 0

    def of(self, value: Any) -> Any:
        """A record with its arrays from the rows; what is no array stays."""
        if isinstance(value, np.ndarray | float):
            begin = self._at
            above = np.shape(value)[:-1]
            self._at = begin + math.prod(above)
            return self._rows[begin : self._at].reshape((*above, *self._rows.shape[1:]))
        if isinstance(value, tuple):
            return tuple(self.of(each) for each in value)
        if isinstance(value, Struct):
            return type(value)(**{name: self.of(getattr(value, name)) for name in value.__struct_fields__})
        if isinstance(value, dict):
            return {name: self.of(each) for name, each in value.items()}
        return value


def _arrays(value: Any) -> Iterator[Floats]:
    """The arrays of a record in their order."""
    if isinstance(value, np.ndarray | float):
        yield np.asarray(value, dtype=np.float64)
    elif isinstance(value, tuple):
        for each in value:
            yield from _arrays(each)
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            yield from _arrays(getattr(value, name))
    elif isinstance(value, dict):
        for each in value.values():
            yield from _arrays(each)


def _block(values: Floats) -> Floats:
    """An array as rows, of all columns or of one for all."""
    return values.reshape(math.prod(values.shape[:-1]), values.shape[-1] if values.ndim else 1)


def column(record: Record, number: int, rows: int | None = None) -> Record:
    """One column of a record of arrays, as arrays of a dimension less; numbers stay, and so do the columns of one.

    Shapes:  every array ``[row, column]`` or ``[column]``. ``rows``: the first that are kept; all unless said.
    """
    return cast("Record", _column(record, number, rows))


def _column(value: Any, number: int, rows: int | None) -> Any:
    if isinstance(value, np.ndarray):
        if not value.ndim:
            return value
        at = number if value.shape[-1] > 1 else 0
        return value[:rows, at] if value.ndim > 1 else value[at, ...]
    if isinstance(value, tuple):
        return tuple(_column(each, number, rows) for each in value)
    if isinstance(value, Struct):
        return type(value)(**{name: _column(getattr(value, name), number, rows) for name in value.__struct_fields__})
    return value
