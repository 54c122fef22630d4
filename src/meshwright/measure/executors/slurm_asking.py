"""What Slurm is asked and what its words mean: ``squeue``, ``scontrol``, and ``sacct`` where there is accounting."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING

from meshwright.measure.executors.base import Cause, Handle, State

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

ASKED_S = 60.0
"""How long Slurm may take to answer."""
WAITING = frozenset({"PENDING", "CONFIGURING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
HELD = frozenset({"RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "STOPPED", "RESIZING"})
BY_ITSELF = frozenset({"COMPLETED", "FAILED"})
"""How a job ended that ran its script to an end."""
CAUSES: Mapping[str, Cause] = {
    "TIMEOUT": "time", "DEADLINE": "time", "PREEMPTED": "preempted", "NODE_FAIL": "node", "BOOT_FAIL": "node",
    "OUT_OF_MEMORY": "oom", "CANCELLED": "cancelled", "REVOKED": "cancelled",
}
"""How a job ended, as Slurm says it, where that is not its program's doing."""


def asked(*words: str, cwd: Path | None = None) -> tuple[int, str, str]:
    """Exit status, output and the last line of complaint of a command of Slurm's."""
    try:
        found = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=ASKED_S, check=False, cwd=cwd,
                               stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as error:
        return 1, "", f"{words[0]}: {error}"
    complaint = [line.strip() for line in found.stderr.splitlines() if line.strip()]
    return found.returncode, found.stdout, complaint[-1] if complaint else ""


def states() -> dict[Handle, State] | None:
    """Jobs of this user that wait or run, each task of an array by itself; None where nobody answers."""
    status, said, _ = asked("squeue", "--me", "--noheader", "--array", "--states=all", "--format=%i|%T|%r|%N")
    return None if status else dict(filter(None, map(_state, said.splitlines())))


def job(handle: Handle) -> dict[str, str]:
    """What Slurm knows of a job, or of the task of one; nothing once it has forgotten it."""
    status, said, _ = asked("scontrol", "show", "job", "--oneliner", handle)
    if not status and said.strip():
        return fields(said.splitlines()[0])
    if shutil.which("sacct") is None:
        return {}
    names = ("JobState", "ExitCode", "NodeList")
    status, said, _ = asked("sacct", "--jobs", handle, "--noheader", "--parsable2", "--allocations",
                            "--format=State,ExitCode,NodeList")
    rows = [] if status else [line.split("|") for line in said.splitlines() if line]
    return dict(zip(names, rows[-1], strict=False)) if rows else {}


def state_of(known: Mapping[str, str]) -> str:
    """``JobState=CANCELLED by 0`` and ``COMPLETED+`` as one word."""
    return known.get("JobState", "").partition(" ")[0].rstrip("+")


def jobs_of(comment: str) -> Iterator[dict[str, str]]:
    """Jobs that Slurm remembers by their comment."""
    _, said, _ = asked("scontrol", "show", "job", "--oneliner")
    return (known for known in map(fields, said.splitlines()) if known.get("Comment") == comment and "JobId" in known)


def fields(line: str) -> dict[str, str]:
    """``JobId=7 JobState=FAILED ...`` as pairs."""
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def hosts(nodes: str) -> tuple[str, ...]:
    """``n[1-3]`` as names."""
    if not nodes or nodes == "(null)":
        return ()
    if "[" not in nodes:
        return tuple(nodes.split(","))
    with suppress(ValueError):
        status, said, _ = asked("scontrol", "show", "hostnames", nodes)
        if not status:
            return tuple(said.split())
    return (nodes,)


def _state(line: str) -> tuple[Handle, State] | None:
    name, state, reason, nodes = (line.split("|", 3) + [""] * 4)[:4]
    if state in WAITING:
        return name, State(phase="waiting", said="" if reason == "None" else reason)
    if state in HELD:
        return name, State(phase="running", nodes=hosts(nodes))
    return None
