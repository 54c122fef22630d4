"""A CSV in the corpus schema, hostile until read: every row is a row of clean cells, or is left out with its reason.

Nothing of a row is guessed: what a row leaves blank is the business of ``evidence.rows.run``.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.errors import InputError, Message, did_you_mean, fault
from meshwright.evidence.rows.columns import REQUIRED, RESULTS, SCHEMA, WORDS, cell_fault, normal, shown
from meshwright.readers.safe import read_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Row = dict[str, str]
"""Column -> cell, every column of the schema, blank where the file has none."""

MAX_BYTES = 64 * 10**6
MAX_ROWS = 200_000
MAX_ID = 120
DISAGREE = 1.1
"""Speeds of one row may differ by rounding, not by more: then a unit is wrong."""
FLAGGED = "flagged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A row that counts in no metric, and why."""

    id: str
    line: int
    reason: str
    kind: str
    """The reason without its values: what is counted."""
    row: Row | None = None
    """The cells, where they could be told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of a file in its order, those that were left out, and columns that mean nothing here."""

    path: str
    rows: tuple[Row, ...]
    lines: tuple[int, ...]
    """Line of each row."""
    skipped: tuple[Skipped, ...]
    unknown_columns: tuple[str, ...]
    digest: str
    """SHA-256 of the content: the same file under another name is the same."""


def shipped_path() -> Path:
    """The corpus that ships with the product."""
    return Path(str(files("meshwright.evidence"))) / "data" / "measured_runs.csv"


@cache
def shipped_table() -> Table:
    """The shipped corpus, read once."""
    return read_table(shipped_path())


def read_table(path: Path | str) -> Table:
    """All rows of a file.

    Errors: ``InputError`` where the file or its header cannot be read; faults of a row only leave it out.
    """
    where = str(path)
    text = read_text(path, MAX_BYTES, errors="surrogateescape")
    if "\0" in text:
        raise fault("table.binary", "not a CSV: it holds zero bytes", path=where)
    records = _records(text)
    _, header = next(records, (0, None))
    if header is None or isinstance(header, str):
        raise fault("table.empty", "holds no header line: the columns of evidence/data/README.md are expected", path=where)
    names = _header(header, where)
    rows: list[Row] = []
    lines: list[int] = []
    skipped: list[Skipped] = []
    seen: set[str] = set()
    for line, cells in records:
        if cells in ([], [""]):
            continue
        if len(rows) + len(skipped) >= MAX_ROWS:
            raise fault("table.long", "more than {limit:,} rows", path=where, limit=MAX_ROWS)
        row, why = _row(names, cells)
        id_ = row["id"] if row else ""
        if not why and id_ in seen:
            why = ("stands again", f"id {shown(id_)} stands again")
        seen.add(id_)
        if why:
            skipped.append(Skipped(id=id_[:MAX_ID], line=line, reason=why[1], kind=why[0], row=row))
        elif row:
            rows.append(row)
            lines.append(line)
    return Table(
        path=where, rows=tuple(rows), lines=tuple(lines), skipped=tuple(skipped),
        unknown_columns=tuple(name for name in names if name not in SCHEMA),
        digest=hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest(),
    )


def count_reasons(skipped: Sequence[Skipped]) -> dict[str, int]:
    """How many rows are left out for each kind of reason, most first."""
    counts = Counter(each.kind for each in skipped)
    return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))


def _records(text: str) -> Iterator[tuple[int, list[str] | str]]:
    """Line and cells of every record, or line and fault."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    begin = 1
    while True:
        try:
            cells: list[str] | str = [cell.strip() for cell in next(reader)]
        except StopIteration:
            return
        except csv.Error as error:
            cells = str(error)
        yield begin, cells
        begin = reader.line_num + 1


def _header(cells: list[str], where: str) -> list[str]:
    if any(not _is_text(cell) for cell in cells):
        raise fault("file.encoding", "not UTF-8 text (header)", path=where)
    names = [cell.strip() for cell in cells]
    messages = [
        Message("table.column", "column {name} stands twice", {"name": shown(name)}, path=where)
        for name, count in Counter(names).items()
        if count > 1 and name in SCHEMA
    ]
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        near = [name for name in names if name not in SCHEMA and len(name) <= MAX_ID]
        hints = "".join(did_you_mean(name, near) for name in missing)
        if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
            hints = "; cells must be separated by commas"
        values = {"missing": ", ".join(missing), "hints": hints}
        messages.append(Message("table.missing", "missing columns: {missing}{hints}", values, path=where))
    if messages:
        raise InputError(messages)
    return names


def _row(names: list[str], cells: list[str] | str) -> tuple[Row | None, tuple[str, str] | None]:
    """The clean row, or what is wrong: the kind of fault and the fault itself."""
    if isinstance(cells, str):
        return None, ("not a CSV record", f"not a CSV record: {cells}")
    if len(cells) != len(names):
        return None, ("cells do not match the header", f"{len(cells)} cells, the header has {len(names)}")
    row = dict.fromkeys(SCHEMA, "") | {name: cell for name, cell in zip(names, cells, strict=True) if name in SCHEMA}
    if not all(_is_text(cell) for cell in row.values()):
        return None, ("not UTF-8 text", "not UTF-8 text")
    if not row["id"] or len(row["id"]) > MAX_ID:
        return row, ("no id", "the id is blank" if not row["id"] else f"the id is longer than {MAX_ID} characters")
    if row["flag"]:
        return row, (FLAGGED, f"flagged: {shown(row['flag'])}")
    for column in SCHEMA:
        if row[column] and (problem := cell_fault(column, row[column])):
            kind = "unknown " + column if column in WORDS else "not a number of its column"
            return row, (kind, problem)
        row[column] = normal(column, row[column])
    row["task"] = row["task"] or "pretrain"
    if problem := _disagreement(row):
        return row, ("speeds disagree", problem)
    return row, None


def step_times(row: Row) -> dict[str, float]:
    """The step time by each column that gives it.

    t;   gbs seq / (tokens per second and device x devices);   gbs / samples per second

    Units:   s.
    Source:  src/meshwright/evidence/data/README.md: "where one is given the others follow".
    """
    found: dict[str, float] = {}
    if row["step_time_s"]:
        found["step_time_s"] = float(row["step_time_s"])
    if row["gbs"] and row["seq"] and row["n_gpus"] and row["tokens_per_s_per_gpu"]:
        tokens = float(row["gbs"]) * float(row["seq"])
        found["tokens_per_s_per_gpu"] = tokens / float(row["n_gpus"]) / float(row["tokens_per_s_per_gpu"])
    if row["gbs"] and row["samples_per_s"]:
        found["samples_per_s"] = float(row["gbs"]) / float(row["samples_per_s"])
    return found


def whole(row: Row, key: str, default: int = 1) -> int:
    """A whole number of a row; the default where it is blank."""
    return int(float(row[key])) if row[key] else default


def has_results(row: Row) -> bool:
    """Whether the row measured anything, or says how it ended."""
    return bool(row["status"]) or any(row[column] for column in RESULTS)


def _disagreement(row: Row) -> str:
    """Mixed units show where a row states its speed twice."""
    times = step_times(row)
    slow, fast = max(times, key=times.__getitem__, default=""), min(times, key=times.__getitem__, default="")
    if times and times[slow] > DISAGREE * times[fast]:
        return f"{slow} and {fast} disagree by a factor of {times[slow] / times[fast]:.4g}: mixed units?"
    return ""


def _is_text(cell: str) -> bool:
    """Whether the bytes of the cell were UTF-8."""
    return not any("\udc80" <= each <= "\udcff" for each in cell) if not cell.isascii() else True
