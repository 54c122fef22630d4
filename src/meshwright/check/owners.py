"""Whose file it is: the framework whose keys it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.documents.opening import is_script
from meshwright.frameworks.owners import knows, owner_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.frameworks.base import Framework
    from meshwright.frameworks.settings import Reading


def strange_files(framework: Framework, reading: Reading) -> Mapping[str, Framework | None]:
    """Path of a data file without any key of the framework -> the framework whose file it is, where one is recognised."""
    if framework.surface is None:
        return {}
    known = framework.surface().keys
    found: dict[str, Framework | None] = {}
    for document in reading.source.documents:
        keys = tuple(document.settings()) if not is_script(document.path) else ()
        if keys and not any(knows(known, key) for key in keys):
            found[document.path] = owner_of(keys, without=framework.name)
    return found
