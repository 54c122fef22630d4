"""``meshwright estimate``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.api.fields import Field
from meshwright.api.options import JSON
from meshwright.api.verbs.estimate import EstimateAnswer, EstimateRequest, estimate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from meshwright.report.blocks import Told


EPILOG = (
    "Example: meshwright estimate llama3-8b --device h100-sxm --nodes 1 --global-batch 128 --sequence 8192 "
    '--layout "tp2 mb1 sp zero1"'
)
TERMS = Field(name="terms", kind="flag", panel="Output", in_file=False, help="Also print every term with its formula.")
FIELDS = (*EstimateRequest.FIELDS, TERMS, JSON)
REQUEST, ASK = EstimateRequest, estimate


def report(answer: EstimateAnswer, options: Mapping[str, Any]) -> Iterator[Told]:
    """What is told, and the terms where they are asked for."""
    from meshwright.report.estimate import term_table, told_of

    yield from told_of(answer)
    if options["terms"]:
        yield from term_table(answer.estimate)
