"""``meshwright explain``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.options import JSON
from meshwright.api.verbs.explain import ExplainAnswer, ExplainRequest, explain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

EPILOG = "Example: meshwright explain llama3-70b --device h100-sxm --nodes 64 --global-batch 1024 --sequence 8192"
FIELDS = (*ExplainRequest.FIELDS, JSON)
REQUEST, ASK = ExplainRequest, explain


def report(answer: ExplainAnswer, _options: object) -> Iterator[RenderableType]:
    """The estimate and what there is to say about it."""
    from meshwright.report.explain import explanation_report

    return explanation_report(answer.given.case, answer.estimate, answer.explanation)
