"""Measured runs as Parquet (extra ``arrow``): the same columns as the CSV, with numbers as numbers, read in bounded memory."""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from math import isnan
from typing import IO, TYPE_CHECKING, Any

from meshwright.errors import fault
from meshwright.evidence.rows.columns import RATES, RATIOS, SCHEMA, WORDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAGIC = b"PAR1"
"""What the file begins with."""
BATCH_ROWS = 1000
_FRACTIONS = frozenset((*RATES, *RATIOS))


def require_arrow(path: str) -> None:
    """Refuse in words where Parquet can neither be written nor read."""
    if find_spec("pyarrow") is None:
        raise fault("table.arrow", "a .parquet needs pyarrow, which is not installed: pip install 'meshwright[arrow]', or a .csv",
                    path=path)


def header(path: str) -> tuple[tuple[str, ...], int]:
    """Names of the columns, and how many rows there are.

    Errors:  ``InputError`` without the extra, and for a file that cannot be read.
    """
    with _file(path) as file:
        return tuple(file.schema_arrow.names), int(file.metadata.num_rows)


def cells(path: str) -> Iterator[list[str]]:
    """Every row as a CSV would have it; what is null, or a float that is no number, is blank.

    Errors:  ``InputError`` without the extra, and for a file that cannot be read.
    """
    with _file(path) as file:
        for batch in file.iter_batches(BATCH_ROWS):
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield [_cell(value) for value in row]


def write(rows: Sequence[Mapping[str, str]], stream: IO[bytes]) -> None:
    """Rows of the schema: words as text, counts as whole numbers, rates and ratios as floats; blank numbers are null."""
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    types = {name: arrow.string() if name in WORDS else arrow.float64() if name in _FRACTIONS else arrow.int64() for name in SCHEMA}
    columns = {name: arrow.array([_value(name, row[name]) for row in rows], types[name]) for name in SCHEMA}
    parquet.write_table(arrow.table(columns), stream)


@contextmanager
def _file(path: str) -> Iterator[Any]:
    """An open file; what the library says against it is a fault of the file."""
    require_arrow(path)
    arrow, parquet = import_module("pyarrow.lib"), import_module("pyarrow.parquet")
    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except (arrow.ArrowException, OSError) as error:
        raise fault("table.parquet", "cannot be read as Parquet: {reason}", path=path,
                    reason=str(error).split("\n")[0][:80]) from None


def _cell(value: object) -> str:
    """A value as the cell of a CSV.

    >>> [_cell(each) for each in (None, 8.0, 0.25, True, float("nan"), " a ", b"a")]
    ['', '8', '0.25', '1', '', 'a', 'a']
    """
    if value is None or (isinstance(value, float) and isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return (value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)).strip()


def _value(name: str, cell: str) -> str | int | float | None:
    """A cell as a value of its column; a blank word stays a word."""
    if name in WORDS:
        return cell
    return None if not cell else float(cell) if name in _FRACTIONS else int(float(cell))
