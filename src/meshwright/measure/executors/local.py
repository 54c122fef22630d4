"""Trials on this machine: each under a keeper of its own, which ends everything that it started.

Inside an allocation of Slurm (the script of an ``sbatch``) that is its nodes: trials of several are started on each by ``srun``.
With ``reuse`` the ranks of a program that permits it stay between trials, under a keeper of their own, and take one after another.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.errors import NoAnswerError, fault
from meshwright.measure.executors import keeper
from meshwright.measure.executors.allocations import handed_over
from meshwright.measure.executors.base import Ended, Handle, State
from meshwright.measure.executors.devices_here import Lease, free_port, leased
from meshwright.measure.executors.kept import kept_ending
from meshwright.measure.executors.pilot import RANKS, Company
from meshwright.measure.executors.processes import MARK, boot, end_marked, marked, started_at
from meshwright.measure.executors.slurm_scripts import command_of, together
from meshwright.measure.trial import ENDED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from meshwright.measure.trial import Trial

ADOPT_S = 60.0
"""How long a keeper may take to end what it keeps once whoever started it is gone."""
FREED_S = 5.0


@contextmanager
def _told_once_it_listens() -> Iterator[None]:
    """A SIGTERM to a keeper that is started here waits until it listens: one that is not up yet would die of it without a word."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Local:
    """One trial at a time on the processors of this machine, or as many as its accelerators hold."""

    name = "local"
    at_once = 1
    reuse = False

    def __init__(self) -> None:
        self._company: Company | None = None
        self._given: Handle | None = None
        """The trial that the company has."""
        self._keepers: dict[Handle, subprocess.Popen[bytes]] = {}
        self._processors: Lease | None = None
        """Held as long as trials of this executor run on them: they may share them with each other, and with nobody else."""

    def check(self, trials: Sequence[Trial]) -> None:
        """Refuse several nodes, devices that are missing, and devices that somebody uses."""
        nodes = max((trial.nodes for trial in trials), default=1)
        if nodes > (here := nodes_here()):
            where = "this machine alone" if here == 1 else f"this allocation of {here}"
            raise fault("local.nodes", "the layouts need {nodes} nodes and local is {where}: --executor slurm or ssh",
                        path="--executor", nodes=nodes, where=where)
        if trials:
            leased(max(map(_devices_here, trials)), accelerators=trials[0].accelerators).close()

    def describe(self, trial: Trial) -> str:
        """The command line."""
        return " ".join(shlex.quote(word) for word in (*(f"{k}={v}" for k, v in trial.environment.items()), *trial.command))

    def submit(self, trial: Trial, folder: Path, mark: str, *, avoid: Sequence[str] = ()) -> Handle:
        """Start the keeper of a trial on devices that it holds until it has ended."""
        lease = self._leased(trial)
        first = "127.0.0.1" if trial.nodes == 1 else socket.gethostname()
        environment = {
            **together(trial), **trial.environment,
            MARK: mark, "MASTER_ADDR": first, "MASTER_PORT": str(free_port()), "NODE_RANK": "0",
            **({"CUDA_VISIBLE_DEVICES": ",".join(map(str, lease.devices))} if lease.devices else {}),
        }
        asked = {"command": list(command_of(trial)), "environment": environment, "grace_s": trial.limits.grace_s}
        try:
            resident = self.reuse and trial.resident is not None and not lease.devices and self._given is None
            if resident:
                environment[RANKS] = str(self._ready(trial, folder, lease))
                asked["command"] = handed_over(trial, folder)
            (folder / "keeper.json").write_text(json.dumps(asked), encoding="utf-8")
            with (folder / "keeper.log").open("ab") as log, _told_once_it_listens():
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", keeper.__file__, str(folder)], stdin=subprocess.PIPE, stdout=log, stderr=log,
                    cwd=folder, start_new_session=True, pass_fds=lease.handles,
                    env={**os.environ, MARK: mark, "PYTHONDONTWRITEBYTECODE": "1"},
                )
        finally:
            lease.close()
        handle = json.dumps({"pid": process.pid, "start": started_at(process.pid) or 0, "boot": boot(), "mark": mark,
                             "folder": str(folder)})
        self._keepers[handle] = process
        self._given = handle if resident else self._given
        return handle

    def _ready(self, trial: Trial, folder: Path, lease: Lease) -> Path:
        """The folder of ranks that wait for a trial; they hold the processors as long as they do."""
        assert trial.resident is not None, "its program has ranks that stay"
        if self._company is None:
            self._company = Company(folder.parent, Path(keeper.__file__))
        mark = f"ranks-{os.getpid()}-{started_at(os.getpid())}"
        return self._company.ready(list(trial.resident.command), {**trial.environment, MARK: mark}, lease.handles)

    def let_go(self) -> None:
        """End ranks that wait, and give the processors back."""
        if self._company is not None:
            self._company.end()
            self._company = None
        self._let_go()

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, State]:
        """Running as long as its keeper is."""
        return {handle: State(phase="running" if self._lives(handle) else "ended") for handle in handles}

    def cancel(self, handle: Handle, grace_s: float) -> None:
        """Ask the keeper to end everything."""
        known = _known(handle)
        if self._lives(handle):
            with suppress(OSError):
                os.kill(known["pid"], signal.SIGTERM)

    def adopt(self, folder: Path, mark: str, handle: Handle | None) -> Handle | None:
        """A trial that ended by itself; one that ran when its Meshwright was killed has been ended by its keeper."""
        until = time.monotonic() + ADOPT_S
        while time.monotonic() < until and not (folder / ENDED).exists() and marked(mark):
            time.sleep(keeper.EVERY_S)
        end_marked(mark)
        found = kept_ending(folder)
        if found is None or found.cause == "orphaned":
            return None
        return handle or json.dumps({"pid": 0, "start": 0, "boot": "", "mark": mark, "folder": str(folder)})

    def collect(self, handle: Handle, folder: Path) -> Ended:
        """What the keeper says; where it was killed itself, what it kept is ended here."""
        self._bury(handle)
        found = kept_ending(folder)
        if handle == self._given:
            self._given = None
            if self._company is not None and (found is None or found.exit_status != 0 or not self._company.alive):
                self._company.end()  # ranks of a trial that failed are not given another
        if found is None:
            end_marked(_known(handle)["mark"])
            return Ended(cause="lost", said="the keeper of the trial was killed")
        return found

    def _leased(self, trial: Trial) -> Lease:
        """Devices; those of a trial that has just ended are free in a moment."""
        if self._processors is not None and not trial.accelerators and (self._keepers or self._holds):
            return self._processors.shared()
        self._let_go()
        until = time.monotonic() + FREED_S
        while True:
            try:
                lease = leased(_devices_here(trial), accelerators=trial.accelerators)
            except NoAnswerError:
                if time.monotonic() > until:
                    raise
                time.sleep(keeper.EVERY_S)
            else:
                self._processors = None if trial.accelerators else lease.shared()
                return lease

    def _let_go(self) -> None:
        """Of the processors, where none of this executor's trials runs on them."""
        if not self._keepers and not self._holds and self._processors is not None:
            self._processors.close()
            self._processors = None

    @property
    def _holds(self) -> bool:
        """Whether ranks wait on the processors."""
        return self._company is not None and self._company.alive

    def _lives(self, handle: Handle) -> bool:
        own = self._keepers.get(handle)
        if own is not None:
            return own.poll() is None
        known = _known(handle)
        return bool(known["pid"]) and known["boot"] == boot() and started_at(known["pid"]) == known["start"]

    def _bury(self, handle: Handle) -> None:
        own = self._keepers.pop(handle, None)
        if own is not None:
            own.wait()
            if own.stdin is not None:
                own.stdin.close()
        self._let_go()


def nodes_here() -> int:
    """Nodes of the allocation of Slurm that this process runs in; 1 where it runs in none."""
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "")
    return int(nodes) if nodes.isdecimal() and os.environ.get("SLURM_JOB_ID") else 1


def _devices_here(trial: Trial) -> int:
    """Devices of a trial on one node."""
    return trial.devices if trial.nodes == 1 else trial.devices_per_node


def _known(handle: Handle) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(handle)
    return found
