"""``meshwright step``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.options import JSON
from meshwright.api.verbs.step import StepAnswer, StepRequest, step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.report.blocks import Told

EPILOG = (
    "Example: meshwright step llama3-8b --layers 4 --hidden 1024 --vocabulary 8192 --global-batch 8 --sequence 256 "
    '--layout "tp2 sp mb4"'
)
FIELDS = (*StepRequest.FIELDS, JSON)
REQUEST, ASK = StepRequest, step


def report(answer: StepAnswer, _options: object) -> Iterator[Told]:
    """What was measured."""
    from meshwright.report.step import step_report

    return step_report(answer.document)
