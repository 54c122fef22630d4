"""Every row of a validation as a CSV: predicted, measured, bounds, and why a row was left out."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, TextIO

from meshwright.documents.quoting import csv_cell
from meshwright.evidence.rows.table import Skipped
from meshwright.text import visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.evidence.score.scored import Bounds, Scored
    from meshwright.evidence.score.validation import Validation

COLUMNS = (
    "id", "predicted_step_s", "measured_step_s", "predicted_memory_bytes", "measured_memory_bytes", "predicted_fits",
    "fit_probability", "status", "lo_step_s", "hi_step_s", "lo_memory_bytes", "hi_memory_bytes", "skipped",
)


def rows_csv(validation: Validation) -> str:
    """The rows in the order of their file, those left out among them; what there is not stays blank."""
    stream = io.StringIO(newline="")
    write = row_writer(stream)
    found: list[Scored | Skipped] = [*validation.rows, *validation.skipped]
    for each in sorted(found, key=lambda each: each.line):
        write(each)
    return stream.getvalue()


def row_writer(stream: TextIO) -> Callable[[Scored | Skipped], None]:
    """What writes rows to a stream, one by one, below the header that it has written."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)

    def write(each: Scored | Skipped) -> None:
        writer.writerow(_left_out(each) if isinstance(each, Skipped) else _cells(each))

    return write


def _cells(each: Scored) -> list[str]:
    return [
        csv_cell(each.id), _number(each.predicted_step_s), _number(each.measured_step_s), _bytes(each.predicted_memory_bytes),
        _bytes(each.measured_memory_bytes), str(each.predicted_fits).lower(), _number(each.fit_probability), each.row.status,
        *_bounds(each.step_interval_s), *map(_bytes, each.memory_interval_bytes or (None, None)), "",
    ]


def _left_out(each: Skipped) -> list[str]:
    blank = [""] * len(COLUMNS)
    blank[0], blank[COLUMNS.index("skipped")] = csv_cell(visible(each.id)), csv_cell(each.reason)
    return blank


def _bounds(interval: Bounds | None) -> list[str]:
    return ["", ""] if interval is None else [_number(each) for each in interval]


def _number(value: float | None) -> str:
    return "" if value is None else repr(float(value))


def _bytes(value: float | None) -> str:
    return "" if value is None else str(round(value))
