"""``meshwright validate``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.options import JSON
from meshwright.api.verbs.validate import ValidateAnswer, ValidateRequest, validate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.report.blocks import Section

EPILOG = "Example: meshwright validate measured.csv --calibration none --rows predicted.csv"
FIELDS = (*ValidateRequest.FIELDS, JSON)
REQUEST, ASK = ValidateRequest, validate


def report(answer: ValidateAnswer, _options: object) -> Iterator[Section]:
    """What the predictions are worth."""
    from meshwright.report.validation import validation_report

    return validation_report(answer.validation, answer.summary)
