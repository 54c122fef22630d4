"""What helps, in the field's words and, where a framework is named, in its own keys (``remedies.yaml``).

Keys of trainers of reinforcement learning stand there by the framework whose log it is: phases are theirs, whichever of their back
ends trains.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.readers.shipped import load_shipped

if TYPE_CHECKING:
    from meshwright.frameworks.base import Framework


@cache
def _table() -> dict[str, list[dict[str, Any]]]:
    """Finding -> remedies, the first first: ``says`` in words, ``does`` the action whose keys frameworks name; ``keys``."""
    loaded = load_shipped(Path(__file__).with_name("remedies.yaml"))
    assert isinstance(loaded, dict)
    return loaded


def remedies(
    finding: str, framework: Framework | None, values: Mapping[str, object] | None = None, *, spoken: str = ""
) -> tuple[str, ...]:
    """What helps against a finding; unknown findings have nothing. ``values``: what stands in braces in its words;
    ``spoken``: the framework whose log it is.

    A framework's keys stand behind the words where it has keys for them (``Framework.actions``); what it has no way to do is left
    out where it says so by an empty text.
    """
    said = []
    for each in _table().get(finding, ()):
        keys = each.get("keys", {}).get(spoken) if framework is None or "does" not in each else framework.actions.get(each["does"])
        if keys == "":
            continue
        says = each["says"].format_map(values) if values else each["says"]
        said.append(f"{says}: {keys}" if keys else says)
    return tuple(said)


def actions() -> frozenset[str]:
    """Every action that a framework may have keys for."""
    return frozenset(each["does"] for rows in _table().values() for each in rows if "does" in each)
