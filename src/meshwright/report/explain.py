"""The report of ``explain``: the estimate, what it is made of, and the findings of ``diagnose``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.text import Text

from meshwright.report.estimate import estimate_report, term_table
from meshwright.report.facts import flat
from meshwright.report.view import estimate_view, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate


def explanation_report(case: Case, estimate: Estimate, explanation: object | None) -> Iterator[RenderableType]:
    """The estimate, then its terms, then everything that the explanation says."""
    yield from estimate_report(case, estimate)
    yield from term_table(estimate)
    if explanation is not None:
        yield Padding(Text("Findings", style="bold"), (1, 0, 0, 0))
        for key, value in flat(plain(explanation)):
            yield Padding(Text.assemble((f"{key}: ", "dim"), value), (0, 0, 0, 2))


def explanation_view(estimate: Estimate, explanation: object | None) -> dict[str, Any]:
    """The document of ``explain --json``."""
    return {"estimate": estimate_view(estimate), "explanation": plain(explanation)}
