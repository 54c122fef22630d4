"""``meshwright diagnose``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.options import JSON
from meshwright.api.verbs.diagnose import DiagnoseAnswer, DiagnoseRequest, diagnose

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

EPILOG = (
    "Example: meshwright diagnose run.log --from megatron --model llama3-70b --device h100-sxm   "
    "Or: meshwright diagnose logs/ traces/ --plan my-run/plan.yaml"
)
FIELDS = (*DiagnoseRequest.FIELDS, JSON)
REQUEST, ASK = DiagnoseRequest, diagnose


def report(answer: DiagnoseAnswer, _options: object) -> Iterator[RenderableType]:
    """The diagnosis."""
    from meshwright.report.diagnose import diagnose_report

    return diagnose_report(answer)
