"""JSON of ``edits``: the document of the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.api.views.estimates import number, whole
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.editing import Edit, Edited


class Change(Value, frozen=True, kw_only=True):
    """One key of the layout that is another one, and the rule that the former value breaks."""

    field: str
    before: Any
    after: Any
    why: str


class NearestPlan(Value, frozen=True, kw_only=True):
    """The plan to export; without changes where the framework can run the saved one."""

    layout: Layout
    estimate: Estimate
    changes: tuple[Change, ...] = ()
    step_change_ratio: float = 0.0
    """Its step over that of the saved plan, less one, both as the framework would run them that it is exported to."""
    memory_change_bytes: float = 0.0
    """Reserved bytes of the fullest device."""
    knobs: int = 0
    """Knobs that differ from the saved plan's; what follows from them is not counted."""
    faster: Estimate | None = None
    """A plan of the framework that is far faster and differs in more."""
    faster_knobs: int = 0


def edits_view(edited: Edited) -> dict[str, Any]:
    """The JSON of changes."""
    return {
        "edits": [_edit_view(edit) for edit in edited.edits], "resume": edited.meaning.resume, "diff": edited.diff,
        "messages": [str(message) for message in edited.messages],
    }


def _edit_view(edit: Edit) -> dict[str, Any]:
    """One change."""
    return {
        "field": edit.key, "from": edit.before, "to": edit.after, "file": edit.file, "line": edit.line or None,
        "resume": edit.meaning.resume,
    }


def nearest_view(plan: NearestPlan) -> dict[str, Any]:
    """What was exported in place of the saved plan, key by key, and what that costs; ``nearest`` is false where nothing changed."""
    return {
        "nearest": bool(plan.changes), "label": plan.estimate.label,
        "changes": [{"field": each.field, "from": each.before, "to": each.after, "why": each.why} for each in plan.changes],
        "step_change_ratio": number(plan.step_change_ratio), "memory_change_bytes": whole(plan.memory_change_bytes),
        "faster": None if plan.faster is None else {
            "label": plan.faster.label, "step_s": number(plan.faster.step_s), "knobs": plan.faster_knobs,
        },
    }
