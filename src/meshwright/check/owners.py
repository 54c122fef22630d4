"""Whose file it is: the framework whose keys it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.documents.opening import is_script
from meshwright.frameworks import framework as framework_named
from meshwright.frameworks import frameworks

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.base import Framework
    from meshwright.frameworks.settings import Reading

MOST = 0.6
"""Share of a file's keys that another framework must know for the file to be its own."""


def strange_files(framework: Framework, reading: Reading) -> Mapping[str, Framework | None]:
    """Path of a data file without any key of the framework -> the framework whose file it is, where one is recognised."""
    if framework.surface is None:
        return {}
    known = framework.surface().keys
    found: dict[str, Framework | None] = {}
    for document in reading.source.documents:
        keys = tuple(document.settings()) if not is_script(document.path) else ()
        if keys and not any(_knows(known, key) for key in keys):
            found[document.path] = _owner(keys, framework.name)
    return found


def _knows(known: Mapping[str, object], key: str) -> bool:
    """Whether a key, or a section above it, is known."""
    parts = key.split(".")
    return any(".".join(parts[:depth]) in known for depth in range(1, len(parts) + 1))


def _owner(keys: tuple[str, ...], own: str) -> Framework | None:
    """The framework that knows most of some keys, if it is enough of them; among equals the one that knows little else."""
    best: tuple[float, float, str] = (MOST, 0.0, "")
    sections = {key.partition(".")[0] for key in keys}
    for name in frameworks():
        surface = framework_named(name).surface
        if name == own or surface is None:
            continue
        known = surface().keys
        share = sum(_knows(known, key) for key in keys) / len(keys)
        alike = sum(key.partition(".")[0] in sections for key in known) / len(known)
        best = max(best, (share, alike, name))
    return framework_named(best[2]) if best[2] else None
