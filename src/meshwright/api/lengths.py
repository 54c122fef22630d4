"""Lengths of samples from a file: text, a column of CSV or Parquet, or a key of JSON lines."""

from __future__ import annotations

import json
from array import array
from typing import TYPE_CHECKING, Any

from meshwright.errors import InputError, Message, fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

COLUMNS = ("length", "lengths", "tokens", "num_tokens", "n_tokens", "seq_len", "input_length")
"""Names of a column or a JSON key that holds the length, where none is asked for."""
MAX_LENGTHS = 10_000_000
"""More than any mean needs, in memory (80 MB) and time (seconds)."""
MAX_LINE_CHARACTERS = 2 * 10**7
"""All lengths may stand on one line."""
MAX_FAULTS = 5
PARQUET, PARQUET_ROWS = b"PAR1", 65_536
"""What such a file begins with, and how many of its rows are held at a time."""


def read_lengths(path: str, field: str | None = None) -> Sequence[int]:
    """Positive integers of a text, CSV, JSON-lines or Parquet file, read piece by piece.

    ``field``: the column or key that holds them; a list there counts its entries, as token ids do.

    Errors:  ``InputError`` with the first faults; for a file without lengths, or with more than ``MAX_LENGTHS``.
    """
    from meshwright.readers.safe import open_regular, read_lines

    with open_regular(path) as file:
        parquet = file.read(len(PARQUET)) == PARQUET
    cells = _rows(path, field) if parquet else _cells(read_lines(path, MAX_LINE_CHARACTERS), path, field)
    faults: list[Message] = []
    lengths = array("q")
    for line, value in cells:
        number = _length(value)
        if number is None:
            faults.append(Message("lengths.value", "{value!r} is not a length of at least 1",
                                  {"value": str(value)[:40]}, path=f"{path}:{line}"))
            if len(faults) == MAX_FAULTS:
                break
        elif len(lengths) == MAX_LENGTHS:
            raise fault("lengths.many", "holds more than {limit:,} lengths; a random sample of them says the same", path=path,
                        limit=MAX_LENGTHS)
        else:
            lengths.append(number)
    if faults:
        raise InputError(faults)
    if not lengths:
        raise fault("lengths.empty", "holds no lengths", path=path)
    return lengths


def _cells(lines: Iterable[str], path: str, field: str | None) -> Iterator[tuple[int, Any]]:
    """Every length as it is written, with its line: numbers, a column by its header, or a key of JSON objects."""
    column: int | None = None
    wanted = COLUMNS if field is None else (field,)
    for number, raw in enumerate(lines, start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if line[0] in "[{":
            yield from ((number, value) for value in _json_values(line, f"{path}:{number}", wanted))
            continue
        cells = [cell.strip().strip('"') for cell in line.replace(";", ",").replace("\t", ",").split(",")]
        if column is None and (places := [place for place, cell in enumerate(cells) if _named(cell, wanted)]):
            column = places[0]
        elif column is not None:
            yield number, cells[column] if column < len(cells) else ""
        elif field is not None:
            raise fault("lengths.column", "no column {field!r}: {cells}", path=f"{path}:{number}", field=field,
                        cells=", ".join(cells)[:80])
        else:
            yield from ((number, cell) for cell in line.replace(",", " ").replace(";", " ").split())


def _named(cell: str, wanted: Sequence[str]) -> bool:
    """Whether a cell of a header is one of some names."""
    return cell.lower() in (each.lower() for each in wanted)


def _json_values(line: str, where: str, wanted: Sequence[str]) -> list[Any]:
    """The lengths of one line of JSON: a list of numbers, or an object with a known key."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise fault("lengths.json", "not one JSON value on a line", path=where) from None
    if isinstance(value, list):
        return value
    key = next((key for key in wanted if key in value), None)
    if key is None:
        if wanted is not COLUMNS:
            raise fault("lengths.field", "no key {field!r}; it has {keys}", path=where, field=wanted[0],
                        keys=", ".join(map(str, value))[:80] or "none")
        raise fault("lengths.key", "none of the keys {keys}", path=where, keys=", ".join(COLUMNS))
    return [len(value[key]) if isinstance(value[key], list) else value[key]]


def _rows(path: str, field: str | None) -> Iterator[tuple[int, Any]]:
    """A column of a Parquet file, with the number of the row; of lists the number of entries.

    Errors:  ``InputError`` without the extra ``arrow``, for a file that cannot be read, and where the column is not there.
    """
    try:
        import pyarrow.lib as arrow
        from pyarrow import compute, parquet, types
    except ImportError:
        raise fault("lengths.arrow", "is a Parquet file; pip install 'meshwright[arrow]' reads it, or write its lengths as text",
                    path=path) from None
    row = 0
    try:
        file = parquet.ParquetFile(path)
        names = file.schema_arrow.names
        wanted = next((name for name in ((field,) if field else COLUMNS) if name in names), None)
        if wanted is None:
            raise fault("lengths.parquet", "no column {wanted}; it has {names}, and --field names one", path=path,
                        wanted=repr(field) if field else "of lengths", names=", ".join(names)[:80])
        for batch in file.iter_batches(PARQUET_ROWS, columns=[wanted]):
            column = batch.column(0)
            if types.is_list(column.type) or types.is_large_list(column.type):
                column = compute.list_value_length(column)
            for value in column.to_pylist():
                row += 1
                yield row, value
    except (arrow.ArrowException, OSError) as error:
        raise fault("lengths.parquet-broken", "cannot be read as Parquet: {reason}", path=path,
                    reason=str(error).split("\n")[0][:80]) from None


def _length(value: Any) -> int | None:
    """A positive integer, or None."""
    word = str(value).strip()
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 12 and int(word) > 0 else None
