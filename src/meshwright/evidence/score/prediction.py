"""Estimates of many cases, on one process or several, in a fixed order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from os import cpu_count
from typing import TYPE_CHECKING

import numpy as np

from meshwright.errors import InputError
from meshwright.estimate import estimate
from meshwright.estimate.evaluate import evaluate, shown_bytes
from meshwright.evidence.fit.processes import processes, submit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout
    from meshwright.domain.memory_reading import MemoryReading

Legal = Callable[["Case", "Layout"], Sequence[str]]
"""Why a layout may not be run; nothing where it may. A function of a module, so that another process can call it."""
Task = tuple["Case", "Layout", "MemoryReading"]
"""What is predicted, and how its memory was read."""
Progress = Callable[[float, float], None]
Bounds = tuple[float, float]
CHUNK = 48
WORTH_IT = 400
"""Fewer predictions take less time than the start of a process."""
MAX_JOBS = 4
AHEAD = 2
"""Chunks that wait for each process beyond the one that it works on, so that it never waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """The figures of an estimate that validation needs; small, because they travel between processes."""

    step_s: float | None = None
    memory_peak_bytes: float | None = None
    memory_shown_bytes: float | None = None
    """As the counter that the run quotes shows it."""
    fit_probability: float = 0.0
    mfu_ratio: float = 0.0
    ideal_s: float | None = None
    step_interval_s: Bounds | None = None
    memory_interval_bytes: Bounds | None = None
    refused: tuple[str, ...] = ()
    calibration: str = ""
    grade: str = ""
    fault: str = ""
    """Why there is no estimate of a legal layout; blank otherwise."""


def predict(tasks: Iterable[Task], legal: Legal, jobs: int = 1) -> Generator[Predicted, None, None]:
    """An estimate of every case and layout, in their order, on so many processes.

    Holds:   tasks are taken as they are needed, so that they may come from a file of any length.
    """
    left = iter(tasks)
    chunks = iter(lambda: list(islice(left, CHUNK)), [])
    if jobs > 1:
        yield from _beside(chunks, legal, jobs)
    for chunk in chunks:
        yield from _chunk(chunk, legal)


def jobs_for(tasks: int) -> int:
    """As many processes as pay for so many predictions."""
    return min(MAX_JOBS, cpu_count() or 1) if tasks >= WORTH_IT else 1


def _beside(chunks: Iterator[list[Task]], legal: Legal, jobs: int) -> Generator[Predicted, None, None]:
    """Chunks on other processes; where those are no more, what they had is done here, and further chunks are not taken."""
    waiting: deque[list[Task]] = deque()
    futures: deque[Future[list[Predicted]]] = deque()

    def first() -> list[Predicted]:
        found = futures[0].result()
        futures.popleft()
        waiting.popleft()
        return found

    with processes(jobs) as pool, suppress(BrokenProcessPool):  # no room for a second process, or a script without a main guard
        for chunk in chunks:
            waiting.append(chunk)
            futures.append(submit(pool, _chunk, chunk, legal))
            if len(waiting) > AHEAD * jobs:
                yield from first()
        while waiting:
            yield from first()
    for chunk in waiting:
        yield from _chunk(chunk, legal)


def _chunk(chunk: Sequence[Task], legal: Legal) -> list[Predicted]:
    return [_one(case, layout, reading, legal) for case, layout, reading in chunk]


def _one(case: Case, layout: Layout, reading: MemoryReading, legal: Legal) -> Predicted:
    """One estimate. A legal layout that cannot be estimated is a fault, an illegal one is only said not to run.

    Errors:  whatever is no fault of the row is a bug, and goes on up.
    """
    refused = tuple(legal(case, layout))
    if not case.training.precision.runs_on(case.cluster.device):  # no matrix unit whose peak a time could be relative to
        return Predicted(refused=refused, fault="" if refused else "the device does not compute in the data types of the recipe")
    try:
        with np.errstate(all="ignore" if refused else "warn"):
            evaluation = evaluate(case, layout)
            result = estimate(case, layout, evaluation)
            shown = shown_bytes(case, evaluation, reading)
    except InputError as error:
        return Predicted(refused=refused, fault="" if refused else str(error.messages[0]))
    if not (isfinite(result.step_s) and result.step_s > 0 and isfinite(result.memory_reserved_bytes)):
        return Predicted(refused=refused, fault="" if refused else "not finite")
    return _figures(result, shown, refused)


def _figures(result: Estimate, shown: float, refused: tuple[str, ...]) -> Predicted:
    interval = result.interval
    ideal_s = result.hardware_flops_per_s_per_device * result.step_s / result.peak_flops_per_s
    return Predicted(
        step_s=result.step_s, memory_peak_bytes=float(result.memory_peak_bytes),
        memory_shown_bytes=shown,
        fit_probability=0.0 if refused else result.fit_probability, mfu_ratio=result.mfu_ratio, ideal_s=ideal_s,
        step_interval_s=None if interval is None else interval.step_s,
        memory_interval_bytes=None if interval is None else scaled(interval.memory_peak_bytes, shown / result.memory_peak_bytes),
        refused=refused, calibration=result.calibration, grade=(result.grades or {}).get("step_s", ""),
    )


def scaled(bounds: Bounds, factor: float) -> Bounds:
    """Bounds of a figure that is so many times as large."""
    return bounds[0] * factor, bounds[1] * factor
