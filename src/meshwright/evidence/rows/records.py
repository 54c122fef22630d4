"""Records of a CSV or a Parquet file, hostile until read: line by line, so that memory does not grow with the file."""

from __future__ import annotations

import csv
import hashlib
import io
from collections import Counter
from typing import TYPE_CHECKING, TextIO

from meshwright.errors import InputError, Message, did_you_mean, fault
from meshwright.evidence.rows import parquet
from meshwright.evidence.rows.columns import REQUIRED, SCHEMA, shown
from meshwright.readers.safe import open_regular
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Record = tuple[int, list[str] | str]
"""The line where it begins, and its cells without the spaces around them, or why it is none."""

MAX_BYTES = 2 * 10**9
MAX_ROWS = 1_000_000
MAX_LINE = 200_000
"""Characters of a line; longer ones are passed over."""
MAX_COLUMNS, MAX_NAME = 1000, 120
BLOCK = 2**20
_BOM = b"\xef\xbb\xbf"


class Records(Value, frozen=True, kw_only=True):
    """A file with a header that can be read; iterated, each time from its first record on."""

    path: str
    names: tuple[str, ...]
    """The header."""
    lines: int
    """Line ends of the file: about as many records."""
    digest: str
    """SHA-256 of the content: the same file under another name is the same."""

    def __iter__(self) -> Iterator[Record]:
        """Records that are not blank.

        Errors:  ``InputError`` where there are too many, or the file is gone.
        """
        count = 0
        for record in _records(self.path):
            if record[1] in ([], [""]):
                continue
            if count > MAX_ROWS:
                raise fault("table.long", "more than {limit:,} rows", path=self.path, limit=MAX_ROWS)
            if count:
                yield record
            count += 1


def open_records(path: Path | str) -> Records:
    """A file, looked through once.

    Errors:  ``InputError`` where it cannot be read, is no text, or its header lacks a column that is needed.
    """
    where, ends, size, digest = str(path), 0, 0, hashlib.sha256()
    columnar = is_parquet(path)
    with open_regular(path) as stream:
        for block in iter(lambda: stream.read(BLOCK), b""):
            if b"\0" in block and not columnar:
                raise fault("table.binary", "not a CSV: it holds zero bytes", path=where)
            digest.update(block if size else block.removeprefix(_BOM))
            ends += block.count(b"\n") or block.count(b"\r")
            size += len(block)
            if size > MAX_BYTES:
                raise fault("file.large", "larger than {limit:,} bytes", path=where, limit=MAX_BYTES)
    if columnar:
        names, rows = parquet.header(where)
        _check_header(list(names), where)
        return Records(path=where, names=names, lines=rows + 1, digest=digest.hexdigest())
    header = next((cells for _, cells in _records(where) if cells not in ([], [""])), None)
    if header is None or isinstance(header, str):
        reason = f" ({header})" if header else ""
        raise fault("table.empty", "holds no header line{reason}: the columns of evidence/data/README.md are expected", path=where,
                    reason=reason)
    _check_header(header, where)
    return Records(path=where, names=tuple(header), lines=ends, digest=digest.hexdigest())


def is_parquet(path: Path | str) -> bool:
    """Whether a file begins as Parquet does, whatever it is called.

    Errors:  ``InputError`` where it cannot be read.
    """
    with open_regular(path) as stream:
        return stream.read(len(parquet.MAGIC)) == parquet.MAGIC


def _records(path: str) -> Iterator[Record]:
    """Every record, the header first, or what is wrong with it."""
    if is_parquet(path):
        yield 1, list(parquet.header(path)[0])
        for number, row in enumerate(parquet.cells(path), start=2):
            longest = max(map(len, row), default=0)
            yield number, row if longest <= MAX_LINE else f"a cell has more than {MAX_LINE:,} characters"
        return
    with open_regular(path) as raw:
        lines = _Lines(io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline=""))
        reader = csv.reader(lines, strict=True)
        while True:
            begin = lines.read + 1
            try:
                cells: list[str] | str = [cell.strip() for cell in next(reader)]
            except StopIteration:
                return
            except csv.Error as error:
                cells = next((words for begins, words in _CSV.items() if str(error).startswith(begins)), str(error))
            yield begin, cells


_CSV = {
    "new-line character": "a line break in a cell without quotes", "field larger": "a cell that is too long",
    "line contains NUL": "it holds a zero byte",
}
"""How the parser's complaint begins -> what it means."""


class _Lines:
    """Lines of a file, none of them longer than ``MAX_LINE``."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self.read = stream, 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._stream.readline(MAX_LINE + 1)
        if not line:
            raise StopIteration
        self.read += 1
        if len(line) > MAX_LINE and line[-1] not in "\r\n":
            while (rest := self._stream.readline(MAX_LINE)) and rest[-1] not in "\r\n":
                pass
            raise csv.Error(f"its line has more than {MAX_LINE:,} characters")
        return line


def is_text(cell: str) -> bool:
    """Whether the bytes of a cell were UTF-8."""
    return cell.isascii() or not any("\udc80" <= each <= "\udcff" for each in cell)


def _check_header(names: list[str], where: str) -> None:
    """Refuse a header that describes no runs.

    Errors:  ``InputError`` with every fault.
    """
    if len(names) > MAX_COLUMNS:
        raise fault("table.wide", "has {count:,} columns; {limit:,} is the limit", path=where, count=len(names), limit=MAX_COLUMNS)
    if not all(map(is_text, names)):
        raise fault("file.encoding", "not UTF-8 text (header)", path=where)
    messages = [
        Message("table.column", "column {name} stands twice", {"name": shown(name)}, path=where)
        for name, count in Counter(names).items()
        if count > 1 and name in SCHEMA
    ]
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        near = [name for name in names if name not in SCHEMA and len(name) <= MAX_NAME]
        hints = "".join(did_you_mean(name, near) for name in missing)
        if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
            hints = "; cells must be separated by commas"
        values = {"missing": ", ".join(missing), "hints": hints}
        messages.append(Message("table.missing", "missing columns: {missing}{hints}", values, path=where))
    if messages:
        raise InputError(messages)
