"""Rows of a table as runs: those that can be predicted, those that nothing can run, and those that say too little."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.errors import InputError
from meshwright.evidence.rows import ImpossibleError, UnreadableError, run
from meshwright.evidence.table import Skipped

if TYPE_CHECKING:
    from meshwright.evidence.rows import Run
    from meshwright.evidence.table import Row, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What became of the rows of a table; every row is in one of the three."""

    runs: tuple[Run, ...]
    impossible: tuple[tuple[Row, str], ...]
    """Rows whose degrees no framework can run, and why: predicted not to fit."""
    skipped: tuple[Skipped, ...]
    """Those of the table, then those that name an unknown device or precision or leave too much blank."""


def read_runs(table: Table) -> Reading:
    """Every row of a table as a run, in the order of the file."""
    runs: list[Run] = []
    impossible: list[tuple[Row, str]] = []
    skipped = list(table.skipped)
    for row, line in zip(table.rows, table.lines, strict=True):
        try:
            runs.append(run(row))
        except ImpossibleError as why:
            impossible.append((row, str(why)))
        except UnreadableError as why:
            skipped.append(Skipped(id=row["id"], line=line, reason=why.detail, kind=str(why), row=row))
        except InputError as error:
            first = error.messages[0]
            kind = KINDS.get(first.id, "outside the catalogue's range")
            kind = f"unknown {first.values['noun']}" if first.id == "catalog.unknown" else kind
            skipped.append(Skipped(id=row["id"], line=line, reason=str(first), kind=kind, row=row))
    return Reading(runs=tuple(runs), impossible=tuple(impossible), skipped=tuple(skipped))


KINDS = {"cluster.ragged": "devices are no whole nodes"}
