"""What a keeper has left in the folder of its trial."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from meshwright.measure.executors.base import Cause, Ended
from meshwright.measure.trial import ENDED

if TYPE_CHECKING:
    from pathlib import Path

UNKEPT = "unkept"
"""Stands in the folder of a trial whose keeper was killed."""


def fresh(folder: Path) -> None:
    """Have the next look into a folder see what other hosts have put there.

    Holds:   over NFS a host believes what it knows of a folder (what is in it, and what is not) for up to a minute. Its own change
             of the folder's times goes to the server, whose answer shows that it is another by now. Elsewhere it costs nothing.
    Source:  nfs(5), "Data and metadata coherence", "Directory entry caching". Not tried on NFS.
    """
    with suppress(OSError):
        os.utime(folder)


def worded(folder: Path) -> bool:
    """Whether the end of a trial stands in its folder, or that nobody can say it any more."""
    return (folder / ENDED).exists() or (folder / UNKEPT).exists()


def kept_ending(folder: Path) -> Ended | None:
    """How the keeper of a folder says that its trial ended; None where it has not said so, or its word is cut."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        said = json.loads((folder / ENDED).read_bytes())
        full = said.get("disk_full") and said.get("exit_status")
        return Ended(
            exit_status=said.get("exit_status"), cause=cast("Cause", said.get("cause") or ("disk" if full else "")),
            said=str(said.get("said", "")), memory_kills=said.get("memory_kills"),
            duration_s=max(0.0, float(said.get("ended", 0.0)) - float(said.get("begun", 0.0))),
        )
    return None
