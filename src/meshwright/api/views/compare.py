"""JSON of ``compare``: the document of the contract."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from meshwright.api.views.diagnose import observed_view

if TYPE_CHECKING:
    from meshwright.api.verbs.compare import CompareAnswer


def compare_view(answer: CompareAnswer) -> dict[str, Any]:
    """``compare --json``."""
    found = answer.comparison
    return {
        "step_change_ratio": found.step_change_ratio,
        "parts": [asdict(each) for each in found.parts],
        "settings_changed": [asdict(each) for each in found.settings_changed],
        "a": observed_view(answer.a.diagnosis),
        "b": observed_view(answer.b.diagnosis),
        "findings_gone": _only(answer.a, answer.b),
        "findings_new": _only(answer.b, answer.a),
        "notes": list(found.notes),
    }


def _only(one: Any, other: Any) -> list[str]:
    """Findings of one run that the other does not have."""
    known = {each.id for each in other.diagnosis.findings}
    return list(dict.fromkeys(each.id for each in one.diagnosis.findings if each.id not in known))
