"""The faults: what is done, and how it must be classed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.trial_faults.driver import swept
from meshwright.errors import MeshwrightError
from meshwright.measure.executors.processes import marked, started_at
from meshwright.measure.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.measure.store import Attempt

TOP = Path(__file__).parents[2]


@dataclass(frozen=True)
class Result:
    """What became of one fault."""

    right: int
    """Trials whose class is right."""
    trials: int
    orphans: int
    lost: int
    """Finished trials that the store lacks, has twice, or has otherwise."""
    said: str = ""


@dataclass(frozen=True)
class Scene:
    """A fault, and how to look at it."""

    name: str
    kinds: tuple[str, ...]
    """What the stand-in may do; one is drawn."""
    status: str
    attempts: int = 1
    share: int = 1
    """How often it is drawn, beside others."""
    run: Callable[[Scene, Path, random.Random, str], Result] | None = None
    """None: the trial is run and looked at."""


def ending(scene: Scene, place: Path, rng: random.Random, name: str) -> Result:
    """One trial of the stand-in program, with children that do not want to end."""
    label = f"{rng.choice(scene.kinds)} {rng.randint(40, 60)} {rng.randint(4, 7)} {rng.randint(0, 3)}"
    return judged(swept(place / "s.db", [label], name), {label: scene.status}, scene.attempts)


def judged(attempts: list[Attempt], expected: dict[str, str], most: int = 1, *, said: str = "") -> Result:
    """The last attempt of each label beside what it should be, and what still runs."""
    last = {each.label: each for each in attempts}
    right = sum(
        last[label].outcome is not None and last[label].outcome.status == status and (status == "cancelled" or
                                                                                    last[label].attempt <= most)
        for label, status in expected.items() if label in last
    )
    lost = sum(label not in last or last[label].state != "done" for label in expected)
    seen = "; ".join(f"{each.label}: {each.outcome and (each.outcome.status, each.outcome.evidence)}" for each in last.values())
    return Result(right, len(expected), orphans(attempts), lost, said or seen)


def orphans(attempts: list[Attempt]) -> int:
    """Processes of trials that still run, after a moment in which a keeper may end them."""
    until = time.monotonic() + 5.0
    while (left := sum(len(marked(each.mark)) for each in attempts)) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def during(scene: Scene, place: Path, rng: random.Random, name: str) -> Result:
    """Something is done to the keeper of the first attempt while it runs: a signal from outside, or a kill."""
    label = f"slow 50 20 {rng.randint(0, 3)}"
    number = signal.SIGKILL if scene.name == "keeper killed" else signal.SIGTERM
    hit: list[int] = []

    def strike() -> None:
        until = time.monotonic() + 5.0
        while time.monotonic() < until and not hit:
            with suppress(OSError, ValueError, MeshwrightError, IndexError):
                with Store(place / "s.db") as store:
                    found = [json.loads(each.handle) for each in store.attempts() if each.handle]
                time.sleep(rng.uniform(0.1, 0.6))
                os.kill(found[0]["pid"], number)
                hit.append(found[0]["pid"])
            time.sleep(0.02)

    thread = threading.Thread(target=strike)
    thread.start()
    attempts = swept(place / "s.db", [label], name)
    thread.join()
    first = [each for each in attempts if each.attempt == 1]
    return judged(first, {label: scene.status})


def interrupted(scene: Scene, place: Path, rng: random.Random, name: str) -> Result:
    """A sweep of its own process is ended at a drawn moment, and another goes on with its store."""
    labels = [f"ok {ms} 0 {rng.randint(0, 3)}" for ms in (41, 45, 50)] + ["hang 43 3 2"]
    expected = dict.fromkeys(labels[:3], "ok") | {labels[3]: "hang"}
    process = start(place, name, labels)
    time.sleep(rng.uniform(0.2, 4.5))
    how = {"Meshwright killed": signal.SIGKILL, "ctrl-c": signal.SIGINT, "SIGTERM": signal.SIGTERM}[scene.name]
    process.send_signal(how)
    process.wait(timeout=60)
    store = place / "s.db"
    before: list[Attempt] = []
    if store.exists():
        with Store(store) as kept:
            before = kept.attempts()
    left = orphans(before) if how != signal.SIGKILL else 0
    attempts = swept(store, labels, name)
    found = judged(attempts, expected, most=3)
    kept_now = {(each.id, each.attempt): each for each in attempts}
    done = [each for each in before if each.state == "done" and each.outcome is not None and each.outcome.status != "cancelled"]
    lost = sum(kept_now.get((each.id, each.attempt)) != each for each in done)
    again = sum(kept_now.get((each.id, each.attempt + 1)) is not None for each in done)
    return Result(found.right, found.trials, found.orphans + left, found.lost + lost + again, found.said)


def start(place: Path, name: str, labels: list[str]) -> subprocess.Popen[bytes]:
    """A sweep in a process of its own."""
    paths = os.pathsep.join(filter(None, [str(TOP / "src"), str(TOP), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen([sys.executable, "-m", "benchmarks.trial_faults.driver", str(place / "s.db"), name, *labels],
                            env=os.environ | {"PYTHONPATH": paths}, stderr=subprocess.DEVNULL)


def two_sweeps(scene: Scene, place: Path, rng: random.Random, name: str) -> Result:
    """Two sweeps on one store at once: nothing is run twice."""
    labels = [f"ok {ms} 0 {rng.randint(0, 2)}" for ms in (41, 45, 50, 55)]
    both = [start(place, name, labels) for _ in range(2)]
    for each in both:
        each.wait(timeout=120)
    with Store(place / "s.db") as kept:
        attempts = kept.attempts()
    found = judged(attempts, dict.fromkeys(labels, "ok"))
    twice = len(attempts) - len({each.id for each in attempts})
    return Result(found.right, found.trials, found.orphans, found.lost + twice, found.said)


def full_disk(scene: Scene, place: Path, rng: random.Random, name: str) -> Result:
    """A trial fills the disk that its folder is on; the store stands on it, too."""
    label = f"disk 50 {rng.randint(3, 7)} 0"
    with disk(place / "small", 2) as small:
        try:
            attempts = swept(small / "s.db", [label], name)
        except MeshwrightError as error:  # the store had no room for the ending: it is found by whoever goes on
            first = str(error)
            for path in small.rglob("checkpoint.bin"):
                path.unlink()
            attempts = swept(small / "s.db", [f"ok {rng.randint(40, 60)}"], name)
            told = "what was kept is safe" in first or "cannot be started there" in first
            return Result(int(told), 1, orphans(attempts), int(not told), first)
        return judged(attempts, {label: "node"}, most=3)


@contextmanager
def disk(where: Path, megabytes: int) -> Iterator[Path]:
    """A file system of its own in memory; where none may be mounted, a folder."""
    where.mkdir()
    held = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", where], check=False, capture_output=True)
    try:
        yield where
    finally:
        if held.returncode == 0:
            subprocess.run(["umount", "-l", where], check=False)


def lives(process: int) -> bool:
    """Whether a process runs."""
    return started_at(process) is not None


SCENES = (
    Scene("ends well", ("ok",), "ok", share=1),
    Scene("leaves processes behind", ("ok 50 0 3 #",), "ok", share=1),
    Scene("out of memory", ("oom",), "oom", share=2),
    Scene("out of memory, others wait", ("half",), "oom", share=2),
    Scene("rank killed", ("killed", "rank-killed"), "node", attempts=3, share=2),
    Scene("rank killed, others wait", ("alone",), "node", attempts=3, share=1),
    Scene("hang in a collective", ("hang", "stubborn", "chatty", "watchdog"), "hang", share=4),
    Scene("hang at start", ("silent",), "hang", share=1),
    Scene("communication", ("nccl",), "nccl", attempts=3, share=1),
    Scene("port clash", ("clash",), "nccl", attempts=3, share=1),
    Scene("preempted", ("preempted",), "preempted", attempts=3, share=1),
    Scene("wrong settings", ("user", "exits"), "user", share=1),
    Scene("loss is no number, or diverges", ("nan", "diverging"), "user", share=2),
    Scene("garbage output", ("garbage", "nothing"), "parse", share=2),
    Scene("time limit", ("slow",), "timeout", share=1),
    Scene("disk full", ("disk",), "node", attempts=3, share=2, run=full_disk),
    Scene("scheduler cancel", ("slow",), "cancelled", share=2, run=during),
    Scene("keeper killed", ("slow",), "node", share=2, run=during),
    Scene("Meshwright killed", (), "", share=5, run=interrupted),
    Scene("ctrl-c", (), "", share=1, run=interrupted),
    Scene("SIGTERM", (), "", share=1, run=interrupted),
    Scene("two sweeps on one store", (), "", share=1, run=two_sweeps),
)
"""On this machine."""
