"""What a framework calls the actions that help a slow run (``actions.yaml``)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from meshwright.readers.shipped import load_shipped


@cache
def _table() -> dict[str, dict[str, str]]:
    loaded = load_shipped(Path(__file__).with_name("actions.yaml"))
    assert isinstance(loaded, dict)
    return loaded


@cache
def actions_of(name: str) -> Mapping[str, str]:
    """Action -> keys of a framework of this package, ``like`` another where it takes its keys; nothing for others."""
    own = dict(_table().get(name, {}))
    like = own.pop("like", "")
    return {**actions_of(like), **own} if like else own
