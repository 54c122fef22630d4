"""The corpus by cells: of runs that differ only in their layout (or release), the fastest, with how many others were tried.

``data/fastest_runs.json`` holds one line per cell, so that no verb reads the whole corpus to name a published run. It is derived:
``python -m meshwright.evidence.rows.attempts`` writes it, a test holds it current.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, json

from meshwright.evidence.rows.published_run import Published
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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


class _Index(Struct):
    """The file: names of what a cell's fastest run has, and of every cell those, how many ran and how many failed."""

    columns: list[str]
    cells: list[list[Any]]


def data_path(name: str) -> Path:
    """A file that ships with the evidence."""
    return Path(__file__).parents[1] / "data" / name


@cache
def attempts() -> tuple[Attempts, ...]:
    """All cells of the shipped corpus, from the index."""
    index = json.decode(data_path("fastest_runs.json").read_bytes(), type=_Index)
    return tuple(
        Attempts(best=Published(**dict(zip(index.columns, row, strict=True))), ran=ran, failed=failed)
        for *row, ran, failed in index.cells
    )


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
    """The index file: a line for each cell."""
    names = [field.name for field in fields(found[0].best)]
    rows = [[*(_plain(getattr(cell.best, name)) for name in names), cell.ran, cell.failed] for cell in found]
    lines = ",\n".join(json.encode(row).decode() for row in rows)
    return f'{{"columns": {json.encode(names).decode()}, "cells": [\n{lines}\n]}}\n'


def _cell(rows: list[Row]) -> Attempts:
    from meshwright.evidence.rows.published import published, speed

    ran = [row for row in rows if row.status == "ok"]
    if ran:
        best = published(min(ran, key=lambda row: (-(speed(row)[0] or 0.0), row.id)))
    else:
        given = published(min(rows, key=lambda row: row.id))
        best = replace(given, label="", data_parallel=None, num_microbatches=None, recompute="")
    return Attempts(best=best, ran=len(ran), failed=len(rows) - len(ran))


def _plain(value: Any) -> Any:
    """Figures to six digits."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


if __name__ == "__main__":
    data_path("fastest_runs.json").write_text(text_of(build(corpus())), encoding="utf-8")
