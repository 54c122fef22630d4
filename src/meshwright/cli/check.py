"""``meshwright check``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.options import JSON
from meshwright.api.verbs.check import CheckAnswer, CheckRequest, check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.report.blocks import Told

EPILOG = (
    "Example: meshwright check train.sh --from megatron@0.16 --model llama3-70b --device h100-sxm --devices 512 "
    "--claim tokens_per_s_per_device=900 --claim mfu=0.45"
)
FIELDS = (*CheckRequest.FIELDS, JSON)
REQUEST, ASK = CheckRequest, check


def report(answer: CheckAnswer, _options: object) -> Iterator[Told]:
    """The findings."""
    from meshwright.report.findings import findings_report

    return findings_report(answer.checked)
