"""``meshwright fix``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.api.options import JSON
from meshwright.api.verbs.fix import FixAnswer, FixRequest, fix

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from meshwright.report.blocks import Told

EPILOG = (
    "Example: meshwright fix train.sh --from megatron --model llama3-70b --device h100-sxm --nodes 4 --oom run.log   "
    "Or: meshwright fix llama3-70b --device h100-sxm --nodes 4 --global-batch 32 --sequence 4096 --memory 70GiB "
    '--layout "tp4 pp4 mb1 sp"'
)
FIELDS = (*FixRequest.FIELDS, JSON)
REQUEST, ASK = FixRequest, fix


def WATCH(_options: object, show: Callable[[Any], None]) -> dict[str, Any]:  # noqa: N802 (a word of the verb's table)
    """A change is told before it is made."""
    return {"told": show}


def report(answer: FixAnswer, _options: object) -> Sequence[Told]:
    """The changes."""
    from meshwright.report.fix import told_of

    return told_of(answer)


def AFTER(answer: FixAnswer, options: Mapping[str, Any]) -> None:  # noqa: N802
    """What was changed."""
    from meshwright.cli.output import print_lines

    print_lines(f"changed: {path}" for path in (() if options["json"] else answer.applied))
