"""Devices of this machine for trials: which are free of others, and leases that keep two sweeps apart."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from meshwright.errors import Message, NoAnswerError, fault

ASKED_S = 20.0
_QUERIES = (("--query-gpu=index,uuid", 2), ("--query-compute-apps=gpu_uuid,pid,process_name", 3))


@dataclass(slots=True)
class Lease:
    """Devices held by this process and by keepers that it hands the open files to; they are free when all of these are gone."""

    devices: tuple[int, ...]
    handles: tuple[int, ...]

    def shared(self) -> Lease:
        """The same devices, let go of apart from this one."""
        return Lease(self.devices, tuple(map(os.dup, self.handles)))

    def close(self) -> None:
        """Let go of this process's share."""
        for handle in self.handles:
            with suppress(OSError):
                os.close(handle)
        self.handles = ()


def leased(count: int, *, accelerators: bool) -> Lease:
    """So many accelerators that nobody uses, or the processors of this machine, for as long as the lease is open.

    Errors:  InputError where there are not so many; NoAnswerError where others use them.
    """
    if not accelerators:
        return Lease((), (_locked("processors", "another sweep of yours is measuring on this machine: it would measure both"),))
    found, busy = accelerators_here()
    if count > len(found):
        raise fault("local.devices", "{count} accelerators are needed and this machine has {found}", path="--executor",
                    count=count, found=len(found))
    free = [index for index in found if index not in busy]
    held: list[tuple[int, int]] = []
    for index in free:
        if len(held) == count:
            break
        with suppress(NoAnswerError):
            held.append((index, _locked(f"device-{index}", "")))
    if len(held) < count:
        for _, handle in held:
            os.close(handle)
        users = "; ".join(f"device {index}: {who}" for index, who in sorted(busy.items())) or "another sweep of yours"
        raise NoAnswerError(Message("local.busy", "{count} accelerators are needed and {free} are free ({users})",
                                    {"count": count, "free": len(held), "users": users}, "--executor"))
    return Lease(tuple(index for index, _ in held), tuple(handle for _, handle in held))


def accelerators_here() -> tuple[tuple[int, ...], dict[int, str]]:
    """Numbers of the accelerators, and who uses which, as nvidia-smi says it; none where there is no such program."""
    rows = []
    for query, columns in _QUERIES:
        try:
            said = subprocess.run(["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True, timeout=ASKED_S,
                                  check=True).stdout
        except (OSError, subprocess.SubprocessError):
            return (), {}
        cells = [[cell.strip() for cell in line.split(",", columns - 1)] for line in said.splitlines()]
        rows.append([each for each in cells if len(each) == columns])
    numbers = {uuid: int(index) for index, uuid in rows[0] if index.isdecimal()}
    busy = {numbers[uuid]: f"{name} ({process})" for uuid, process, name in rows[1] if uuid in numbers}
    return tuple(numbers.values()), busy


def free_port() -> int:
    """A port that nobody listens at now; whoever takes it before the trial does makes the trial fail, and it is tried again."""
    with socket.socket() as each:
        each.bind(("", 0))
        port: int = each.getsockname()[1]
    return port


def _locked(name: str, otherwise: str) -> int:
    """An open file that is this process's alone."""
    folder = Path(tempfile.gettempdir()) / f"meshwright-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise fault("local.lease", "is not a folder of yours: remove it", path=str(folder))
    handle = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise NoAnswerError(Message("local.lease-busy", otherwise, {}, "--executor")) from None
    return handle
