"""The folder beside a user's files in which a change of them is prepared: ``.meshwright-UID``, that only this user may enter."""

from __future__ import annotations

import os
import stat

JOURNAL, ELSEWHERE = "journal", "elsewhere"
"""In it: what it takes to undo the change, or, where that is in another folder, which one."""


def stage_of(folder: str, user: int | None = None) -> str:
    """Where what belongs into a folder is prepared, by this user or another one."""
    return f"{folder}/.meshwright-{os.geteuid() if user is None else user}"


def is_ours(stage: str) -> bool:
    """Whether a stage is a folder of this user's; nobody else's journal is obeyed."""
    try:
        found = os.lstat(stage)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def may(path: str, how: int) -> bool:
    """Whether this user may do so (``os.W_OK``, ``os.X_OK``)."""
    return os.access(path, how, effective_ids=os.access in os.supports_effective_ids)


def upwards(folder: str) -> list[str]:
    """A folder and those that it is in, links followed."""
    found = [os.path.realpath(folder)]
    while (above := os.path.dirname(found[-1])) != found[-1]:
        found.append(above)
    return found
