"""``meshwright tune``: its options, its screen and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.api.options import JSON
from meshwright.api.verbs.tune import TuneAnswer, TuneRequest, tune
from meshwright.cli.sweep import WATCH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.report.blocks import Told

EPILOG = "Example: meshwright tune llama3-8b --device h100-sxm --nodes 2 --global-batch 64 --sequence 4096 --executor slurm"
FIELDS = (*TuneRequest.FIELDS, JSON)
REQUEST, ASK = TuneRequest, tune
__all__ = ["ASK", "EPILOG", "FIELDS", "REQUEST", "WATCH", "report"]


def report(answer: TuneAnswer, _options: Any) -> Sequence[Told]:
    """What came of the trials, and what is left."""
    from meshwright.report.replay import told_of as told_of_replay
    from meshwright.report.trials import told_of

    view = answer.to_json()
    return told_of(view) if answer.replayed is None else told_of_replay(view)
