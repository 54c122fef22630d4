"""``meshwright export``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.options import JSON
from meshwright.api.verbs.export import ExportAnswer, ExportRequest, export

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.report.blocks import Told

EPILOG = "Example: meshwright export run/plan.yaml --to megatron@0.16 --out run"
FIELDS = (*ExportRequest.FIELDS, JSON)
REQUEST, ASK = ExportRequest, export


def report(answer: ExportAnswer, _options: object) -> Iterator[Told]:
    """What is another plan than the saved one, what changes in the user's files; the paths."""
    from meshwright.report.blocks import line
    from meshwright.report.edits import edits_report, nearest_report
    from meshwright.report.estimate import note_lines

    if answer.plan is not None:
        yield from nearest_report(answer.plan)
    if answer.edited is not None:
        yield from edits_report(answer.edited)
    yield from note_lines(answer.notes)
    for path in answer.files:
        yield line(path, whole=True)
