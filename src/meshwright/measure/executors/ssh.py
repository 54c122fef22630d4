"""Trials on hosts that are reached by ssh, each under a keeper there that ends with the connection: nothing outlives this process.

A host needs ``python3`` and ``tar``; folders of trials stand below ``~/.meshwright-trials`` while they run. Nobody asks which
accelerators are free there: hosts are yours alone while they are swept.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING
from zlib import crc32

from meshwright.errors import Message, NoAnswerError, fault
from meshwright.measure.executors import keeper
from meshwright.measure.executors.base import Ended, Handle, State
from meshwright.measure.executors.kept import kept_ending
from meshwright.measure.executors.processes import MARK
from meshwright.measure.trial import ENDED, OUTPUT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.measure.trial import Trial

OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4")
"""Nobody is asked for a password; a host that is gone is noticed within a minute."""
LOST = 255
"""The exit status of ssh itself."""
REMOTE, ASKED_S = ".meshwright-trials", 120.0
FIRST_PORT, PORTS = 20_000, 12_000


@dataclass(slots=True)
class _Running:
    """The connections of a trial, one a host."""

    hosts: tuple[str, ...]
    mark: str
    folder: Path
    connections: list[subprocess.Popen[bytes]]
    cancelled: bool = False
    fetched: bool = False
    failed: tuple[str, int] | None = None
    """The host that ended badly first, and the status of its keeper."""


class Ssh:
    """As many trials at a time as there are hosts for."""

    name = "ssh"

    def __init__(self, hosts: Sequence[str] = ()) -> None:
        self.hosts = tuple(hosts)
        self._running: dict[Handle, _Running] = {}

    @property
    def at_once(self) -> int:
        """A trial for every host; those of several nodes wait for each other."""
        return max(1, len(self.hosts))

    def check(self, trials: Sequence[Trial]) -> None:
        """Refuse where hosts are missing or do not answer."""
        if shutil.which("ssh") is None:
            raise fault("ssh.missing", "ssh is not here", path="--executor")
        if not self.hosts:
            raise fault("ssh.hosts", "--hosts names nobody: the hosts that trials run on", path="--executor")
        nodes = max((trial.nodes for trial in trials), default=1)
        if nodes > len(self.hosts):
            raise fault("ssh.few", "the layouts need {nodes} nodes and --hosts names {hosts}", path="--hosts", nodes=nodes,
                        hosts=len(self.hosts))
        for host in self.hosts:
            found = _asked(host, "command -v python3 tar >/dev/null && echo there")
            if found.stdout.strip() != b"there":
                said = found.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it lacks python3 or tar"]
                raise fault("ssh.host", "{host} cannot be used: {said}", path="--hosts", host=host, said=said[0])

    def describe(self, trial: Trial) -> str:
        """The command, and how many hosts it is started on."""
        return f"on {trial.nodes} of {', '.join(self.hosts) or 'the hosts'}: {shlex.join(trial.command)}"

    def submit(self, trial: Trial, folder: Path, mark: str, *, avoid: Sequence[str] = ()) -> Handle:
        """Copy the folder to hosts that are free, and start a keeper on each."""
        busy = {host for each in self._running.values() for host in each.hosts}
        free = [host for host in self.hosts if host not in busy and host not in avoid]
        if len(free) < trial.nodes:
            raise NoAnswerError(Message("ssh.busy", "{nodes} hosts are needed and {free} are free", {
                "nodes": trial.nodes, "free": len(free)}, "--hosts"))
        hosts = tuple(free[:trial.nodes])
        shutil.copyfile(keeper.__file__, folder / "keeper.py")
        port = FIRST_PORT + crc32(mark.encode()) % PORTS
        running = _Running(hosts, mark, folder, [])
        handle = json.dumps({"hosts": hosts, "mark": mark})
        self._running[handle] = running
        for rank, host in enumerate(hosts):
            environment = {**trial.environment, MARK: mark, "NODE_RANK": str(rank), "MASTER_ADDR": hosts[0],
                           "MASTER_PORT": str(port)}
            asked = {"command": list(trial.command), "environment": environment, "grace_s": trial.limits.grace_s, "prints": True}
            (folder / "keeper.json").write_text(json.dumps(asked), encoding="utf-8")
            _copied(folder, host, mark)
            with (folder / (OUTPUT if not rank else f"output-{rank}.log")).open("ab") as log:
                running.connections.append(_connected(host, f"cd {_there(mark)} && exec python3 -I -S keeper.py .", log))
        return handle

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, State]:
        """Running while any host's keeper is; where one has ended badly, the others are ended."""
        found: dict[Handle, State] = {}
        for handle in handles:
            running = self._running.get(handle)
            codes = [each.poll() for each in running.connections] if running is not None else []
            if running is not None and any(codes) and running.failed is None:
                running.failed = next((host, code) for host, code in zip(running.hosts, codes, strict=False) if code)
                if None in codes:
                    self._let_go(running)
            phase = "running" if None in codes else "ended"
            found[handle] = State(phase=phase, nodes=running.hosts if running is not None else ())  # type: ignore[arg-type]
        return found

    def cancel(self, handle: Handle, grace_s: float) -> None:
        """A keeper ends everything when its connection is closed."""
        running = self._running.get(handle)
        if running is not None:
            running.cancelled = True
            self._let_go(running)

    def adopt(self, folder: Path, mark: str, handle: Handle | None) -> Handle | None:
        """A trial that ended by itself before its Meshwright did; what still ran has been ended with the connection."""
        if handle is None:
            return json.dumps({"hosts": [], "mark": mark}) if (folder / ENDED).exists() else None
        host = (json.loads(handle)["hosts"] or [""])[0]
        if not (folder / ENDED).exists() and host:
            _fetched(folder, host, mark, wait_s=30.0)
        found = kept_ending(folder)
        return None if found is None or found.cause == "orphaned" else handle

    def collect(self, handle: Handle, folder: Path) -> Ended:
        """What the keeper of the first host says."""
        running = self._running.pop(handle, None)
        hosts = tuple(json.loads(handle)["hosts"])
        if running is not None:
            self._let_go(running)
            codes = [each.wait() for each in running.connections]
            _fetched(folder, hosts[0], running.mark)
            for host in hosts:
                _asked(host, f"rm -rf {_there(running.mark)}")
            found = kept_ending(folder)
            if found is None:
                gone = [host for host, code in zip(hosts, codes, strict=False) if code == LOST]
                said = f"the connection to {', '.join(gone or hosts)} was lost"
                return Ended(cause="node" if gone else "lost", said=said, nodes=hosts)
            if running.failed is not None and not running.cancelled and (found.cause == "orphaned" or found.exit_status == 0):
                return _of_another(found, *running.failed, hosts)
            cause = "cancelled" if running.cancelled and found.cause == "orphaned" else found.cause
            return replace(found, cause=cause, nodes=hosts)
        return replace(kept_ending(folder) or Ended(cause="lost", said="nothing of it is left"), nodes=hosts)

    def _let_go(self, running: _Running) -> None:
        for each in running.connections:
            if each.stdin is not None and not each.stdin.closed:
                with suppress(OSError):
                    each.stdin.close()


def _of_another(first: Ended, host: str, code: int, hosts: tuple[str, ...]) -> Ended:
    """The end of a trial that a host other than the first brought about."""
    if code == LOST:
        return replace(first, exit_status=None, cause="node", said=f"the connection to {host} was lost", nodes=hosts)
    return replace(first, exit_status=code, cause="", said=f"exit status {code} on {host}", nodes=hosts)


def _there(mark: str) -> str:
    return shlex.quote(f"{REMOTE}/{mark}")


def _connected(host: str, command: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["ssh", *OPTIONS, "--", host, command], stdin=subprocess.PIPE, stdout=log, stderr=log,
                            start_new_session=True)


def _asked(host: str, command: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """A short command on a host."""
    words = ["ssh", *OPTIONS, "--", host, command]
    try:
        return subprocess.run(words, input=given, capture_output=True, timeout=ASKED_S, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return subprocess.CompletedProcess(words, 255, b"", str(error).encode())


def _copied(folder: Path, host: str, mark: str) -> None:
    """The files of a trial on a host."""
    packed = subprocess.run(["tar", "-C", str(folder), "-cf", "-", "--exclude=output*.log", "."], capture_output=True, check=True)
    found = _asked(host, f"mkdir -p {_there(mark)} && tar -C {_there(mark)} -xf -", packed.stdout)
    if found.returncode:
        said = found.stderr.decode(errors="replace").strip().splitlines()[-1:] or [f"status {found.returncode}"]
        raise fault("ssh.copy", "the files of a trial cannot be copied to {host}: {said}", path="--hosts", host=host, said=said[0])


def _fetched(folder: Path, host: str, mark: str, *, wait_s: float = 0.0) -> None:
    """The word of a host's keeper and the records of its ranks, once they are there."""
    until = time.monotonic() + wait_s
    while True:
        found = _asked(host, f"cd {_there(mark)} && test -e {ENDED} && tar -cf - {ENDED} $(test -d record && echo record)")
        if not found.returncode and found.stdout:
            subprocess.run(["tar", "-C", str(folder), "-xf", "-"], input=found.stdout, capture_output=True, check=False)
            return
        if time.monotonic() >= until:
            return
        time.sleep(1.0)
