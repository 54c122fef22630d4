"""JSON of ``compare``: the document of the contract."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from meshwright.api.views.diagnose import observed_view

if TYPE_CHECKING:
    from meshwright.diagnose.comparison import Comparison
    from meshwright.diagnose.diagnosis import Diagnosis


def compare_view(found: Comparison, a: Diagnosis, b: Diagnosis) -> dict[str, Any]:
    """``compare --json``."""
    return {
        "step_change_ratio": found.step_change_ratio,
        "parts": [asdict(each) for each in found.parts],
        "settings_changed": [asdict(each) for each in found.settings_changed],
        "a": observed_view(a),
        "b": observed_view(b),
        "findings_gone": _only(a, b),
        "findings_new": _only(b, a),
        "notes": list(found.notes),
    }


def _only(one: Diagnosis, other: Diagnosis) -> list[str]:
    """Findings of one run that the other does not have."""
    known = {each.id for each in other.findings}
    return list(dict.fromkeys(each.id for each in one.findings if each.id not in known))
