"""Predictions of many runs and their derivatives by the constants, in one pass over the cases."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from meshwright.domain.calibration import Key
from meshwright.estimate.evaluate import composition_of, evaluate
from meshwright.estimate.single import model_flops, simulated
from meshwright.estimate.trials import evaluate_trials
from meshwright.evidence.fit.noise import kinds_at_any_speed
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from meshwright.domain.case import Case
    from meshwright.domain.memory_reading import MemoryReading
    from meshwright.evidence.rows.run import Run

Part = tuple["NDArray[np.float64]", "NDArray[np.float64]", "NDArray[np.float64]"]
STEP = 0.02
"""Difference of a constant's log between two trials."""


def key_of(run: Run) -> Key:
    """What the calibration may know about a run."""
    device, row = run.case.cluster.device, run.row
    return Key(
        device=device.name, device_family=device.family, cluster=run.case.cluster.name, framework=run.case.implementation.family,
        release=" ".join(part for part in (row.framework.lower(), row.framework_version) if part),
        precision=run.case.training.precision.name,
    )


class Linear(Value, frozen=True):
    """Log predictions at some multipliers, and their derivatives; NaN where a run measured nothing of the sort."""

    step: NDArray[np.float64]
    """log step time, ``[run]``."""
    memory: NDArray[np.float64]
    """log memory of the kind that the run measured, ``[run]``."""
    step_by: NDArray[np.float64]
    """``[run, constant]``."""
    memory_by: NDArray[np.float64]
    reserved: NDArray[np.float64]
    """log reserved bytes, ``[run]``: what decides whether a run fits."""
    reserved_by: NDArray[np.float64]


class Workers(Protocol):
    """Something that evaluates groups of runs beside this process."""

    def parts(
        self, numbers: Sequence[int], multipliers: NDArray[np.float64], ceilings: NDArray[np.float64]
    ) -> Iterable[tuple[int, Part]]:
        """``Runs.part`` of every number."""

    def corrections(
        self, numbers: Sequence[int], multipliers: NDArray[np.float64], ceilings: NDArray[np.float64]
    ) -> Iterable[float]:
        """``Runs.correction`` of every number."""


class Runs:
    """Runs in groups of one case, ready to be evaluated under many constants."""

    def __init__(self, runs: Sequence[Run], names: Sequence[str]) -> None:
        """Group the runs; nothing is evaluated yet."""
        self.runs, self.names = tuple(runs), tuple(names)
        keys: dict[Key, int] = {}
        self.key_of = np.array([keys.setdefault(key_of(run), len(keys)) for run in runs], dtype=np.int64)
        self.keys = tuple(keys)
        self.log_step = np.array([math.log(run.step_s) if run.step_s else math.nan for run in runs])
        self.log_memory = np.array([math.log(run.memory_bytes) if run.memory_bytes else math.nan for run in runs])
        self.priors = np.array([[float(getattr(run.case.calibration.constants, name)) for name in names] for run in runs]).reshape(
            len(runs), len(names)
        )
        groups: defaultdict[tuple[int, str, MemoryReading], list[int]] = defaultdict(list)
        for index, run in enumerate(runs):
            groups[int(self.key_of[index]), repr(run.case), run.reading].append(index)
        self.groups = tuple(groups.values())
        self.log_ideal = np.array([math.log(ideal_s(run)) for run in runs])
        self.kinds = kinds_at_any_speed(self.runs, [self.keys[key] for key in self.key_of])
        self._uneven = np.array([_uneven(run) for run in runs], dtype=bool)

    def values(self, index: int, multipliers: NDArray[np.float64], ceilings: NDArray[np.float64]) -> NDArray[np.float64]:
        """The constants of a run under log multipliers and ceilings ``[key, constant]``."""
        key = self.key_of[index]
        wanted = self.priors[index] * np.exp(multipliers[key])
        return np.asarray(np.minimum(wanted, np.maximum(self.priors[index], ceilings[key])))

    def linear(
        self, multipliers: NDArray[np.float64], ceilings: NDArray[np.float64], progress: Callable[[int], None] | None = None,
        workers: Workers | None = None,
    ) -> Linear:
        """Predictions and derivatives at log multipliers ``[key, constant]``; the bubble is the closed form."""
        count, width = len(self.runs), len(self.names)
        step, memory, reserved = (np.full(count, np.nan) for _ in range(3))
        step_by, memory_by, reserved_by = (np.zeros((count, width)) for _ in range(3))
        numbers = range(len(self.groups))
        found = (
            workers.parts(numbers, multipliers, ceilings)
            if workers
            else ((number, self.part(number, multipliers, ceilings)) for number in numbers)
        )
        for number, (times, shown, needed) in found:
            group = list(self.groups[number])
            step[group], step_by[group] = times[:, 0], (times[:, :1] - times[:, 1:]) / STEP
            memory[group], memory_by[group] = shown[:, 0], (shown[:, :1] - shown[:, 1:]) / STEP
            reserved[group], reserved_by[group] = needed[:, 0], (needed[:, :1] - needed[:, 1:]) / STEP
            if progress:
                progress(len(group))
        return Linear(step=step, memory=memory, step_by=step_by, memory_by=memory_by, reserved=reserved, reserved_by=reserved_by)

    def part(self, number: int, multipliers: NDArray[np.float64], ceilings: NDArray[np.float64]) -> Part:
        """Logs of step time, shown memory and reserved memory of one group: as they are, then with each constant a step lower."""
        group, names = self.groups[number], self.names
        base = self.values(group[0], multipliers, ceilings)
        tried = {name: np.full(len(names) + 1, base[k]) for k, name in enumerate(names)}
        for k, name in enumerate(names):
            tried[name][k + 1] *= math.exp(-STEP)
        first = self.runs[group[0]]
        found = evaluate_trials(first.case, [self.runs[index].layout for index in group], tried, first.reading)
        return np.log(found.step_s), np.log(found.shown_bytes), np.log(found.reserved_bytes)

    def predict(self, multipliers: NDArray[np.float64], ceilings: NDArray[np.float64], members: NDArray[np.bool_]) -> Linear:
        """Predictions of some runs without derivatives, simulated bubble included; NaN for the others."""
        step, memory, reserved = (np.full(len(self.runs), np.nan) for _ in range(3))
        for group in self.groups:
            chosen = [index for index in group if members[index]]
            if not chosen:
                continue
            base = self.values(chosen[0], multipliers, ceilings)
            tried = {name: np.full(1, base[k]) for k, name in enumerate(self.names)}
            first = self.runs[chosen[0]]
            found = evaluate_trials(first.case, [self.runs[index].layout for index in chosen], tried, first.reading)
            step[chosen], reserved[chosen] = np.log(found.step_s[:, 0]), np.log(found.reserved_bytes[:, 0])
            memory[chosen] = np.log(found.shown_bytes[:, 0])
        nothing = np.zeros((0, 0))
        step = step + self.corrections(multipliers, ceilings, members)
        return Linear(step=step, memory=memory, reserved=reserved, step_by=nothing, memory_by=nothing, reserved_by=nothing)

    def corrections(
        self, multipliers: NDArray[np.float64], ceilings: NDArray[np.float64], members: NDArray[np.bool_],
        workers: Workers | None = None,
    ) -> NDArray[np.float64]:
        """log of the simulated over the closed-form step time of some runs, where stages are unequal; else 0."""
        result = np.zeros(len(self.runs))
        chosen = [int(index) for index in np.flatnonzero(self._uneven & members)]
        found = (
            workers.corrections(chosen, multipliers, ceilings)
            if workers
            else (self.correction(index, multipliers, ceilings) for index in chosen)
        )
        for index, value in zip(chosen, found, strict=True):
            result[index] = value
        return result

    def correction(self, index: int, multipliers: NDArray[np.float64], ceilings: NDArray[np.float64]) -> float:
        """log of the simulated over the closed-form step time of one run."""
        run = self.runs[index]
        case = moved(run.case, dict(zip(self.names, self.values(index, multipliers, ceilings), strict=True)))
        closed = evaluate(case, run.layout)
        return math.log(float(simulated(case, run.layout, closed).time.step_s) / float(closed.time.step_s))


def moved(case: Case, values: dict[str, float]) -> Case:
    """A case with other constants."""
    plain = {name: float(value) for name, value in values.items()}
    constants = replace(case.calibration.constants, **plain)  # type: ignore[arg-type]
    return replace(case, calibration=replace(case.calibration, constants=constants))


def ideal_s(run: Run) -> float:
    """Step time at the peak of the device: model FLOPs over the dense peak of all devices."""
    device, precision = run.case.cluster.device, run.case.training.precision
    dtype = precision.gemm_dtype if device.supports(precision.gemm_dtype) else precision.base_dtype
    return model_flops(run.case) / device.peak_flops_per_s[dtype] / run.layout.world


def _uneven(run: Run) -> bool:
    if run.layout.pipeline_parallel == 1:
        return False
    return len(composition_of(run.case, run.layout, every_stage=False).stage) > 1
