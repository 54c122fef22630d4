"""Whose keys: the framework that knows most of what a file holds."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.frameworks import framework, keys_of_ours, keys_of_plugins

if TYPE_CHECKING:
    from collections.abc import Collection

    from meshwright.frameworks.base import Framework

MOST = 0.6
"""Share of a file's keys that another framework must know for the file to be its own."""


def knows(known: Collection[str], key: str) -> bool:
    """Whether a key, or a section above it, is known."""
    parts = key.split(".")
    return any(".".join(parts[:depth]) in known for depth in range(1, len(parts) + 1))


def owner_of(keys: tuple[str, ...], *, without: str = "") -> Framework | None:
    """The framework that knows most of some keys, if it is enough of them; among equals the one that knows little else.

    Other packages' are asked where none of ours knows all of the keys: to find them is to read about all that is installed.
    """
    best: tuple[float, float, str] = (MOST, 0.0, "")
    sections = {key.partition(".")[0] for key in keys}
    for tables in (keys_of_ours, keys_of_plugins):
        for name, known in tables():
            if name != without:
                share = sum(knows(known, key) for key in keys) / len(keys)
                alike = sum(key.partition(".")[0] in sections for key in known) / len(known)
                best = max(best, (share, alike, name))
        if best[0] == 1.0:
            break
    return framework(best[2]) if best[2] else None


def signed(fork: Framework, text: str) -> bool:
    """Whether files name what only a fork's scripts do (``Facts.signs``): it takes the flags of what it comes from."""
    return bool(re.search(fork.facts.signs, text, re.IGNORECASE))
