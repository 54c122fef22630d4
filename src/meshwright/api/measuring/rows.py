"""Attempts of a store as rows of measured runs: a CSV, or the same as Parquet."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.api.measuring.subject import Subject
    from meshwright.measure.outcome import Outcome
    from meshwright.measure.store import Attempt

TELLS = frozenset({"ok", "oom"})
"""What says something of a layout; other endings are kept in rows with a flag, which no fit reads."""


def rows_of(given: Subject, attempts: Sequence[Attempt], store: Path) -> tuple[list[dict[str, str]], dict[str, str]]:
    """A row for each attempt whose layout rows have words for, and label -> why for the others."""
    from meshwright.evidence.rows.written import row_of_case
    from meshwright.measure.chooser import layout_of

    rows, left = [], {}
    for each in attempts:
        outcome = each.outcome
        if outcome is None or outcome.status == "cancelled":
            continue
        good = outcome.measured
        try:
            rows.append(row_of_case(
                given.case, given.read(layout_of(each.label)[0]),
                id=f"{each.id}-{each.attempt}", source=f"measured by meshwright, {store.name}",
                framework=given.framework, version=given.version, status="ok" if good else "failed",
                step_s=outcome.step_s if good else None, memory_bytes=outcome.memory_peak_bytes,
                flag=_flag(given, outcome), notes=outcome.evidence[:300],
            ))
        except InputError as error:
            left[each.label] = str(error.messages[0])
    return rows, left


def _flag(given: Subject, outcome: Outcome) -> str:
    """Why no fit may read the row: it says nothing of its layout, or was not measured as it stands there."""
    if outcome.status not in TELLS:
        return f"ended: {outcome.status}"
    return f"scaled from {given.shorter.model.num_layers} layers" if given.shorter is not None else ""


def write_rows(path: str, rows: Sequence[dict[str, str]], *, force: bool) -> None:
    """The file of ``--out``, whole or not at all."""
    from meshwright.evidence.rows import parquet
    from meshwright.evidence.rows.written import table_of
    from meshwright.outputs import Output, write

    if not path.endswith(".parquet"):
        write([Output(path=path, text=table_of(rows))], force=force)
        return
    parquet.require_arrow("--out")
    with tempfile.TemporaryFile() as spool:
        parquet.write(rows, spool)
        spool.seek(0)
        write([Output(path=path, spool=spool)], force=force)
