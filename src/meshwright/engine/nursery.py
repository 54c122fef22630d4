"""Ranks forked from a process that has PyTorch imported already: fresh ones in milliseconds, where an import takes seconds.

For processors only: an accelerator's driver does not survive a fork.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.errors import NoAnswerError, fault

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.engine.launch import Task

NEEDED = ("meshwright.engine.worker", "meshwright.engine.measure", "torch._dynamo", "torch.distributed.pipelining")
POLL_S = 0.02
END_S = 1.0


@dataclass(frozen=True, slots=True)
class Forked:
    """A rank that the nursery has forked, as much of a process as ``launch`` needs."""

    pid: int
    ended: Path
    """File in which the nursery leaves its exit status."""
    nursery: subprocess.Popen[str]

    def poll(self) -> int | None:
        """Exit status, minus the signal that ended it; None while it runs. Without its nursery a rank ends by itself."""
        gone = self.nursery.poll() is not None
        if self.ended.exists():
            return int(self.ended.read_text())
        return -signal.SIGKILL if gone else None


class Nursery:
    """The process, begun with its first rank; ``start`` is what ``launch`` starts ranks by. Leaving the context ends it."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is None:
            return
        assert self.process.stdin and self.process.stdout
        with suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def start(self, folder: Path, task: Task, rank: int, ranks: int, more: Mapping[str, str]) -> Forked:
        """Fork one rank of a task.

        Errors:  NoAnswerError where the nursery is gone.
        """
        self.process = self.process or _begun()
        assert self.process.stdin and self.process.stdout
        own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "OMP_NUM_THREADS": task.threads}
        order = {"folder": str(folder), "rank": rank, "environment": {**{name: str(own[name]) for name in own}, **more}}
        with suppress(OSError):
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise NoAnswerError(fault("engine.nursery", "the process that forks ranks has ended").messages)
        return Forked(int(answer), folder / f"ended-{rank}", self.process)


def _begun() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "meshwright.engine.nursery"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        start_new_session=True,
    )


def main() -> None:
    """The nursery's own loop: an order a line, the child's number in return, until the orders end."""
    for name in NEEDED:
        import_module(name)
    children: dict[int, Path] = {}
    waiting = b""
    while True:
        _reap(children)
        if not select.select([0], [], [], POLL_S if children else None)[0]:
            continue
        some = os.read(0, 1 << 16)
        if not some:
            break
        *orders, waiting = (waiting + some).split(b"\n")
        for line in orders:
            order = json.loads(line)
            pid = os.fork()
            if not pid:
                _be_a_rank(order)
            with suppress(OSError):
                os.setpgid(pid, pid)
            children[pid] = Path(order["folder"]) / f"ended-{order['rank']}"
            os.write(1, f"{pid}\n".encode())
    for pid in children:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def _reap(children: dict[int, Path]) -> None:
    """Write down how children ended."""
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        place = children.pop(pid)
        with suppress(OSError):  # nobody waits for it any more, and the folder is gone
            new = place.with_name(place.name + ".new")
            new.write_text(str(os.waitstatus_to_exitcode(status)))
            new.rename(place)


def _be_a_rank(order: dict[str, Any]) -> None:
    """What the child does; does not return."""
    status = 1
    try:
        with suppress(OSError):
            os.setpgid(0, 0)
        folder = Path(order["folder"])
        log = os.open(folder / f"log-{order['rank']}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for old, new in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(old, new)
        for name in ("MASTER_ADDR", "MASTER_PORT"):
            os.environ.pop(name, None)
        os.environ.update(order["environment"])
        status = import_module("meshwright.engine.worker").main(folder)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    main()
