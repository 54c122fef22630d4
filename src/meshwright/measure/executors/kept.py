"""What a keeper has left in the folder of its trial."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from meshwright.measure.executors.base import Cause, Ended
from meshwright.measure.trial import ENDED

if TYPE_CHECKING:
    from pathlib import Path


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
