"""Processes of this machine, known for certain: a number may be given again, a number with its start may not."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

MARK = "MESHWRIGHT_TRIAL"
"""In the environment of everything that a trial starts."""
EVERY_S = 0.02


def started_at(process: int) -> int | None:
    """When a process started, in ticks since the machine did; None where there is none, or only what is left to be buried.

    Source:  proc(5): fields 3 and 22 of ``/proc/PID/stat``.
    """
    try:
        fields = Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def boot() -> str:
    """Which start of this machine it is."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def marked(mark: str) -> list[int]:
    """Processes of a trial, wherever they have gone, by what stands in their environment."""
    word, found = f"{MARK}={mark}".encode(), []
    for each in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if word in each.read_bytes().split(b"\0"):
                found.append(int(each.parent.name))
    return [process for process in found if started_at(process) is not None]


def end_marked(mark: str, *, wait_s: float = 5.0) -> bool:
    """Kill whatever is left of a trial -> whether nothing of it is left."""
    until = time.monotonic() + wait_s
    while left := [process for process in marked(mark) if process != os.getpid()]:
        for process in left:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        if time.monotonic() > until:
            return False
        time.sleep(EVERY_S)
    return True
