"""Interpreters forked from one that has PyTorch imported: starting one takes milliseconds, where an import takes seconds.

``Interpreter`` stands for ``subprocess.Popen`` of ``python -m MODULE``, ``start_rank`` for how ``engine.launch`` starts a rank.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.engine.launch import Task

PRELOADED = (
    "torch._dynamo", "torch.distributed.pipelining", "meshwright.engine.dry_run_step", "meshwright.engine.measure",
    "meshwright.engine.parity",
)


@cache
def _context() -> ForkServerContext:
    from multiprocessing.forkserver import ensure_running

    context = get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        patch.setenv("OMP_NUM_THREADS", "1")
        ensure_running()
    return context


def forked(module: str, arguments: Sequence[str], environment: Mapping[str, str], streams: Sequence[Path]) -> ForkServerProcess:
    """``python -m MODULE`` in the working directory, with files in place of the three standard streams."""
    process = _context().Process(target=_be, args=(module, list(arguments), dict(environment), list(map(str, streams))))
    process.start()
    return process


def _be(module: str, arguments: list[str], environment: dict[str, str], streams: list[str]) -> None:
    os.setpgid(0, 0)
    for descriptor, name in enumerate(streams):
        how = os.O_WRONLY | os.O_CREAT | os.O_APPEND if descriptor else os.O_RDONLY
        os.dup2(os.open(name, how), descriptor)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115  # multiprocessing closes it
    sys.argv = [module, *arguments]
    sys.path.insert(0, str(Path.cwd()))
    runpy.run_module(module, run_name="__main__")


@dataclass(frozen=True)
class Rank:
    """A forked rank, as much of a process as ``launch`` needs."""

    process: ForkServerProcess
    pid: int

    def poll(self) -> int | None:
        return self.process.exitcode


def start_rank(folder: Path, task: Task, rank: int, ranks: int, more: Mapping[str, str]) -> Rank:
    """As ``engine.launch`` starts an interpreter."""
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "OMP_NUM_THREADS": task.threads}
    environment = {**os.environ, **{name: str(value) for name, value in own.items()}, **more}
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        environment.pop(name, None)
    log = folder / f"log-{rank}"
    process = forked("meshwright.engine.worker", [str(folder)], environment, [Path(os.devnull), log, log])
    return Rank(process, process.pid or 0)


class Interpreter:
    """As much of ``subprocess.Popen`` as dry runs need: ``communicate`` with the text starts it."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str] | None = None, **_: object) -> None:
        _, dash, self.module, *self.arguments = command
        assert dash == "-m"
        self.environment = os.environ if env is None else env
        self.process: ForkServerProcess | None = None

    def __enter__(self) -> Interpreter:
        self.folder = TemporaryDirectory()
        self.streams = [Path(self.folder.name, name) for name in ("in", "out", "err")]
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.join()
            self.process.close()
        self.folder.cleanup()

    def communicate(self, text: str | None = None, timeout: float | None = None) -> tuple[str, str]:
        if self.process is None:
            self.streams[0].write_text(text or "", encoding="utf-8")
            self.process = forked(self.module, self.arguments, self.environment, self.streams)
        self.process.join(timeout)
        if self.process.exitcode is None:
            raise subprocess.TimeoutExpired(self.module, timeout or 0.0)
        self.returncode = self.process.exitcode
        return tuple(path.read_text(encoding="utf-8") if path.exists() else "" for path in self.streams[1:])  # type: ignore[return-value]

    def kill(self) -> None:
        if self.process is not None and self.process.exitcode is None:
            os.kill(self.process.pid or 0, signal.SIGKILL)


STANDS_FOR_SUBPROCESS = SimpleNamespace(Popen=Interpreter, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired)


def use(patch: pytest.MonkeyPatch) -> None:
    """Ranks and dry runs are forked."""
    patch.setattr("meshwright.engine.launch._start", start_rank)
    patch.setattr("meshwright.engine.dry_run.subprocess", STANDS_FOR_SUBPROCESS)
