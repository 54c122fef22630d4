"""Configurations that programs print as JSON over many lines, kept as settings with dotted keys.

``zero_optimization.stage`` under the prefix ``deepspeed`` is the setting ``deepspeed.zero_optimization.stage``; its text is JSON,
so that the document can be put together from them (``document_of``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from meshwright.errors import InputError
from meshwright.readers.lines import Hit
from meshwright.readers.logs.draft import Draft
from meshwright.readers.safe import parse_json

MOST_LINES = 3000
MOST_KEYS = 2000
DEPTH = 12


def take_json(draft: Draft, hit: Hit, prefix: str, begins: int = 0) -> bool:
    """Keep the object of the first brace behind ``begins``, whether it ends on its line or at the first brace that begins a line.

    What ranks repeat counts once; where a second object differs from the first nobody can tell which one trains, and the log
    has none. False where there is no whole object: other ranks' lines may stand among its own.
    """
    at = hit.line.text.find("{", begins)
    text = hit.line.text[at:] if at >= 0 else ""
    if not text.rstrip().endswith("}"):
        rest: list[str] = []
        for line in hit.following(MOST_LINES):
            rest.append(line.text)
            if line.text.startswith("}"):
                break
        text = "\n".join([text, *rest])
    try:
        found = parse_json(text, unknown=True)
    except InputError:
        return False
    if not isinstance(found, dict):
        return False
    said = dict(_flat(found, prefix))
    known = draft.state.setdefault("dumps", {})
    if known.setdefault(prefix, said) != said:
        known[prefix] = {}
        draft.note(f"The log has several of {prefix}: none of them is taken.")
    return True


def keep(draft: Draft) -> None:
    """Make settings of what was kept, once the log is read."""
    for said in draft.state.get("dumps", {}).values():
        for key, value in said.items():
            draft.setting(key, value)


def document_of(settings: Mapping[str, str], prefix: str) -> dict[str, Any] | None:
    """The object under a prefix; None where there is none."""
    whole: dict[str, Any] = {}
    for key, text in settings.items():
        if not key.startswith(f"{prefix}."):
            continue
        *path, last = key.split(".")[1:]
        place = whole
        for name in path:
            place = place.setdefault(name, {})
        place[last] = json.loads(text)
    return whole or None


def _flat(value: Mapping[str, Any], prefix: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Dotted key -> JSON of the value; empty objects, and what stands too deep, are values."""
    for name, each in list(value.items())[:MOST_KEYS]:
        key = f"{prefix}.{name}"
        if isinstance(each, dict) and each and depth < DEPTH and not any("." in str(inner) for inner in each):
            yield from _flat(each, key, depth + 1)
        elif "." not in str(name):
            yield key, json.dumps(each)
