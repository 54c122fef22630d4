"""Runs one trial on this machine and leaves nothing of it behind: ``python keeper.py FOLDER``. The standard library alone.

It stands alone on purpose: it starts in a few hundredths of a second, and it is copied to hosts that have no Meshwright. It leads a
session of its own, is the parent of every orphan below it (``PR_SET_CHILD_SUBREAPER``), and ends them all when the command has
ended, when it is told to (SIGTERM), or when whoever started it is gone (its standard input ends). ``ended.json`` says how it ended;
its room on the disk is taken before the command starts, so that a full disk loses no ending.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

TYPE_CHECKING = False  # ``typing`` takes as long as all else here
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

DEATH_SIGNAL, SUBREAPER, WRITTEN_BYTES, EVERY_S = 1, 36, 4096, 0.05
TOLD = (-signal.SIGTERM, 128 + signal.SIGTERM)
"""Exit statuses of what was asked to end, also as shells have them."""
LEFT_S = 0.5
"""How long what the command has left running may go on by itself. Our judgement."""


def main(folder: Path) -> int:
    """Run what ``keeper.json`` of the folder says -> its exit status, as a shell has it."""
    asked = json.loads((folder / "keeper.json").read_text(encoding="utf-8"))
    _reserve(folder)
    _prctl(SUBREAPER, 1)
    wanted: list[str] = []
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGTERM, lambda *_: wanted.append("cancelled"))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # one that came before waits for it (executors.local)
    begun, kills, cause, said = time.time(), _memory_kills(), "", ""
    status: int | None
    try:
        with (folder / "output.log").open("ab") as log:
            child = subprocess.Popen(
                asked["command"], cwd=folder, env={**os.environ, **asked["environment"]}, stdin=subprocess.DEVNULL,
                stdout=None if asked.get("prints") else log, stderr=subprocess.STDOUT, start_new_session=True,
                preexec_fn=_dies_with_keeper,  # noqa: PLW1509 (it has no threads)
            )
    except OSError as error:
        status, said = 127, f"{asked['command'][0]}: {error.strerror}"
    else:
        status = _watch(child, wanted, wake_read, alone=asked.get("alone", False))
        # what comes once the command has ended by itself changes nothing; a scheduler signals command and keeper together
        cause = wanted[0] if wanted and (status is None or status in TOLD) else ""
        _end(child, 0.0 if wanted else LEFT_S, asked["grace_s"])
        status = int(child.returncode) if status is None else status
    _leave(folder, {
        "exit_status": status, "cause": cause, "said": said, "begun": begun, "ended": time.time(),
        "memory_kills": None if kills is None else (_memory_kills() or kills) - kills,
    })
    return status if status >= 0 else 128 - status


def _prctl(what: int, value: int) -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(what, value, 0, 0, 0)


def _dies_with_keeper() -> None:
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    _prctl(DEATH_SIGNAL, signal.SIGKILL)


def _watch(child: subprocess.Popen[bytes], wanted: list[str], wake: int, *, alone: bool) -> int | None:
    """Wait for the command -> its exit status; None where it is to be ended first. ``alone``: nobody holds its standard input."""
    watched = [wake] if alone else [wake, 0]
    while True:
        ready, _, _ = select.select(watched, [], [], 1.0)
        if wake in ready:
            os.read(wake, 4096)
        if 0 in ready and not os.read(0, 4096):  # whoever started it is gone
            watched = [wake]
            wanted.append("orphaned")
        if child.poll() is not None:
            return child.returncode
        if wanted:
            return None


def _end(child: subprocess.Popen[bytes], left_s: float, grace_s: float) -> None:
    """End everything below this process: left alone for a moment, asked, killed until nothing is left."""
    until = time.monotonic() + left_s
    while time.monotonic() < until and _alive(child):
        time.sleep(EVERY_S)
    _signal(child, signal.SIGTERM)
    until = time.monotonic() + grace_s
    while time.monotonic() < until and _alive(child):
        time.sleep(EVERY_S)
    while _alive(child):
        _signal(child, signal.SIGKILL)
        time.sleep(EVERY_S)


def _signal(child: subprocess.Popen[bytes], number: int) -> None:
    if child.poll() is None:
        _send(os.killpg, child.pid, number)
    for process in _below(os.getpid()):
        _send(os.kill, process, number)


def _send(how: Callable[[int, int], object], process: int, number: int) -> None:
    with suppress(OSError):
        how(process, number)


def _alive(child: subprocess.Popen[bytes]) -> bool:
    """Whether anything below still runs; what has ended is buried."""
    child.poll()
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        if found is None:
            return True
        if found.si_pid == child.pid:
            child.poll()
        else:
            _send(os.waitpid, found.si_pid, os.WNOHANG)


def _below(parent: int) -> list[int]:
    """All descendants of a process."""
    children: dict[int, list[int]] = {}
    for each in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError, ValueError):
            children.setdefault(int(each.read_bytes().rpartition(b")")[2].split()[1]), []).append(int(each.parent.name))
    found, left = [], [parent]
    while left:
        below = children.get(left.pop(), [])
        found += below
        left += below
    return found


def _memory_kills() -> int | None:
    """How often the kernel has killed a process for memory since it started; None where it does not say."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return None


def _reserve(folder: Path) -> None:
    handle = os.open(folder / "ended.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(handle, b" " * WRITTEN_BYTES)
    os.fsync(handle)
    os.close(handle)


def _leave(folder: Path, ended: dict[str, Any]) -> None:
    """Say how it ended, in the room that was taken for it: whole or not at all."""
    with suppress(OSError):
        disk = os.statvfs(folder)
        ended["disk_full"] = disk.f_bavail * disk.f_frsize < WRITTEN_BYTES
    handle = os.open(folder / "ended.new", os.O_WRONLY)
    os.write(handle, json.dumps(ended).encode().ljust(WRITTEN_BYTES))
    os.fsync(handle)
    os.close(handle)
    (folder / "ended.new").rename(folder / "ended.json")


def end(mark: str) -> int:
    """Kill all that has a mark in its environment, but for this process and the script that has called it -> 0."""
    word, spared = f"MESHWRIGHT_TRIAL={mark}".encode(), {os.getpid(), os.getppid()}
    for _ in range(100):
        left = []
        for each in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                left += [int(each.parent.name)] if word in each.read_bytes().split(b"\0") else []
        if set(left) <= spared:
            break
        for process in set(left) - spared:
            _send(os.kill, process, signal.SIGKILL)
        time.sleep(EVERY_S)
    return 0


if __name__ == "__main__":
    sys.exit(end(sys.argv[2]) if sys.argv[1] == "--end" else main(Path(sys.argv[1])))
