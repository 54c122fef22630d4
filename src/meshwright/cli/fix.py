"""``meshwright fix``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.options import JSON
from meshwright.api.verbs.fix import FixAnswer, FixRequest, fix

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

EPILOG = (
    "Example: meshwright fix train.sh --from megatron --model llama3-70b --device h100-sxm --nodes 4 --oom run.log   "
    "Or: meshwright fix llama3-70b --device h100-sxm --nodes 4 --global-batch 32 --sequence 4096 --memory 70GiB "
    '--layout "tp4 pp4 mb1 sp"'
)
FIELDS = (*FixRequest.FIELDS, JSON)
REQUEST, ASK = FixRequest, fix


def report(answer: FixAnswer, _options: object) -> Iterator[RenderableType]:
    """The changes, and what was changed."""
    from meshwright.report.fix import fix_report
    from meshwright.report.pieces import path_line

    yield from fix_report(answer.fixed, answer.number)
    for path in answer.applied:
        yield path_line(f"changed: {path}")
