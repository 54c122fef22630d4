"""A CSV in the corpus schema: every record is a typed row, or is left out with its reason.

Nothing of a row is guessed: what a row leaves blank is the business of ``evidence.rows.run``.
"""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.errors import InputError, Message, fault
from meshwright.evidence.rows.columns import RESULTS, SCHEMA, WORDS, cell_fault, shown
from meshwright.evidence.rows.records import is_text, open_records
from meshwright.evidence.rows.row import FIELDS, row_of
from meshwright.text import hidden
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from meshwright.evidence.rows.records import Records
    from meshwright.evidence.rows.row import Row

MAX_HELD = 50_000
"""Rows of a table that is held as a whole; of a file that is read row by row ``records.MAX_ROWS``."""
MAX_ID = 120
DISAGREE = 1.1
"""Speeds of one row may differ by rounding, not by more: then a unit is wrong."""
EXAMPLES = 3
"""Rows that are shown for each reason to leave rows out."""
FLAGGED, NO_ID, TWICE = "flagged", "no id", "stands again"
OWN = ("id", "flag", *RESULTS)
"""Columns of a run; what the others say, its configuration, it may share with any number of runs."""
_FIELDS = {column: FIELDS[column].rpartition(".")[2] for column in RESULTS}
REMEMBERED, REMEMBERED_LENGTH = 4096, 2000
"""Configurations that are read once, while their cells have no more characters than this."""


class Skipped(Value, frozen=True, kw_only=True):
    """A row that counts in no metric, and why."""

    id: str
    line: int
    reason: str
    kind: str
    """The reason without its values: what is counted."""
    row: Row | None = None
    """What it says, where its cells can be read."""


class Configuration(Value, frozen=True, eq=False):
    """What rows have in common that differ in nothing but their id and their results; equal only to itself."""

    row: Row
    """Without an id, a line and results."""


Read = tuple["Row", Configuration]


class Table(Value, frozen=True, kw_only=True):
    """Rows of a file in its order, those that were left out, and columns that mean nothing here."""

    path: str
    rows: tuple[Row, ...]
    skipped: tuple[Skipped, ...]
    unknown_columns: tuple[str, ...]
    digest: str
    """SHA-256 of the content: the same file under another name is the same."""

    def __len__(self) -> int:
        return len(self.rows) + len(self.skipped)

    def __iter__(self) -> Iterator[Read | Skipped]:
        """Everything in the order of the file."""
        found: list[tuple[int, Read | Skipped]] = [(each.line, (each, Configuration(each))) for each in self.rows]
        yield from (each for _, each in sorted([*found, *((each.line, each) for each in self.skipped)], key=lambda pair: pair[0]))


class TableFile:
    """A file that is read row by row, each time that it is iterated, in bounded memory."""

    def __init__(self, records: Records) -> None:
        """Its header is read already."""
        self._records, self.path, self.digest = records, records.path, records.digest
        self.unknown_columns = tuple(name for name in records.names if name not in SCHEMA)

    def __len__(self) -> int:
        """About how many rows there are: as many as lines."""
        return self._records.lines

    def __iter__(self) -> Iterator[Read | Skipped]:
        """Everything in the order of the file.

        Errors:  ``InputError`` where there are too many rows.
        """
        reader, seen = _Reader(self._records.names), set[int]()
        for line, cells in self._records:
            found = reader.read(cells, line)
            id_ = found.id if isinstance(found, Skipped) else found[0].id
            if isinstance(found, Skipped):
                yield found
                if found.kind == NO_ID:
                    continue
            elif hash(id_) in seen:
                yield Skipped(id=id_, line=line, reason=f"id {shown(id_)} {TWICE}", kind=TWICE)
            else:
                yield found
            seen.add(hash(id_))  # a number for each, and not the words


def open_table(path: Path | str) -> TableFile:
    """A file to be read row by row.

    Errors: ``InputError`` where the file or its header cannot be read; faults of a row only leave it out.
    """
    return TableFile(open_records(path))


def shipped_path() -> Path:
    """The corpus that ships with the product."""
    return Path(__file__).parents[1] / "data" / "measured_runs.csv"


@cache
def shipped_table() -> Table:
    """The shipped corpus, read once."""
    return read_table(shipped_path())


def read_table(path: Path | str) -> Table:
    """All rows of a file.

    Errors: ``InputError`` where the file or its header cannot be read, or there are too many rows to hold; faults of a row only
            leave it out.
    """
    file = open_table(path)
    rows: list[Row] = []
    skipped: list[Skipped] = []
    for each in file:
        if isinstance(each, Skipped):
            skipped.append(each)
        else:
            rows.append(each[0])
        if len(rows) + len(skipped) > MAX_HELD:
            raise fault("table.held", "more than {limit:,} rows to learn from", path=file.path, limit=MAX_HELD)
    return Table(
        path=file.path, rows=tuple(rows), skipped=tuple(skipped), unknown_columns=file.unknown_columns, digest=file.digest
    )


def count_reasons(skipped: Iterable[Skipped]) -> dict[str, int]:
    """How many rows are left out for each kind of reason, most first."""
    return by_number(Counter(each.kind for each in skipped))


def by_number(counts: Counter[str]) -> dict[str, int]:
    """Names with their numbers, most first."""
    return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))


def as_lines(rows: Sequence[Skipped]) -> str:
    """The first rows of one kind of reason: ``as line 2 (gbs: 'x' is not a number), line 3 (...)``."""
    return "as " + ", ".join(f"line {each.line}" + f" ({each.reason})" * (each.reason != each.kind) for each in rows[:EXAMPLES])


def left_out(skipped: Sequence[Skipped]) -> dict[str, str]:
    """Kind of reason -> the first rows of it with their lines, most rows first."""
    return {kind: as_lines([each for each in skipped if each.kind == kind]) for kind in count_reasons(skipped)}


def nothing_usable(id: str, path: str, counts: Mapping[str, int], rows: Mapping[str, str]) -> InputError:
    """That a table has no row to work with: how many rows each kind of reason leaves out, and the first of them."""
    reasons = "; ".join(f"{count} {kind}" for kind, count in counts.items()) or "it has no rows"
    more = [
        Message("rows.left-out", "{count} {kind}, {rows}", {"count": counts[kind], "kind": kind, "rows": rows[kind]}, path)
        for kind in counts
    ]
    return InputError([Message(id, "no usable row ({reasons})", {"reasons": reasons}, path), *more])


Problem = tuple[int, str]
"""The place of a column in the schema, and what is wrong with the cell there."""


class _Reader:
    """Records of one header as rows."""

    def __init__(self, names: Sequence[str]) -> None:
        places = {name: place for place, name in enumerate(names) if name in SCHEMA}
        self._count = len(names)
        self._own = {name: places[name] for name in SCHEMA if name in places and name in OWN}
        self._shared = {name: places[name] for name in SCHEMA if name in places and name not in OWN}
        self._known = lru_cache(maxsize=REMEMBERED)(self._configured)

    def read(self, cells: list[str] | str, line: int) -> Read | Skipped:
        """The typed row of a record, or what is wrong with it."""
        id_ = ""

        def skipped(kind: str, reason: str = "", row: Row | None = None) -> Skipped:
            return Skipped(id=id_, line=line, reason=reason or kind, kind=kind, row=row)

        if isinstance(cells, str):
            return skipped("not a CSV record", f"not a CSV record: {cells}")
        if len(cells) != self._count:
            return skipped("cells do not match the header", f"{len(cells)} cells, the header has {self._count}")
        own = {name: cells[place] for name, place in self._own.items()}
        shared = tuple([cells[place] for place in self._shared.values()])
        short = sum(map(len, shared)) <= REMEMBERED_LENGTH
        found = self._known(shared) if short else self._configured(shared)
        if found is None or not all(map(is_text, own.values())):
            return skipped("not UTF-8 text")
        if not own["id"] or len(own["id"]) > MAX_ID:
            id_ = own["id"][:MAX_ID]
            return skipped(NO_ID, f"the id is longer than {MAX_ID} characters" if id_ else "the id is blank")
        id_ = own["id"]
        problems = [found] if isinstance(found, tuple) else []
        if own_problem := _problem(own):
            problems.append(own_problem)
        row = None if isinstance(found, tuple) or problems else _measured(found, own, line)
        if own.get("flag"):
            return skipped(FLAGGED, f"flagged: {shown(own['flag'])}", row)
        if row is None or isinstance(found, tuple):
            place, why = min(problems)
            column = SCHEMA[place]
            unseen = hidden(cells[self._own[column] if column in self._own else self._shared[column]])
            kind = "unknown " + column if column in WORDS else "not a number of its column"
            return skipped("characters that cannot be seen" if unseen else kind, why)
        if why := _disagreement(row):
            return skipped("speeds disagree", why)
        return row, found

    def _configured(self, shared: tuple[str, ...]) -> Configuration | Problem | None:
        """What the cells of a configuration say, or what is wrong with them; None where they are no text."""
        if not all(map(is_text, shared)):
            return None
        given = dict(zip(self._shared, shared, strict=True))
        return _problem(given) or Configuration(row_of(given))


def _problem(given: dict[str, str]) -> Problem | None:
    """The first column of the schema whose cell is wrong."""
    for column, cell in given.items():
        if cell and (why := cell_fault(column, cell)):
            return SCHEMA.index(column), why
    return None


def _measured(configuration: Configuration, own: dict[str, str], line: int) -> Row:
    """A run of a configuration."""
    said: dict[str, Any] = {_FIELDS[column]: float(own[column]) for column in RESULTS if own.get(column)}
    measured = replace(configuration.row.measured, **said)
    return replace(configuration.row, id=own["id"], line=line, flag=own.get("flag", ""), measured=measured)


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


@cache
def _content(path: Path) -> tuple[bytes, bytes]:
    """A file, and the same with small letters."""
    content = path.read_bytes().rstrip(b"\n") + b"\n"
    return content, content.lower()


def _lines_with(content: bytes, small: bytes, word: bytes) -> Iterator[tuple[int, str]]:
    """Number and text of every line in which a word of small letters stands, whatever letters it has there."""
    begin, number = 0, 1
    while begin < len(small) and (at := small.find(word, begin)) >= 0:
        start, end = small.rfind(b"\n", 0, at) + 1, small.index(b"\n", at)
        number += small.count(b"\n", begin, start)
        yield number, content[start:end].decode()
        begin, number = end + 1, number + 1


def rows_like(path: Path, id_: str, columns: Sequence[str]) -> tuple[Row, ...]:
    """The rows without a flag that share these columns with the row of an id, in any case of letters; no other row is read.

    Errors:  ``OSError`` where the file cannot be read.
    Holds:   every record is one line of the file, as in the shipped corpus, whose cells of these columns are ASCII.
    """
    content, small = _content(path)
    names = next(csv.reader([content[: content.index(b"\n")].decode()]))
    places = [names.index(column) for column in columns]

    def key(cells: Sequence[str]) -> list[str]:
        return [cells[place].strip().lower() for place in places]

    alike = (next(csv.reader([line])) for _, line in _lines_with(content, small, id_.lower().encode()))
    own = next((key(cells) for cells in alike if cells[names.index("id")] == id_), None)
    if own is None:
        return ()
    words = [word for word in own if '"' not in word]  # as they stand in the line, which is not taken apart where one is missing
    reader, found = _Reader(names), []
    for number, line in _lines_with(content, small, max(words, key=len, default="").encode()):
        if all(word in line.lower() for word in words):
            cells = next(csv.reader([line]))
            read = reader.read(cells, number) if number > 1 and key(cells) == own else None
            if read is not None and not isinstance(read, Skipped):
                found.append(read[0])
    return tuple(found)
