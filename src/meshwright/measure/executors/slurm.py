"""Trials as jobs of Slurm: scripts that a person can read, handed to ``sbatch``; Slurm does the queueing.

Trials of one kind that start together are tasks of one array. With ``reuse`` an allocation is held and runs one trial after another
(``allocations``). Works without accounting: ``squeue`` says what waits and runs, ``scontrol`` how a job ended while it remembers,
the keeper of a trial what its command came to, ``sacct`` the rest where there is one. Options that trials do not decide (partition,
account) are sbatch's own variables: ``SBATCH_PARTITION``, ``SBATCH_ACCOUNT``.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.errors import fault
from meshwright.measure.executors import allocations, keeper, pilot
from meshwright.measure.executors import slurm_asking as asking
from meshwright.measure.executors import slurm_scripts as scripts
from meshwright.measure.executors.base import Ended, Handed, Handle, State
from meshwright.measure.executors.kept import UNKEPT, fresh, kept_ending, worded
from meshwright.measure.executors.slurm_scripts import Kind
from meshwright.measure.trial import ENDED, RECORD

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.measure.executors.base import Cause
    from meshwright.measure.trial import Trial

SILENT = "its keeper has left no word"
LATE_S = 30.0
"""How long the word of a keeper may take to be seen here once Slurm says that its job has ended: what NFS believes of a folder at
least (nfs(5): acdirmin)."""
ARRAY = "array.json"
"""In the folder of a task: which array it is of."""


class Slurm:
    """Jobs of the user that this process is."""

    name = "slurm"
    at_once = 4
    every_s = 2.0
    """Between two questions to the controller."""
    reuse = False

    def __init__(self) -> None:
        self._states: dict[Handle, State] = {}
        self._asked = -math.inf
        self._submitted: dict[Handle, float] = {}
        self._folders: dict[Handle, Path] = {}
        """Of jobs that run one trial."""
        self._silent: dict[Handle, float] = {}
        """Until when the word of their keepers is waited for."""
        self._allocations = allocations.Allocations(self._sbatch, lambda job: asking.asked("scancel", job))

    def check(self, trials: Sequence[Trial]) -> None:
        """Refuse where there is no Slurm, or none that answers."""
        for program in ("sbatch", "squeue", "scontrol", "scancel"):
            if shutil.which(program) is None:
                raise fault("slurm.missing", "{program} is not here: trials are handed over where Slurm's commands are",
                            path="--executor", program=program)
        status, _, said = asking.asked("squeue", "--me", "--noheader")
        if status:
            raise fault("slurm.silent", "Slurm does not answer: {said}", path="--executor", said=said)

    def describe(self, trial: Trial) -> str:
        """The script; of an allocation, and what it runs."""
        if not self.reuse:
            return scripts.script_of(trial, "MARK", ())
        held = scripts.allocation_of(Kind.of(trial), "allocation-MARK", scripts.LASTS * scripts.minutes_of([trial]), ())
        return f"{held}\n# in it:\n{scripts.body_of(trial, 'MARK')}"

    def submit(self, trial: Trial, folder: Path, mark: str, *, avoid: Sequence[str] = ()) -> Handle:
        """Hand the script of a trial over, or the trial to an allocation."""
        if self.reuse:
            return self._allocations.run(trial, folder, mark, avoid)
        _keeper_in(folder, trial)
        (folder / scripts.SCRIPT).write_text(scripts.script_of(trial, mark, avoid), encoding="utf-8")
        handle = self._sbatch(folder, mark)
        self._folders[handle] = folder
        return handle

    def submit_all(self, handed: Sequence[Handed], *, avoid: Sequence[str] = ()) -> list[Handle]:
        """Trials of one kind as tasks of one array."""
        if self.reuse:
            return [self.submit(*each, avoid=avoid) for each in handed]
        kinds: defaultdict[Kind, list[Handed]] = defaultdict(list)
        for each in handed:
            kinds[Kind.of(each.trial)].append(each)
        found: dict[str, Handle] = {}
        try:
            for same in kinds.values():
                for first in range(0, len(same), scripts.MOST_TASKS):
                    some = same[first:first + scripts.MOST_TASKS]
                    handles = self._array(some, avoid) if len(some) > 1 else [self.submit(*some[0], avoid=avoid)]
                    found |= dict(zip((each.mark for each in some), handles, strict=True))
        except BaseException:
            for handle in found.values():  # all or none
                self.cancel(handle, 0.0)
            raise
        return [found[each.mark] for each in handed]

    def _array(self, handed: Sequence[Handed], avoid: Sequence[str]) -> list[Handle]:
        token = f"array-{os.urandom(6).hex()}"
        place = handed[0].folder.parent / token
        place.mkdir()
        names = [os.path.relpath(each.folder, handed[0].folder.parent) for each in handed]
        for task, (trial, folder, mark) in enumerate(handed):
            _keeper_in(folder, trial)
            (folder / scripts.BODY).write_text(scripts.body_of(trial, mark), encoding="utf-8")
            (folder / ARRAY).write_text(json.dumps({"array": token, "task": task}), encoding="utf-8")
            (folder / scripts.LOG).unlink(missing_ok=True)  # of an array that Slurm has refused
            (folder / scripts.LOG).symlink_to(os.path.relpath(place / f"task-{task}.log", folder))
        script = scripts.array_of(names, [each.trial for each in handed], token, avoid)
        (place / scripts.SCRIPT).write_text(script, encoding="utf-8")
        job = self._sbatch(place, token)
        handles = [f"{job}_{task}" for task in range(len(handed))]
        self._submitted |= dict.fromkeys(handles, self._submitted[job])
        self._folders |= dict(zip(handles, (each.folder for each in handed), strict=True))
        return handles

    def _sbatch(self, folder: Path, comment: str) -> Handle:
        """Hand over the script of a folder; ``comment`` stands in it, and finds the job again."""
        status, said, error = asking.asked("sbatch", "--parsable", f"--chdir={folder}", scripts.SCRIPT, cwd=folder)
        handle = said.strip().partition(";")[0]
        if status or not handle.isdecimal():
            raise fault("slurm.refused", "sbatch does not take the job: {said}", path=str(folder / scripts.SCRIPT),
                        said=error or said)
        self._submitted[handle] = time.monotonic()
        return handle

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, State]:
        """What squeue lists waits or runs; what it no longer lists has ended. While nobody answers, nothing has changed."""
        now = time.monotonic()
        if now - self._asked >= self.every_s:
            states = asking.states()
            self._asked = time.monotonic()
            if states is not None:
                self._states = states
            elif not self._states:
                return {handle: State(phase="waiting", said="Slurm does not answer") for handle in handles}
            self._allocations.look(self._job_state)
        return {handle: self._state(handle) for handle in handles}

    def _job_state(self, job: Handle) -> State:
        young = self._submitted.get(job, -math.inf) > self._asked
        return State(phase="waiting") if young else self._states.get(job, State(phase="ended"))

    def _held(self, handle: Handle) -> tuple[Handle, Path | None]:
        """The job of a handle, and the folder of its trial where the job is an allocation."""
        if not handle.startswith("{"):
            return handle, None
        known = json.loads(handle)
        folder = Path(known["folder"])
        return self._allocations.job_of(folder, str(known["job"])), folder

    def _state(self, handle: Handle) -> State:
        job, folder = self._held(handle)
        state = self._job_state(job)
        place = folder or self._folders.get(handle)
        if state.phase == "ended" and place is not None and self._awaited(handle, job, place):
            return State(phase="running")
        if folder is None:
            return state
        if worded(folder) and (state.phase == "ended" or not allocations.signalled(folder)):
            return State(phase="ended", nodes=state.nodes)
        if state.phase == "running" and not (folder / allocations.BEGUN).exists():
            return replace(state, phase="waiting")
        return state

    def _awaited(self, handle: Handle, job: Handle, folder: Path) -> bool:
        """Whether a job that has ended by itself has run a trial whose keeper's word may still be on its way."""
        if worded(folder):
            return False
        until = self._silent.get(handle)
        if until is None:
            own = asking.state_of(asking.job(job)) in asking.BY_ITSELF
            until = self._silent[handle] = time.monotonic() + LATE_S if own else -math.inf
        fresh(folder)
        return time.monotonic() < until and not worded(folder)

    def cancel(self, handle: Handle, grace_s: float) -> None:
        """Slurm asks every process, and kills what is left after its own KillWait; in an allocation its pilot does."""
        job, folder = self._held(handle)
        if folder is not None and (folder / allocations.BEGUN).exists():
            with suppress(OSError):
                (folder / allocations.CANCEL).touch()
            return
        asking.asked("scancel", job)
        self._asked = -math.inf

    def adopt(self, folder: Path, mark: str, handle: Handle | None) -> Handle | None:
        """The job by its number, or by the mark in its comment; a task of an array and a trial of an allocation by its folder."""
        if (folder / allocations.HANDED).exists():
            return self._allocations.find(folder) or self._lost_allocation(folder)
        if handle is None:
            handle = self._by_comment(folder, mark)
        if handle is None:
            return "0" if (folder / ENDED).exists() else None
        if not (folder / ENDED).exists() and not asking.job(handle):
            return None
        self._folders[handle] = folder
        return handle

    def _by_comment(self, folder: Path, mark: str) -> Handle | None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            known = json.loads((folder / ARRAY).read_bytes())
            for job in asking.jobs_of(known["array"]):
                return f"{job.get('ArrayJobId', job['JobId'])}_{known['task']}"
            return None
        return next((job["JobId"] for job in asking.jobs_of(mark)), None)

    def _lost_allocation(self, folder: Path) -> Handle | None:
        """A trial whose allocation was asked for and not noted any more: what waits for it is ended, and it is started anew."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            for job in asking.jobs_of(json.loads((folder / allocations.HANDED).read_bytes())["allocation"]):
                if worded(folder):
                    return allocations.handle_of(job["JobId"], folder)
                asking.asked("scancel", job["JobId"])
        return allocations.handle_of("0", folder) if (folder / ENDED).exists() else None

    def collect(self, handle: Handle, folder: Path) -> Ended:
        """What Slurm says of the job, and of its program what its keeper says."""
        name, held = self._held(handle)
        for each in (folder, folder / RECORD):
            fresh(each)
        kept, job = kept_ending(folder), asking.job(name)
        state, nodes = asking.state_of(job), asking.hosts(job.get("NodeList", ""))
        cause = asking.CAUSES.get(state, "")
        if kept is not None and _before(kept, cause):
            cause = ""
        if held is not None and kept is not None and not allocations.signalled(folder):
            cause = ""  # what became of the allocation since is not the trial's
        if kept is not None:
            said = f"Slurm: {state}" if cause else kept.said
            return replace(kept, cause=cause or kept.cause, said=said, nodes=nodes)
        if held is not None and (folder / UNKEPT).exists():
            return Ended(cause="lost", said=SILENT, nodes=nodes)
        if held is not None and not (folder / allocations.BEGUN).exists() and cause != "cancelled":
            return Ended(cause=cause if cause == "preempted" else "lost", said="its allocation ended before it began")
        if not job:
            return Ended(cause="lost", said=f"Slurm no longer knows the job, and {SILENT}")
        if cause == "cancelled" and not nodes:
            return Ended(cause=cause, said=f"Slurm: {state} before it began")
        status = job.get("ExitCode", "").partition(":")[0]
        return Ended(exit_status=int(status) if status.isdecimal() else None, cause=cause or "lost", nodes=nodes,
                     said=f"Slurm: {state} {job.get('Reason', '')}; {SILENT}".replace(" None;", ";"))

    def let_go(self) -> None:
        """Give allocations back that are held."""
        self._allocations.let_go()


def _before(kept: Ended, cause: Cause) -> bool:
    """Whether a trial had ended by itself, as its keeper says, before what Slurm says became of its job.

    Holds:   Slurm signals keeper and command together: a keeper that knows of no signal has seen the end first. A launcher that
             ends by a status of its own when it is asked to may be as quick as that; what its log says counts then.
    """
    if kept.cause or kept.exit_status is None or cause == "oom":
        return False
    return kept.exit_status == 0 or (cause == "cancelled" and kept.exit_status not in pilot.SIGNALLED)


def _keeper_in(folder: Path, trial: Trial) -> None:
    """The keeper and what it reads, in the folder of a trial."""
    asked = {"command": list(scripts.command_of(trial)), "environment": {}, "grace_s": trial.limits.grace_s, "alone": True}
    (folder / "keeper.json").write_text(json.dumps(asked), encoding="utf-8")
    shutil.copyfile(keeper.__file__, folder / "keeper.py")
