"""Estimates of many cases, on one process or several, in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from math import isfinite
from os import cpu_count
from typing import TYPE_CHECKING

import numpy as np

from meshwright.errors import InputError
from meshwright.estimate import estimate
from meshwright.estimate.evaluate import evaluate, shown_bytes
from meshwright.evidence.fit.processes import processes, submit
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import ProcessPoolExecutor

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


class Predicted(Value, frozen=True, kw_only=True):
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


class Estimates:
    """Estimates of many cases, some at a time; other processes begin when there is enough to do, and end with the context.

    ``jobs``: processes; None: as many as pay.
    """

    def __init__(self, legal: Legal, jobs: int | None = None) -> None:
        self._legal, self._jobs = legal, jobs
        self._pool: ProcessPoolExecutor | None = None
        self._held = ExitStack()

    def __enter__(self) -> Estimates:
        return self

    def __exit__(self, *error: object) -> None:
        self._held.close()

    def of(self, tasks: Sequence[Task]) -> Iterator[Predicted]:
        """An estimate of every case and layout, in their order."""
        jobs = self._jobs or (min(MAX_JOBS, cpu_count() or 1) if len(tasks) >= WORTH_IT else 1)
        if self._pool is None and jobs > 1:
            self._pool = self._held.enter_context(processes(jobs))
        chunks, done = [tasks[begin : begin + CHUNK] for begin in range(0, len(tasks), CHUNK)], 0
        if self._pool is not None:
            try:
                futures = [submit(self._pool, _chunk, chunk, self._legal) for chunk in chunks]
                for future in futures:
                    found = future.result()
                    done += 1
                    yield from found
            except BrokenProcessPool:  # no room for a second process, or a script without a main guard
                self._pool, self._jobs = None, 1
        for chunk in chunks[done:]:
            yield from _chunk(chunk, self._legal)


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
