"""Starts the ranks of a run on this machine, as processes that end together, and hands back what each returned. No torch here.

Ranks meet at a file, not at a port, so that no port can be taken. Several nodes are a scheduler's business: under torchrun every
rank runs ``python -m meshwright.engine.worker FOLDER`` on a folder that ``write_task`` has written.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from meshwright.engine.classify import Failure, by_signal, first_cause
from meshwright.errors import NoAnswerError, fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.engine.request import Backend

POLL_S = 0.05
GRACE_S = 1.5
"""How long the others may take to say what they saw when one rank has died, and to end when they are told to."""
LAST_LINES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What every rank runs: ``module:function`` of one argument, and that argument."""

    target: str
    payload: Any
    backend: Backend = "cpu"
    threads: int = 1


class Process(Protocol):
    """A rank that was started."""

    @property
    def pid(self) -> int:
        """Its number, which is its process group's too."""

    def poll(self) -> int | None:
        """Exit status, minus the signal that ended it; None while it runs."""


Start: TypeAlias = Callable[[Path, Task, int, int, Mapping[str, str]], Process]
"""Folder, task, rank, ranks, further environment -> the rank."""


def launch(
    task: Task, ranks: int, *, limit_s: float | None = None, environment: Mapping[str, str] | None = None,
    start: Start | None = None,
) -> list[Any]:
    """Run a task on ``ranks`` processes of this machine -> what each returned, by rank.

    ``start`` starts one rank; None: an interpreter of its own.

    Units:   ``limit_s`` seconds for everything; None: no limit.
    Raises:  InputError where torch is missing; NoAnswerError with the first cause where a rank fails: all others are ended.
    """
    require_torch()
    warn_of_cores(ranks, task)
    with tempfile.TemporaryDirectory(prefix="meshwright-run-") as name:
        folder = Path(name)
        write_task(folder, task)
        processes: list[Process] = []
        try:
            for rank in range(ranks):  # one that does not start leaves none of those before it behind
                processes.append((start or _start)(folder, task, rank, ranks, environment or {}))  # noqa: PERF401
            _watch(folder, processes, limit_s)
        finally:
            _end(processes)
        return [pickle.loads((folder / f"result-{rank}").read_bytes()) for rank in range(ranks)]


def require_torch() -> None:
    """Refuse in words where torch is not installed."""
    if find_spec("torch") is None:
        raise fault("engine.torch", "this needs PyTorch, which is not installed: pip install 'meshwright[torch]'")


def cores_here() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def warn_of_cores(ranks: int, task: Task) -> None:
    """Warn where more ranks than cores would make every measured time one of waiting."""
    cores = cores_here()
    if task.backend == "cpu" and ranks * task.threads > cores:
        text = f"{ranks} ranks x {task.threads} threads on {cores} cores: ranks wait for each other and times mean little"
        warnings.warn(text, stacklevel=3)


def write_task(folder: Path, task: Task) -> None:
    """Write what the ranks read; the folder must be this user's own, because the task is a pickle."""
    temporary = folder / "task.new"
    temporary.write_bytes(pickle.dumps(task))
    temporary.rename(folder / "task")


def _start(folder: Path, task: Task, rank: int, ranks: int, more: Mapping[str, str]) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
        "OMP_NUM_THREADS": str(task.threads), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **more,
    }
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        environment.pop(name, None)
    with (folder / f"log-{rank}").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "meshwright.engine.worker", str(folder)],
            env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )


def _watch(folder: Path, processes: Sequence[Process], limit_s: float | None) -> None:
    """Wait until all ranks are done; one that fails ends the wait, after a moment in which others may say more."""
    started = time.monotonic()
    failed_at: float | None = None
    while True:
        codes = [process.poll() for process in processes]
        if all(code == 0 for code in codes):
            return
        now = time.monotonic()
        if failed_at is None and any(codes):
            failed_at = now
        if failed_at is not None and (now > failed_at + GRACE_S or None not in codes):
            raise NoAnswerError(first_cause(_failures(folder, codes)).message)
        if limit_s is not None and now > started + limit_s:
            raise NoAnswerError(
                Failure(rank=0, kind="timeout", text=f"not done within {limit_s:g} s", lines=_tail(folder, 0)).message
            )
        time.sleep(POLL_S)


def _failures(folder: Path, codes: Sequence[int | None]) -> list[Failure]:
    """What every failed rank says of itself, or what its exit status says of it."""
    found = []
    for rank, code in enumerate(codes):
        said = folder / f"failure-{rank}"
        if said.exists():
            found.append(Failure(rank=rank, **json.loads(said.read_text())))
        elif code:
            found.append(by_signal(rank, code, _tail(folder, rank)))
    return found


def _tail(folder: Path, rank: int) -> tuple[str, ...]:
    log = folder / f"log-{rank}"
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return tuple(line.rstrip() for line in lines if line.strip())[-LAST_LINES:]


def _end(processes: Sequence[Process]) -> None:
    """End what still runs: asked first, then killed. Every rank leads a process group of its own."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        alive = [process for process in processes if process.poll() is None]
        for process in alive:
            try:
                os.killpg(process.pid, how)
            except ProcessLookupError:
                continue
        until = time.monotonic() + GRACE_S
        while alive and time.monotonic() < until and any(process.poll() is None for process in alive):
            time.sleep(POLL_S)
