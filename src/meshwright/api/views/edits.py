"""JSON of ``edits``: the document of the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:


    from meshwright.frameworks.editing import Edit, Edited


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
