"""Trials as jobs of Slurm: scripts that a person can read, handed to ``sbatch``; Slurm does the queueing.

Works without accounting: ``squeue`` says what waits and runs, ``scontrol`` how a job ended while it remembers, the job's keeper
what its command came to, ``sacct`` the rest where there is one. Options that trials do not decide (partition, account) are sbatch's
own variables: ``SBATCH_PARTITION``, ``SBATCH_ACCOUNT``.
"""

from __future__ import annotations

import json
import math
import shlex
import shutil
import subprocess
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from meshwright.errors import fault
from meshwright.measure.executors import keeper
from meshwright.measure.executors.base import Cause, Ended, Handle, State
from meshwright.measure.executors.kept import kept_ending
from meshwright.measure.executors.processes import MARK
from meshwright.measure.trial import ENDED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.measure.trial import Trial

SCRIPT, LOG = "job.sbatch", "output-slurm.log"
SILENT = "its keeper has left no word"
ASKED_S = 60.0
"""How long Slurm may take to answer."""
FIRST_PORT, PORTS = 20_000, 12_000
"""Ports below those that Linux gives to whoever asks for any."""
WAITING = frozenset({"PENDING", "CONFIGURING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
CAUSES: Mapping[str, Cause] = {
    "TIMEOUT": "time", "DEADLINE": "time", "PREEMPTED": "preempted", "NODE_FAIL": "node", "BOOT_FAIL": "node",
    "OUT_OF_MEMORY": "oom", "CANCELLED": "cancelled", "REVOKED": "cancelled",
}
"""How a job ended, as Slurm says it, where that is not its program's doing."""


class Slurm:
    """Jobs of the user that this process is."""

    name = "slurm"
    at_once = 4
    every_s = 2.0
    """Between two questions to the controller."""

    def __init__(self) -> None:
        self._states: dict[Handle, State] = {}
        self._asked = -math.inf
        self._submitted: dict[Handle, float] = {}

    def check(self, trials: Sequence[Trial]) -> None:
        """Refuse where there is no Slurm, or none that answers."""
        for program in ("sbatch", "squeue", "scontrol", "scancel"):
            if shutil.which(program) is None:
                raise fault("slurm.missing", "{program} is not here: trials are handed over where Slurm's commands are",
                            path="--executor", program=program)
        status, _, said = _asked("squeue", "--me", "--noheader")
        if status:
            raise fault("slurm.silent", "Slurm does not answer: {said}", path="--executor", said=said)

    def describe(self, trial: Trial) -> str:
        """The script."""
        return script_of(trial, "MARK", ())

    def submit(self, trial: Trial, folder: Path, mark: str, *, avoid: Sequence[str] = ()) -> Handle:
        """Hand the script of a trial over."""
        asked = {"command": list(_command(trial)), "environment": {}, "grace_s": trial.limits.grace_s, "alone": True}
        (folder / "keeper.json").write_text(json.dumps(asked), encoding="utf-8")
        shutil.copyfile(keeper.__file__, folder / "keeper.py")
        (folder / SCRIPT).write_text(script_of(trial, mark, avoid), encoding="utf-8")
        status, said, error = _asked("sbatch", "--parsable", f"--chdir={folder}", SCRIPT, cwd=folder)
        handle = said.strip().partition(";")[0]
        if status or not handle.isdecimal():
            raise fault("slurm.refused", "sbatch does not take the job: {said}", path=str(folder / SCRIPT), said=error or said)
        self._submitted[handle] = time.monotonic()
        return handle

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, State]:
        """What squeue lists waits or runs; what it no longer lists has ended. While nobody answers, nothing has changed."""
        now = time.monotonic()
        if now - self._asked >= self.every_s:
            status, said, _ = _asked("squeue", "--me", "--noheader", "--states=all", "--format=%i|%T|%r|%N")
            self._asked = time.monotonic()
            if not status:
                self._states = dict(filter(None, map(_state, said.splitlines())))
            elif not self._states:
                return {handle: State(phase="waiting", said="Slurm does not answer") for handle in handles}
        young = {handle for handle in handles if self._submitted.get(handle, -math.inf) > self._asked}
        return {handle: State(phase="waiting") if handle in young else self._states.get(handle, State(phase="ended"))
                for handle in handles}

    def cancel(self, handle: Handle, grace_s: float) -> None:
        """Slurm asks every process, and kills what is left after its own KillWait."""
        _asked("scancel", handle)
        self._asked = -math.inf

    def adopt(self, folder: Path, mark: str, handle: Handle | None) -> Handle | None:
        """The job by its number, or by the mark in its comment."""
        if handle is None:
            _, said, _ = _asked("scontrol", "show", "job", "--oneliner")
            known = map(_fields, said.splitlines())
            handle = next((job["JobId"] for job in known if job.get("Comment") == mark and "JobId" in job), None)
        if handle is None:
            return "0" if (folder / ENDED).exists() else None
        return handle if (folder / ENDED).exists() or _job(handle) else None

    def collect(self, handle: Handle, folder: Path) -> Ended:
        """What Slurm says of the job, and of its program what its keeper says."""
        kept, job = kept_ending(folder), _job(handle)
        state = job.get("JobState", "").partition(" ")[0].rstrip("+")
        nodes = _hosts(job.get("NodeList", ""))
        cause = CAUSES.get(state, "")
        if kept is not None:
            said = f"Slurm: {state}" if cause else kept.said
            return replace(kept, cause=cause or kept.cause, said=said, nodes=nodes)
        if not job:
            return Ended(cause="lost", said=f"Slurm no longer knows the job, and {SILENT}")
        status = job.get("ExitCode", "").partition(":")[0]
        return Ended(exit_status=int(status) if status.isdecimal() else None, cause=cause or "lost", nodes=nodes,
                     said=f"Slurm: {state} {job.get('Reason', '')}; {SILENT}".replace(" None;", ";"))


def script_of(trial: Trial, mark: str, avoid: Sequence[str]) -> str:
    """The script of a trial: what it asks of Slurm, its environment, and its command."""
    minutes = max(1, math.ceil((trial.limits.total_s + trial.limits.grace_s) / 60.0))
    wants = [f"--job-name={trial.name}", f"--comment={mark}", f"--nodes={trial.nodes}", "--ntasks-per-node=1", f"--time={minutes}",
             f"--output={LOG}", "--open-mode=append", "--no-requeue"]
    wants += [f"--gpus-per-node={trial.devices_per_node}", "--exclusive"] if trial.accelerators else [
        f"--cpus-per-task={trial.devices_per_node}"]
    wants += [f"--exclude={','.join(avoid)}"] if avoid else []
    port = FIRST_PORT + crc32(mark.encode()) % PORTS
    environment = {**trial.environment, MARK: mark, "MASTER_PORT": str(port)}
    return "\n".join([
        "#!/bin/bash", *(f"#SBATCH {want}" for want in wants), "",
        *(f"export {name}={shlex.quote(value)}" for name, value in environment.items()), "",
        f"# {shlex.join(_command(trial))}",
        "# under a keeper, which ends all that it has started and notes in ended.json how it ended; its output is output.log",
        "trap : TERM  # the keeper ends first", 'python3 -I -S keeper.py "$PWD"',
        "# where the keeper was killed, nothing goes on without it",
        f'[ -e {ENDED} ] || exec python3 -I -S keeper.py --end "${MARK}"', "",
    ])


def _command(trial: Trial) -> tuple[str, ...]:
    """The command on the first node: one that does not reach the other nodes by itself is started on each of them."""
    if trial.nodes == 1 or trial.spreads:
        return trial.command
    each = 'export NODE_RANK="$SLURM_NODEID" MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"; exec "$@"'
    return ("srun", "--ntasks-per-node=1", "bash", "-c", each, "trial", *trial.command)


def _asked(*words: str, cwd: Path | None = None) -> tuple[int, str, str]:
    """Exit status, output and the last line of complaint of a command of Slurm's."""
    try:
        found = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=ASKED_S, check=False, cwd=cwd,
                               stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as error:
        return 1, "", f"{words[0]}: {error}"
    complaint = [line.strip() for line in found.stderr.splitlines() if line.strip()]
    return found.returncode, found.stdout, complaint[-1] if complaint else ""


def _state(line: str) -> tuple[Handle, State] | None:
    job, state, reason, nodes = (line.split("|", 3) + [""] * 4)[:4]
    if state in WAITING:
        return job, State(phase="waiting", said=reason)
    if state in ("RUNNING", "COMPLETING", "SIGNALING", "STAGE_OUT", "STOPPED", "RESIZING"):
        return job, State(phase="running", nodes=_hosts(nodes))
    return None


def _job(handle: Handle) -> dict[str, str]:
    """What Slurm knows of a job; nothing once it has forgotten it."""
    status, said, _ = _asked("scontrol", "show", "job", "--oneliner", handle)
    if not status and said.strip():
        return _fields(said.splitlines()[0])
    if shutil.which("sacct") is None:
        return {}
    names = ("JobState", "ExitCode", "NodeList")
    status, said, _ = _asked("sacct", "--jobs", handle, "--noheader", "--parsable2", "--allocations",
                             "--format=State,ExitCode,NodeList")
    rows = [] if status else [line.split("|") for line in said.splitlines() if line]
    return dict(zip(names, rows[-1], strict=False)) if rows else {}


def _fields(line: str) -> dict[str, str]:
    """``JobId=7 JobState=FAILED ...`` as pairs."""
    return dict(word.split("=", 1) for word in line.split() if "=" in word)


def _hosts(nodes: str) -> tuple[str, ...]:
    """``n[1-3]`` as names."""
    if not nodes or nodes == "(null)":
        return ()
    if "[" not in nodes:
        return tuple(nodes.split(","))
    with suppress(ValueError):
        status, said, _ = _asked("scontrol", "show", "hostnames", nodes)
        if not status:
            return tuple(said.split())
    return (nodes,)
