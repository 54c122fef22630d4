"""A Slurm of two nodes on this machine, for as long as a context lasts: ``python -m benchmarks.trial_faults.cluster -- COMMAND``.

Needs root and Debian's packages (``apt-get install slurm-wlm munge``); no systemd, no accounting. Both nodes are this machine, each
with as many CPUs as trials of the stand-in program are let run at a time.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CONF = """\
ClusterName=local
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
KillWait=2
SlurmctldPort=16817
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd-%n.pid
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool-%n
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd-%n.log
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=200000,sched_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
{nodes}
PartitionName=debug Nodes=ALL Default=YES State=UP
"""


ACCELERATORS = ("/dev/null", "/dev/zero")
"""Of a node: counted by Slurm, used by nobody."""


class Cluster:
    """The daemons."""

    def __init__(self, place: Path) -> None:
        self.place, self.conf = place, place / "slurm.conf"
        self.nodes = ["n1", "n2"] if self._several() else [socket.gethostname().split(".")[0]]

    def _several(self) -> bool:
        """Whether slurmd was built to run several times on one host."""
        said = subprocess.run(["slurmd", "-h"], capture_output=True, text=True, check=False)
        return "-N" in said.stdout + said.stderr

    def start(self) -> None:
        """Munge, the controller and the nodes."""
        host = socket.gethostname().split(".")[0]
        has = f"CPUs=2 RealMemory=2000 Gres=gpu:{len(ACCELERATORS)}"
        lines = [f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={16820 + number} {has}"
                 for number, name in enumerate(self.nodes)]
        (self.place / "state").mkdir(exist_ok=True)
        (self.place / "gres.conf").write_text("".join(f"Name=gpu File={each}\n" for each in ACCELERATORS))
        self.conf.write_text(CONF.format(host=host, place=self.place, nodes="\n".join(lines)))
        Path("/run/munge").mkdir(exist_ok=True)
        subprocess.run(["chown", "munge:munge", "/run/munge"], check=True)
        subprocess.run(["su", "-s", "/bin/sh", "munge", "-c", "/usr/sbin/munged --num-threads=2"], check=False, capture_output=True)
        os.environ["SLURM_CONF"] = str(self.conf)
        self.controller()
        for name in self.nodes:
            subprocess.run(["slurmd", "-f", str(self.conf), *(["-N", name] if len(self.nodes) > 1 else [])], check=True)
        until = time.monotonic() + 30
        while time.monotonic() < until:
            said = subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True, text=True, check=False).stdout.split()
            if said and set(said) <= {"idle"}:
                return
            time.sleep(0.3)
        raise SystemExit(f"Slurm does not come up: see {self.place}")

    def controller(self) -> None:
        """Start slurmctld."""
        subprocess.run(["slurmctld", "-f", str(self.conf)], check=True)

    def stop_controller(self) -> None:
        """End slurmctld, and wait until it has."""
        _stop(self.place / "slurmctld.pid")

    def stop(self) -> None:
        """Cancel what runs, end the daemons."""
        subprocess.run(["scancel", "--me"], check=False, capture_output=True)
        time.sleep(1)
        for name in (*(f"slurmd-{name}.pid" for name in self.nodes), "slurmctld.pid"):
            _stop(self.place / name)
        _stop(Path("/run/munge/munged.pid"))


def _stop(file: Path) -> None:
    """End the process of a pid file."""
    with suppress(OSError, ValueError):
        process = int(file.read_text())
        os.kill(process, signal.SIGTERM)
        until = time.monotonic() + 15
        while Path(f"/proc/{process}").exists() and time.monotonic() < until:
            time.sleep(0.1)


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A Slurm that is there."""
    for program in ("slurmctld", "slurmd", "sbatch", "munged"):
        if shutil.which(program) is None:
            raise SystemExit(f"{program} is not here: apt-get install slurm-wlm munge")
    with tempfile.TemporaryDirectory(prefix="meshwright-slurm-", ignore_cleanup_errors=True) as place:
        found = Cluster(Path(place))
        try:
            found.start()
            yield found
        finally:
            found.stop()


def main(words: Sequence[str]) -> int:
    """Run a command on it -> its exit status."""
    with cluster():
        return subprocess.run(list(words), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:][sys.argv[1:2] == ["--"]:]))
