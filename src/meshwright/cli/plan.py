"""``meshwright plan``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.options import JSON
from meshwright.api.verbs.plan import PlanAnswer, PlanRequest, plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.report.blocks import Told

EPILOG = "Example: meshwright plan llama3-70b --device h100-sxm --nodes 64 --global-batch 1024 --sequence 8192"
FIELDS = (*PlanRequest.FIELDS, JSON)
REQUEST, ASK = PlanRequest, plan


def report(answer: PlanAnswer, _options: object) -> Iterator[Told]:
    """What is told."""
    from meshwright.report.plan import told_of

    return told_of(answer)
