"""JSON of ``findings``: the document of the contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from meshwright.documents.source import UNKNOWN

if TYPE_CHECKING:


    from meshwright.check import Checked
    from meshwright.frameworks.settings import Finding


def findings_view(checked: Checked) -> dict[str, Any]:
    """``check --json``: the contract's keys, the place of each finding, and what was not looked at."""
    found = checked.estimate
    return {
        "ok": checked.ok,
        "findings": [finding_view(each) for each in checked.findings],
        "skipped": list(checked.skipped),
        "label": found.label if found is not None else None,
    }


def finding_view(each: Finding) -> dict[str, Any]:
    """One finding."""
    return {
        "id": each.message.id, "severity": each.severity, "message": str(each.message), "value": simple(each.value),
        "expected": simple(each.expected), "source": each.source, "place": each.message.path,
    }


def simple(value: object) -> Any:
    """A value as JSON has it."""
    if value is UNKNOWN:
        return "unknown"
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, Mapping):
        return {str(key): simple(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [simple(each) for each in value]
    return str(value)
