"""JSON of ``explain``: the document of the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.api.views.constants import constants_view
from meshwright.api.views.estimates import estimate_view, plain

if TYPE_CHECKING:


    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.explain import Explanation


def explanation_view(case: Case, estimate: Estimate, explanation: Explanation) -> dict[str, Any]:
    """The document of ``explain --json``."""
    return {
        "estimate": estimate_view(estimate), "constants": constants_view(case.calibration, estimate),
        "explanation": plain(explanation),
    }
