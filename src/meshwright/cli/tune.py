"""``meshwright tune``: its options, its screen and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.api.options import JSON
from meshwright.api.verbs.tune import TuneAnswer, TuneRequest, tune
from meshwright.cli.sweep import WATCH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

EPILOG = "Example: meshwright tune llama3-8b --device h100-sxm --nodes 2 --global-batch 64 --sequence 4096 --executor slurm"
FIELDS = (*TuneRequest.FIELDS, JSON)
REQUEST, ASK = TuneRequest, tune
__all__ = ["ASK", "EPILOG", "FIELDS", "REQUEST", "WATCH", "report"]


def report(answer: TuneAnswer, _options: Any) -> Iterator[RenderableType]:
    """What came of the trials, and what is left."""
    from meshwright.report.replay import replay_report
    from meshwright.report.trials import trials_report

    view = answer.to_json()
    if answer.replayed is not None:
        yield from replay_report(view)
        return
    yield from trials_report(view)
    if "verdict" in view:
        from rich.text import Text

        yield Text(view["verdict"], style="bold")
