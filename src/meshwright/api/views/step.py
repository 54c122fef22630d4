"""JSON of ``step``: the document of the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.api.views.estimates import estimate_view

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.domain.estimate import Estimate
    from meshwright.engine.report import StepReport

    View = Mapping[str, Any]


def step_view(report: StepReport, name: str, estimate: Estimate | None) -> dict[str, Any]:
    """The run of the layout ``name`` as JSON of the contract; what compares is null where nothing was predicted."""
    predicted = None if estimate is None else estimate_view(estimate)
    error = None if estimate is None else float(estimate.step_s) / report.step_s - 1.0
    return {**report.document(), "label": name, "estimate": predicted, "error_ratio": error}
