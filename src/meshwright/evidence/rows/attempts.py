"""The corpus by cells: of runs that differ only in their layout (or release), the fastest, with how many others were tried.

``data/fastest_runs.csv`` holds one line per cell, so that no verb reads the whole corpus to name a published run. It is derived:
``python -m meshwright.evidence.rows.attempts`` writes it, a test holds it current.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from meshwright.evidence.rows.published_run import Published
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from meshwright.evidence.rows.row import Row

KEY = ("framework", "model", "task", "gpu", "n_gpus", "precision", "gbs", "seq")
"""Columns that runs of one cell share: everything that is given, the framework's release aside."""


class Attempts(Value, frozen=True, kw_only=True):
    """A cell by its fastest run."""

    best: Published
    """Where nothing ran: what was given, without layout and figures."""
    ran: int
    """Runs with a figure, the best among them."""
    failed: int
    """Runs that produced none: out of memory, crash or time-out."""


def data_path(name: str) -> Path:
    """A file that ships with the evidence."""
    return Path(__file__).parents[1] / "data" / name


@cache
def attempts() -> tuple[Attempts, ...]:
    """All cells of the shipped corpus, from the index."""
    with data_path("fastest_runs.csv").open(newline="", encoding="utf-8") as file:
        return tuple(_read(row) for row in csv.DictReader(file))


def corpus() -> list[Row]:
    """All rows of the shipped corpus in its order, those with a flag too: read only where a single row is asked for."""
    from meshwright.evidence.rows.table import shipped_table

    table = shipped_table()
    found = [*table.rows, *(each.row for each in table.skipped if each.row)]
    return sorted(found, key=lambda row: row.line)


def cells_of(id_: str) -> dict[str, str]:
    """Every column of a row of the shipped corpus as its source filled it."""
    with data_path("measured_runs.csv").open(newline="", encoding="utf-8") as file:
        return next(row for row in csv.DictReader(file) if row["id"] == id_)


def runs_beside(cell: Attempts) -> tuple[Published, ...]:
    """Every run with a figure of the cell; only their rows of the corpus are read."""
    from meshwright.evidence.rows.published import published
    from meshwright.evidence.rows.table import rows_like

    rows = rows_like(data_path("measured_runs.csv"), cell.best.id, KEY)
    return tuple(each for row in rows if row.status == "ok" and (each := published(row)).step_s)


def attempt_key(row: Row) -> tuple[str, ...]:
    """What the runs of a cell share."""
    return tuple(row.word(column).lower() for column in KEY)


def build(rows: Iterable[Row]) -> list[Attempts]:
    """Cells of all rows without a flag, in the order of their keys."""
    by_key: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if not row.flag:
            by_key[attempt_key(row)].append(row)
    return [_cell(by_key[key]) for key in sorted(by_key)]


def text_of(found: Sequence[Attempts]) -> str:
    """The index file."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    names = [field.name for field in fields(found[0].best)]
    writer.writerow([*names, "ran", "failed"])
    for cell in found:
        writer.writerow([*(_word(getattr(cell.best, name)) for name in names), cell.ran, cell.failed])
    return stream.getvalue()


def _cell(rows: list[Row]) -> Attempts:
    from meshwright.evidence.rows.published import published, speed

    ran = [row for row in rows if row.status == "ok"]
    if ran:
        best = published(min(ran, key=lambda row: (-(speed(row)[0] or 0.0), row.id)))
    else:
        given = published(min(rows, key=lambda row: row.id))
        best = replace(given, label="", data_parallel=None, num_microbatches=None, recompute="")
    return Attempts(best=best, ran=len(ran), failed=len(rows) - len(ran))


def _word(value: object) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _read(row: dict[str, str]) -> Attempts:
    values = {name: read(row[name]) for name, read in _readers().items()}
    return Attempts(best=Published(**values), ran=int(row["ran"]), failed=int(row["failed"]))


@cache
def _readers() -> dict[str, Callable[[str], Any]]:
    """Column of the index -> how its text becomes the field."""
    return {name: _READ[kind] for name, kind in get_type_hints(Published).items()}


_READ: dict[Any, Callable[[str], Any]] = {
    str: str,
    bool: lambda text: text == "1",
    int | None: lambda text: int(text) if text else None,
    float | None: lambda text: float(text) if text else None,
}


if __name__ == "__main__":
    data_path("fastest_runs.csv").write_text(text_of(build(corpus())), encoding="utf-8")
