"""The first thing that every start of the program does: is anything half done where it is going to read or write?"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from meshwright.outputs.stage import JOURNAL, is_ours, may, stage_of, upwards

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
    said = [message for folder in dict.fromkeys(found) for message in _of_others(folder)]
    if staged:
        from meshwright.outputs.recovery import recover

        said += recover(staged)
    return said


def _of_others(folder: str) -> list[Message]:
    """What root, or the owner of a folder, has left half done in it: only they can put it back."""
    with suppress(OSError):
        for user in {0, os.stat(folder).st_uid} - {os.geteuid()}:
            stage = stage_of(folder, user)
            if os.path.lexists(stage) and (os.path.lexists(f"{stage}/{JOURNAL}") or not may(stage, os.X_OK)):
                from meshwright.errors import Message

                template = "a write of user {user} is under way there, or was interrupted: then that user's next start undoes it"
                return [Message("file.others", template, {"user": user}, folder)]
    return []
