"""Rounds of runs: each round runs every layout once in fresh ranks, so that a drift of the machine meets all of them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from hashlib import sha256
from statistics import median
from typing import TYPE_CHECKING

from meshwright.engine.run import run
from meshwright.errors import MeshwrightError
from meshwright.measure.rehearse.choice import short_label
from meshwright.measure.rehearse.store import Trial

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.engine.launch import Start
    from meshwright.engine.request import Options
    from meshwright.measure.rehearse.store import Store

    Runner = Callable[["Job"], "Ran"]
    Tick = Callable[[str, float, float], None]

LEAST_LIMIT_S = 120.0
PATIENCE = 40.0
"""A run is given up after so many times what its steps were predicted to take."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What one run of a layout measured."""

    steps_s: Sequence[float]
    memory_peak_bytes: int = 0
    """The allocator's peak on the fullest rank; 0 where there is no such allocator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One layout of one case."""

    case: Case
    layout: Layout
    options: Options
    predicted_s: float

    @property
    def subject(self) -> str:
        """The case without its cluster and its constants: what is really run."""
        case, options = self.case, self.options
        said = (case.model, case.batch, case.training, options.backend, options.threads, options.steps, options.compiled)
        return f"{case.model.name}-{sha256(repr(said).encode()).hexdigest()[:12]}"

    @property
    def key(self) -> tuple[str, str, int]:
        """The layout of a store's trials."""
        return self.subject, short_label(self.layout), self.layout.world


def real(start: Start | None = None) -> Runner:
    """A runner of the reference step; ``start`` starts a rank."""

    def run_once(job: Job) -> Ran:
        limit_s = max(LEAST_LIMIT_S, PATIENCE * job.predicted_s * (job.options.steps + job.options.warmup_steps))
        with warnings.catch_warnings():  # more ranks than cores: the report says so once
            warnings.simplefilter("ignore", UserWarning)
            report = run(job.case, job.layout, job.options, limit_s=limit_s, start=start)
        return Ran(report.steps_s, max(rank.memory_peak_bytes or 0 for rank in report.ranks))

    return run_once


def run_rounds(jobs: Sequence[Job], rounds: int, store: Store, runner: Runner, *, tick: Tick | None = None) -> bool:
    """Run what the store lacks -> whether all was run; False where the user interrupted it.

    Holds:   A B C A B C. A layout that fails is not run again in later rounds of this call.
    """
    failed: set[tuple[str, str, int]] = set()
    total = rounds * len(jobs)
    try:
        for number in range(rounds):
            for place, job in enumerate(jobs):
                if tick is not None:
                    tick("runs", number * len(jobs) + place, total)
                if (*job.key, number) in store.done() or job.key in failed:
                    continue
                trial = _tried(job, number, store.machine, runner)
                store.add(trial)
                if not trial.steps_s:
                    failed.add(job.key)
    except KeyboardInterrupt:
        return False
    return True


def _tried(job: Job, number: int, machine: str, runner: Runner) -> Trial:
    subject, name, ranks = job.key
    try:
        ran = runner(job)
    except MeshwrightError as error:
        first = error.messages[0]
        text = " ".join(str(first).replace("\\n", " ").split())
        return Trial(machine=machine, subject=subject, label=name, ranks=ranks, number=number, cause=text, cause_id=first.id)
    return Trial(
        machine=machine, subject=subject, label=name, ranks=ranks, number=number, steps_s=tuple(ran.steps_s),
        memory_peak_bytes=ran.memory_peak_bytes,
    )


def medians(job: Job, store: Store) -> tuple[float, ...]:
    """The median step of every round that was run."""
    found = [trial for trial in store.done().values() if trial.key[:3] == job.key]
    return tuple(median(trial.steps_s) for trial in sorted(found, key=lambda trial: trial.number))


def peak_bytes(job: Job, store: Store) -> int | None:
    """The most that a rank allocated in any round; None where nobody knows."""
    return max((trial.memory_peak_bytes for trial in store.done().values() if trial.key[:3] == job.key), default=0) or None


def failure(job: Job, store: Store) -> str:
    """Why a layout did not run, as last seen; empty where it ran."""
    if medians(job, store):
        return ""
    return next((trial.cause for trial in reversed(store.trials) if trial.key[:3] == job.key and trial.cause), "")
