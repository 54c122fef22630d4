"""The first thing that every start of the program does: is anything half done where it is going to read or write?"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from meshwright.outputs.stage import is_ours, stage_of, upwards

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshwright.errors import Message


def recover_named(words: Iterable[str]) -> list[Message]:
    """``recover`` for all folders that the words of a command line name, or that hold what they name.

    Errors:  InputError where a file cannot be put back, or somebody is writing there for long.
    """
    found: list[str] = []
    with suppress(OSError):  # a folder that has been removed
        found.append(os.getcwd())
    for word in words:
        for path in {word, word.partition("=")[2]} - {""}:
            with suppress(OSError, ValueError):
                real = os.path.realpath(path)
                found.append(real if os.path.isdir(real) else os.path.dirname(real))
    staged = [folder for folder in found if any(is_ours(stage_of(each)) for each in upwards(folder))]
    if not staged:
        return []
    from meshwright.outputs.recovery import recover

    return recover(staged)
