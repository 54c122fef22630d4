"""Lengths of samples from a file: text, a column of CSV, or a key of JSON lines."""

from __future__ import annotations

import json
from array import array
from typing import TYPE_CHECKING, Any

from meshwright.errors import InputError, Message, fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

COLUMNS = ("length", "lengths", "tokens", "num_tokens", "n_tokens", "seq_len", "input_length")
"""Names of a CSV column or JSON key that holds the length."""
MAX_LENGTHS = 10_000_000
"""More than any mean needs, in memory (80 MB) and time (seconds)."""
MAX_LINE_CHARACTERS = 2 * 10**7
"""All lengths may stand on one line."""
MAX_FAULTS = 5


def read_lengths(path: str) -> Sequence[int]:
    """Positive integers of a text, CSV or JSON-lines file, read line by line.

    Errors:  ``InputError`` with the first faults; for a file without lengths, or with more than ``MAX_LENGTHS``.
    """
    from meshwright.readers.safe import read_lines

    faults: list[Message] = []
    lengths = array("q")
    for line, value in _cells(read_lines(path, MAX_LINE_CHARACTERS), path):
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


def _cells(lines: Iterable[str], path: str) -> Iterator[tuple[int, Any]]:
    """Every length as it is written, with its line: numbers, a column by its header, or a key of JSON objects."""
    column: int | None = None
    for number, raw in enumerate(lines, start=1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if line[0] in "[{":
            yield from ((number, value) for value in _json_values(line, f"{path}:{number}"))
            continue
        cells = [cell.strip().strip('"') for cell in line.replace(";", ",").replace("\t", ",").split(",")]
        if column is None and any(cell.lower() in COLUMNS for cell in cells):
            column = next(place for place, cell in enumerate(cells) if cell.lower() in COLUMNS)
        elif column is not None:
            yield number, cells[column] if column < len(cells) else ""
        else:
            yield from ((number, cell) for cell in line.replace(",", " ").replace(";", " ").split())


def _json_values(line: str, where: str) -> list[Any]:
    """The lengths of one line of JSON: a list of numbers, or an object with a known key."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise fault("lengths.json", "not one JSON value on a line", path=where) from None
    if isinstance(value, list):
        return value
    key = next((key for key in COLUMNS if key in value), None)
    if key is None:
        raise fault("lengths.key", "none of the keys {keys}", path=where, keys=", ".join(COLUMNS))
    return [value[key]]


def _length(value: Any) -> int | None:
    """A positive integer, or None."""
    word = str(value).strip()
    return int(word) if word.isascii() and word.isdigit() and len(word) <= 12 and int(word) > 0 else None
