"""``meshwright compare``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.options import JSON
from meshwright.api.verbs.compare import CompareAnswer, CompareRequest, compare

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.report.blocks import Told

EPILOG = "Example: meshwright compare monday.log tuesday.log   Layouts that did not run are compared by: meshwright plan --compare"
FIELDS = (*CompareRequest.FIELDS, JSON)
REQUEST, ASK = CompareRequest, compare


def report(answer: CompareAnswer, _options: object) -> Iterator[Told]:
    """What changed."""
    from meshwright.report.compare_runs import compare_report
    from meshwright.report.redacted import blanked

    parts = compare_report(answer)
    return blanked(parts) if answer.redact else parts
