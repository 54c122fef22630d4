"""The faults under Slurm: what jobs, nodes and daemons can come to. Run them inside ``benchmarks.trial_faults.cluster``."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.trial_faults.driver import QUEUED, swept
from benchmarks.trial_faults.scenes import Result, Scene, interrupted, judged, two_sweeps
from meshwright.errors import MeshwrightError
from meshwright.measure.executors import allocations, slurm_scripts
from meshwright.measure.executors.processes import marked
from meshwright.measure.executors.slurm import Slurm
from meshwright.measure.store import Attempt, Store

if TYPE_CHECKING:
    Strike = Callable[[Attempt, random.Random], None]

Slurm.every_s = 0.3  # a controller of one's own may be asked often
CONF = Path(os.environ.get("SLURM_CONF", ""))


def struck(strike: Strike, status: str, most: int = 1, labels: tuple[str, ...] = ("slow 50 20 2",)) -> Callable[..., Result]:
    """A scene in which something is done once the first trial runs; its first attempts are judged."""

    def run(scene: Scene, place: Path, rng: random.Random, name: str) -> Result:
        def hit() -> None:
            until = time.monotonic() + 30.0
            while time.monotonic() < until:
                with suppress(OSError, MeshwrightError, IndexError):
                    with Store(place / "s.db") as store:
                        first = store.attempts()[0]
                    if first.handle and (place / "s.trials" / first.folder / "output.log").exists():
                        time.sleep(rng.uniform(0.2, 1.5))
                        strike(first, rng)
                        return
                time.sleep(0.05)

        thread = threading.Thread(target=hit)
        thread.start()
        attempts = swept(place / "s.db", labels, name, limits=QUEUED)
        thread.join()
        looked = attempts if most > 1 else [each for each in attempts if each.attempt == 1]
        return judged(looked, dict.fromkeys(labels, status), most)

    return run


def asked(*words: str) -> None:
    subprocess.run(words, check=False, capture_output=True)


def job_of(first: Attempt) -> str:
    """The job that an attempt runs in."""
    handle = str(first.handle)
    return str(json.loads(handle)["job"]) if handle.startswith("{") else handle


def cancelled(first: Attempt, rng: random.Random) -> None:
    asked("scancel", job_of(first))


def keeper_killed(first: Attempt, rng: random.Random) -> None:
    for process in marked(first.mark):
        if b"keeper.py" in Path(f"/proc/{process}/cmdline").read_bytes():
            os.kill(process, signal.SIGKILL)


def node_down(first: Attempt, rng: random.Random) -> None:
    """The node of the trial is lost; it comes back when the trial has gone on elsewhere."""
    said = subprocess.run(["squeue", "-h", "-j", job_of(first), "-o", "%N"], capture_output=True, text=True, check=False).stdout
    node = said.strip()
    asked("scontrol", "update", f"nodename={node}", "state=down", "reason=drill")
    threading.Timer(4.0, asked, ("scontrol", "update", f"nodename={node}", "state=resume")).start()


def restarted(first: Attempt, rng: random.Random) -> None:
    """The controller goes away for a moment."""
    process = int((CONF.parent / "slurmctld.pid").read_text())
    os.kill(process, signal.SIGTERM)
    time.sleep(rng.uniform(0.5, 2.0))
    while Path(f"/proc/{process}").exists():
        time.sleep(0.1)
    asked("slurmctld", "-f", str(CONF))


def limited(scene: Scene, place: Path, rng: random.Random, name: str) -> Result:
    """Slurm itself ends a job at its time limit, which is a minute at least; whoever watches it would wait longer."""
    label, whole = "slow 50 400 1", slurm_scripts.script_of
    held = allocations.LASTS, allocations.minutes_of
    allocations.LASTS, allocations.minutes_of = 1, lambda trials: 1
    slurm_scripts.script_of = lambda trial, mark, avoid: whole(
        replace(trial, limits=replace(trial.limits, total_s=30.0)), mark, avoid)
    try:
        attempts = swept(place / "s.db", [label], name, limits=replace(QUEUED, silence_s=300.0, step_s=300.0, total_s=300.0))
    finally:
        slurm_scripts.script_of = whole
        allocations.LASTS, allocations.minutes_of = held
    return judged(attempts, {label: "timeout"})


SCENES = (
    Scene("out of memory", ("oom", "half"), "oom", share=3),
    Scene("rank killed", ("killed", "rank-killed"), "node", attempts=3, share=2),
    Scene("rank killed, others wait", ("alone",), "node", attempts=3, share=1),
    Scene("hang in a collective", ("hang", "stubborn", "chatty", "watchdog"), "hang", share=4),
    Scene("hang at start", ("silent",), "hang", share=2),
    Scene("port clash", ("clash",), "nccl", attempts=3, share=1),
    Scene("wrong settings", ("user", "exits"), "user", share=2),
    Scene("garbage output", ("garbage", "nothing"), "parse", share=2),
    Scene("leaves processes behind", ("ok 50 0 3 #",), "ok", share=1),
    Scene("scheduler cancel", (), "cancelled", share=4, run=struck(cancelled, "cancelled")),
    Scene("keeper killed", (), "node", share=2, run=struck(keeper_killed, "node")),
    Scene("node lost", (), "ok", share=3, run=struck(node_down, "ok", 3, ("brisk 50 20 0",))),
    Scene("controller restarted", (), "ok", share=4, run=struck(restarted, "ok", 1, ("brisk 50 20 0",))),
    Scene("time limit of the job", (), "timeout", share=1, run=limited),
    Scene("Meshwright killed", (), "", share=5, run=interrupted),
    Scene("ctrl-c", (), "", share=3, run=interrupted),
    Scene("two sweeps on one store", (), "", share=1, run=two_sweeps),
)
