"""``meshwright diagnose``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.api.options import JSON
from meshwright.api.verbs.diagnose import DiagnoseAnswer, DiagnoseRequest, diagnose

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from meshwright.report.blocks import Told

EPILOG = (
    "Example: meshwright diagnose run.log --from megatron --model llama3-70b --device h100-sxm   "
    "Or: meshwright diagnose logs/ traces/ --plan my-run/plan.yaml"
)
FIELDS = (*DiagnoseRequest.FIELDS, JSON)
REQUEST, ASK = DiagnoseRequest, diagnose


def WATCH(_options: object, show: Callable[[Any], None]) -> dict[str, Any]:  # noqa: N802 (a word of the verb's table)
    """A run that goes on is told whenever its findings change."""
    return {"told": show}


def report(answer: DiagnoseAnswer, _options: object) -> Sequence[Told]:
    """The diagnosis."""
    from meshwright.report.diagnose import told_of

    return told_of(answer)


def AFTER(answer: DiagnoseAnswer, options: Mapping[str, Any]) -> None:  # noqa: N802
    """What was written."""
    from meshwright.cli.output import print_lines

    if not options["json"]:
        print_lines([f"written: {each}" for each in (answer.saved,) if each])
