"""``meshwright sweep``: its options, its screen and its report."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from meshwright.api.options import JSON
from meshwright.api.verbs.sweep import SweepAnswer, SweepRequest, sweep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.report.blocks import Told

EPILOG = (
    "Example: meshwright sweep llama3-8b --device h100-sxm --nodes 2 --global-batch 64 --sequence 4096 --top 5 --executor slurm"
)
FIELDS = (*SweepRequest.FIELDS, JSON)
REQUEST, ASK = SweepRequest, sweep


def WATCH(_options: Mapping[str, Any], _show: object) -> dict[str, Any]:  # noqa: N802 (a word of the verb's table)
    """The screen of what runs, and the question before it."""
    from meshwright.report.live import screen

    return {"told": screen(sys.stderr), "confirm": asked if sys.stdin.isatty() and sys.stderr.isatty() else None}


def asked(line: str) -> bool:
    """The price, and whether to go on."""
    from meshwright.cli.output import warn

    warn(line)
    print("Start? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def report(answer: SweepAnswer, _options: object) -> Sequence[Told]:
    """What came of the trials."""
    from meshwright.report.trials import told_of

    return told_of(answer.to_json())
