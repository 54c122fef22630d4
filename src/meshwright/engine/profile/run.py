"""A profile from outside: the machine is named, what is missing is measured by ranks of its own, and everything is in a file."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from meshwright.engine.launch import Task, cores_here, launch, require_torch
from meshwright.engine.profile.jobs import Job, World, jobs
from meshwright.engine.profile.machine import Kind, Machine, this_machine
from meshwright.engine.profile.request import NORMAL, QUICK, Request
from meshwright.engine.profile.statistics import noise_ratio, too_noisy
from meshwright.engine.profile.store import open_store, read_store
from meshwright.errors import fault

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from meshwright.domain.sample import Sample

MINUTES, QUICK_MINUTES = 5.0, 1.0
POLL_S = 0.25
THREADS = 1
MOST_RANKS = 1024
"""More processes than that no host starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What to measure and where to keep it."""

    samples: Path
    """File of samples; those that it has are not measured again."""
    ranks: int
    kind: Kind = "cpu"
    quick: bool = False
    """Fewer sizes and wider intervals."""
    minutes: float | None = None
    """Time for all that a profile measures; None: ``MINUTES``, or ``QUICK_MINUTES``."""
    only: tuple[Job, ...] | None = None
    """These jobs; None: all of the grid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a profile knows."""

    machine: Machine
    samples: tuple[Sample, ...]
    """Those of this number of busy ranks."""
    seconds: float
    """That measuring took."""
    reused: int
    """Samples that were there already."""
    too_long: tuple[str, ...] = ()
    """Jobs that take too long here, in words."""

    @property
    def noise_ratio(self) -> float:
        """Worst over best block of a product, the median over products."""
        return noise_ratio(self.samples)


def measured(asked: Asked, tick: Callable[[float, float], None] | None = None) -> Profile:
    """Measure what is missing on ranks of this host; ``tick`` is called with (done, all).

    Holds:   whatever ends it, the samples so far are in the file.
    Errors:  InputError where it cannot start; NoAnswerError with the first cause where a rank fails.
    """
    check(asked)
    begun = monotonic()
    machine = this_machine(asked.kind, ranks=asked.ranks, ranks_per_node=asked.ranks, threads=THREADS)
    world = World(ranks=asked.ranks, ranks_per_node=asked.ranks)
    todo, missing = missing_jobs(asked, machine, world)
    too_long: tuple[str, ...] = ()
    if missing:
        task = Task(
            target="meshwright.engine.profile.rank:measure", payload=request_of(asked, world, todo, missing),
            backend="cuda" if asked.kind == "cuda" else "cpu", threads=THREADS,
        )
        with Watch(asked.samples, len(missing), len(todo), tick):
            too_long = launch(task, asked.ranks)[0]
    return profile_of(asked, machine, monotonic() - begun, len(todo) - len(missing), too_long)


def check(asked: Asked) -> None:
    """Refuse what cannot be, before anything is measured."""
    require_torch()
    if asked.ranks < 1:
        raise fault("profile.ranks", "{ranks} ranks cannot measure anything", path="--ranks", ranks=asked.ranks)
    if asked.ranks > MOST_RANKS:
        raise fault("profile.many", "{ranks} ranks on one host, at most {most} are started", path="--ranks", ranks=asked.ranks,
                    most=MOST_RANKS)
    if asked.kind == "cpu":
        return
    from meshwright.engine.profile.clock import require

    devices = require(asked.kind)
    if asked.kind == "npu":
        raise fault("profile.npu", "ranks on {kind} devices are started by torchrun, as in: torchrun --nproc-per-node 8 "
                    "-m meshwright profile --device {kind}", path="--device", kind=asked.kind)
    if asked.ranks > devices:
        raise fault("profile.devices", "{ranks} ranks on {devices} devices: each rank needs one", path="--ranks",
                    ranks=asked.ranks, devices=devices)


def default_kind() -> Kind:
    """The accelerator that torch reaches, or the processor."""
    require_torch()
    from meshwright.engine.profile.clock import likely_kind

    return likely_kind()


def default_ranks(kind: Kind) -> int:
    """One for each device or core of this host."""
    if kind == "cpu":
        return cores_here()
    from meshwright.engine.profile.clock import require

    return require(kind)


def missing_jobs(asked: Asked, machine: Machine, world: World) -> tuple[tuple[Job, ...], tuple[Job, ...]]:
    """All jobs, and those that the file does not have, or has from a moment when the machine was busy with something else."""
    todo = jobs(asked.kind, world, quick=asked.quick) if asked.only is None else asked.only
    known = {sample.key for sample in open_store(asked.samples, machine) if not too_noisy(sample)}
    return todo, tuple(job for job in todo if job.key(world.ranks) not in known)


def request_of(asked: Asked, world: World, todo: tuple[Job, ...], missing: tuple[Job, ...]) -> Request:
    """What the ranks are told; a job that is there already leaves its time to nobody."""
    minutes = asked.minutes or (QUICK_MINUTES if asked.quick else MINUTES)
    return Request(
        jobs=missing, samples=str(asked.samples.resolve()), kind=asked.kind, world=world, care=QUICK if asked.quick else NORMAL,
        job_s=60.0 * minutes / len(todo),
    )


def profile_of(asked: Asked, machine: Machine, seconds: float, reused: int, too_long: tuple[str, ...]) -> Profile:
    """What the file of samples holds now, of this number of ranks."""
    _, samples = read_store(asked.samples)
    return Profile(
        machine=machine, samples=tuple(each for each in samples if each.busy_ranks == machine.ranks), seconds=seconds,
        reused=reused, too_long=too_long,
    )


class Watch:
    """Counts the samples that a file gains from time to time, and tells."""

    def __init__(self, path: Path, missing: int, total: int, tick: Callable[[float, float], None] | None) -> None:
        self._path, self._missing, self._total, self._tick = path, missing, total, tick
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> None:
        if self._tick is not None:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _look(self) -> None:
        assert self._tick is not None, "it is asked for"
        before = self._path.read_bytes().count(b"\n") + self._missing - self._total
        while not self._over.wait(POLL_S):
            self._tick(self._path.read_bytes().count(b"\n") - before, self._total)
