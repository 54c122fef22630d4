"""Settings as sections."""

from __future__ import annotations

from collections.abc import Mapping


def nested(settings: Mapping[str, object]) -> dict[str, object]:
    """``{a: {b: value}}`` for ``{"a.b": value}``."""
    document: dict[str, object] = {}
    for key, value in settings.items():
        *path, name = key.split(".")
        section = document
        for part in path:
            section = section.setdefault(part, {})  # type: ignore[assignment]
        section[name] = value
    return document
