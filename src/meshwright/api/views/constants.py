"""JSON of ``constants``: the document of the contract."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from meshwright.domain.measured import MEASURED

if TYPE_CHECKING:


    from meshwright.domain.calibration import Calibration, Move
    from meshwright.domain.estimate import Estimate, Grade


def constants_view(calibration: Calibration, estimate: Estimate) -> list[dict[str, Any]]:
    """Every constant with its prior, its value, its grade, and the factor of every level that moved it; empty for the priors."""
    return [
        {
            "name": move.name, "prior": move.prior, "value": move.value, "grade": _grade(move, estimate),
            "moved_by": {level: math.exp(offset) for level, offset in move.offsets.items()},
            **({"source": move.source} if move.source else {}),
        }
        for move in calibration.moved
    ]


def _grade(move: Move, estimate: Estimate) -> Grade:
    """``measured`` by a profile of this cluster; ``analytic`` where no run moved it; else its step time's, kin at least."""
    grade = (estimate.grades or {}).get("step_s", "analytic")
    if not move.offsets:
        return "analytic"
    if MEASURED in move.offsets:
        return "measured"
    return "kin" if grade == "analytic" else grade
