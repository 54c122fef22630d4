"""``meshwright tune``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.options import JSON
from meshwright.api.verbs.tune import TuneAnswer, TuneRequest, tune

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

EPILOG = "Example: meshwright tune --replay measured.csv --cell llama-8B/pretrain/h100-80g-sxm/64"
FIELDS = (*TuneRequest.FIELDS, JSON)
REQUEST, ASK = TuneRequest, tune


def report(answer: TuneAnswer, _options: object) -> Iterator[RenderableType]:
    """The trials, and what they come to."""
    from meshwright.report.replay import replay_report

    return replay_report(answer.to_json())
