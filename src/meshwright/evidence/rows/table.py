"""A CSV in the corpus schema, hostile until read: every record is a typed row, or is left out with its reason.

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
from meshwright.evidence.rows.columns import REQUIRED, RESULTS, SCHEMA, WORDS, cell_fault, shown
from meshwright.evidence.rows.row import row_of
from meshwright.readers.safe import read_text
from meshwright.text import hidden

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from meshwright.evidence.rows.row import Row

MAX_BYTES = 64 * 10**6
MAX_ROWS = 200_000
MAX_ID = 120
DISAGREE = 1.1
"""Speeds of one row may differ by rounding, not by more: then a unit is wrong."""
EXAMPLES = 3
"""Rows that are shown for each reason to leave rows out."""
FLAGGED, NO_ID = "flagged", "no id"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A row that counts in no metric, and why."""

    id: str
    line: int
    reason: str
    kind: str
    """The reason without its values: what is counted."""
    row: Row | None = None
    """What it says, where its cells can be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of a file in its order, those that were left out, and columns that mean nothing here."""

    path: str
    rows: tuple[Row, ...]
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
    skipped: list[Skipped] = []
    seen: set[str] = set()
    for line, cells in records:
        if cells in ([], [""]):
            continue
        if len(rows) + len(skipped) >= MAX_ROWS:
            raise fault("table.long", "more than {limit:,} rows", path=where, limit=MAX_ROWS)
        found = _row(names, cells, line)
        if isinstance(found, Skipped):
            skipped.append(found)
            if found.kind == NO_ID:
                continue
        elif found.id in seen:
            skipped.append(Skipped(id=found.id, line=line, reason=f"id {shown(found.id)} stands again", kind="stands again"))
        else:
            rows.append(found)
        seen.add(found.id)
    return Table(
        path=where, rows=tuple(rows), skipped=tuple(skipped),
        unknown_columns=tuple(name for name in names if name not in SCHEMA),
        digest=hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest(),
    )


def count_reasons(skipped: Sequence[Skipped]) -> dict[str, int]:
    """How many rows are left out for each kind of reason, most first."""
    counts = Counter(each.kind for each in skipped)
    return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))


def left_out(skipped: Sequence[Skipped]) -> dict[str, str]:
    """Kind of reason -> the first rows of it with their lines, most rows first.

    ``as line 2 (gbs: 'x' is not a number), line 3 (...)``
    """
    found: dict[str, str] = {}
    for kind in count_reasons(skipped):
        rows = [each for each in skipped if each.kind == kind][:EXAMPLES]
        found[kind] = "as " + ", ".join(f"line {each.line}" + f" ({each.reason})" * (each.reason != kind) for each in rows)
    return found


def nothing_usable(id: str, table: Table, skipped: Sequence[Skipped]) -> InputError:
    """That a table has no row to work with, with the reasons and their first rows."""
    counts = count_reasons(skipped)
    reasons = "; ".join(f"{count} {kind}" for kind, count in counts.items()) or "it has no rows"
    rows = [
        Message("rows.left-out", "{count} {kind}, {rows}", {"count": counts[kind], "kind": kind, "rows": rows}, table.path)
        for kind, rows in left_out(skipped).items()
    ]
    return InputError([Message(id, "no usable row ({reasons})", {"reasons": reasons}, table.path), *rows])


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
            cells = next((words for begin, words in _CSV.items() if str(error).startswith(begin)), str(error))
        yield begin, cells
        begin = reader.line_num + 1


_CSV = {
    "new-line character": "a line break in a cell without quotes", "field larger": "a cell that is too long",
    "line contains NUL": "it holds a zero byte",
}
"""How the parser's complaint begins -> what it means."""


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
        hints = "".join(f"; for {name}: {hint[2:]}" for name in missing if (hint := did_you_mean(name, near)))
        if len(names) == 1 and any(mark in names[0] for mark in ";\t|"):
            hints = "; cells must be separated by commas"
        values = {"missing": missing, "hints": hints}
        messages.append(Message("table.missing", "missing columns: {missing}{hints}", values, path=where))
    if messages:
        raise InputError(messages)
    return names


def _row(names: list[str], cells: list[str] | str, line: int) -> Row | Skipped:
    """The typed row of a record, or what is wrong with it."""

    def skipped(kind: str, reason: str = "", row: Row | None = None) -> Skipped:
        return Skipped(id=row.id if row else id_[:MAX_ID], line=line, reason=reason or kind, kind=kind, row=row)

    id_ = ""
    if isinstance(cells, str):
        return skipped("not a CSV record", f"not a CSV record: {cells}")
    if len(cells) != len(names):
        return skipped("cells do not match the header", f"{len(cells)} cells, the header has {len(names)}")
    given = {name: cell for name, cell in zip(names, cells, strict=True) if name in SCHEMA}
    if not all(_is_text(cell) for cell in given.values()):
        return skipped("not UTF-8 text")
    id_ = given["id"]
    if not id_ or len(id_) > MAX_ID:
        return skipped(NO_ID, "the id is blank" if not id_ else f"the id is longer than {MAX_ID} characters")
    problem = next(((column, why) for column in SCHEMA if (why := _fault(column, given))), None)
    row = None if problem else row_of(given, line)
    if given.get("flag"):
        return skipped(FLAGGED, f"flagged: {shown(given['flag'])}", row)
    if problem or row is None:
        column, why = problem or ("", "")
        kind = "unknown " + column if column in WORDS else "not a number of its column"
        return skipped("characters that cannot be seen" if hidden(given.get(column, "")) else kind, why)
    if why := _disagreement(row):
        return skipped("speeds disagree", why)
    return row


def _fault(column: str, given: Mapping[str, str]) -> str:
    cell = given.get(column, "")
    return cell_fault(column, cell) if cell else ""


def step_times(row: Row) -> dict[str, float]:
    """The step time by each column that gives it.

    t;   gbs seq / (tokens per second and device x devices);   gbs / samples per second

    Units:   s.
    Source:  src/meshwright/evidence/data/README.md: "where one is given the others follow".
    """
    found: dict[str, float] = {}
    measured, batch = row.measured, row.global_batch_sequences
    if measured.step_s:
        found["step_time_s"] = measured.step_s
    if batch and row.sequence_tokens and row.num_devices and measured.tokens_per_s_per_device:
        tokens = float(batch) * float(row.sequence_tokens)
        found["tokens_per_s_per_gpu"] = tokens / float(row.num_devices) / measured.tokens_per_s_per_device
    if batch and measured.samples_per_s:
        found["samples_per_s"] = float(batch) / measured.samples_per_s
    return found


def has_results(row: Row) -> bool:
    """Whether the row measured anything, or says how it ended."""
    return bool(row.status) or any(row.cell(column) is not None for column in RESULTS)


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
