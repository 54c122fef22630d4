"""What a handful of own runs did to a calibration: which constants moved, what intervals became, and which runs contradict."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from meshwright.domain.calibration import OWN
from meshwright.errors import Message
from meshwright.estimate import estimate
from meshwright.evidence.fit.fitters import predictor_of
from meshwright.evidence.fit.linear import ideal_s, key_of
from meshwright.evidence.fit.noise import FLOOR
from meshwright.evidence.rows.groups import cell_key, settings_key
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.calibration import CalibrationTable
    from meshwright.domain.estimate import Estimate
    from meshwright.evidence.rows.run import Run

APART = 3.0 * math.sqrt(2.0) * FLOOR
"""Two measurements of one configuration differ by no more than three standard deviations of their difference, in log units."""
UNLIKELY = 2.0
"""Half-widths of a difference, 90 % each, beyond which no constants are to blame for it: one pair in a thousand."""
TOO_LONG = 300.0
"""Times a prediction beyond which a step is in another unit: a thousand, less a factor of three (our judgement; the slowest run of
the corpus, stalled, takes 50)."""
SAID = 0.005
"""A constant that moved by less is not worth saying."""


class Moved(Value, frozen=True, kw_only=True):
    """A constant that own runs moved, for one device, framework and precision."""

    constant: str
    cell: str
    before: float
    after: float

    @property
    def change_ratio(self) -> float:
        """After over before, minus one."""
        return self.after / self.before - 1.0


class Conflict(Value, frozen=True, kw_only=True):
    """Runs that cannot be what they say, by physics or by each other."""

    rows: tuple[str, ...]
    why: Message
    physics: bool = False
    """Whether no machine does it: such a run teaches nothing."""


def impossible(runs: Sequence[Run]) -> list[Conflict]:
    """Runs that no device can have done: faster than the peak of the devices, so slow that the unit must be wrong, in less
    memory than the states alone take, or failed with a step.

    Units:   s, bytes.
    Holds:   each run at most once; the states are those of the emptiest stage, and count nothing that is in host memory.
    """
    found = []
    for run in runs:
        if run.step_s and run.failed:
            found.append(Conflict(rows=(run.id,), physics=True, why=Message(
                "few-shot.failed", "{id}: status failed, yet a step of {step:.3g} s: write ok if its steps count",
                {"id": run.id, "step": run.step_s},
            )))
        elif run.step_s and run.step_s < (least := ideal_s(run)):
            found.append(Conflict(rows=(run.id,), physics=True, why=Message(
                "few-shot.peak",
                "{id}: a step of {step:.3g} s is {times:.2f} times as fast as the peak of {device} allows ({least:.3g} s)",
                {"id": run.id, "step": run.step_s, "times": least / run.step_s, "device": run.device, "least": least},
            )))
        elif run.step_s and run.step_s > TOO_LONG * (predicted := estimate(run.case, run.layout).step_s):
            found.append(Conflict(rows=(run.id,), physics=True, why=Message(
                "few-shot.units",
                "{id}: a step of {step:,.5g} s is {times:,.0f} times as long as predicted ({predicted:.3g} s): is it in "
                "milliseconds?",
                {"id": run.id, "step": run.step_s, "times": run.step_s / predicted, "predicted": predicted},
            )))
        elif run.memory_bytes and run.memory_bytes < (states := _states_bytes(run)):
            found.append(Conflict(rows=(run.id,), physics=True, why=Message(
                "few-shot.states",
                "{id}: {memory:.1f} GiB is less than the {states:.1f} GiB of parameters, gradients and optimizer state alone",
                {"id": run.id, "memory": run.memory_bytes / 2**30, "states": states / 2**30},
            )))
    return found


def _states_bytes(run: Run) -> float:
    stages = estimate(run.case, run.layout).stages
    return min(stage.memory.parameters + stage.memory.gradients + stage.memory.optimizer for stage in stages)


def contradictions(runs: Sequence[Run], base: CalibrationTable) -> list[Conflict]:
    """Runs that contradict each other: one configuration measured apart, or two that no constants can both give.

        same settings:  |log t_i - log t_j| > 3 sqrt(2) s0
        same cell:      |e_i - e_j| > 2 sqrt(h_i^2 + h_j^2)

    Symbols: t measured steps; s0 the noise of measuring twice; e log(measured / predicted) by ``base``; h the half-width of its
             interval of 0.9.
    Holds:   of several pairs the run that is in most of them is named with its opposite; symmetric in the order of runs.
    """
    return [*_measured_apart(runs), *_unlike(runs, base)]


def _measured_apart(runs: Sequence[Run]) -> list[Conflict]:
    alike: defaultdict[tuple[object, ...], list[Run]] = defaultdict(list)
    for run in runs:
        if run.step_s:
            alike[cell_key(run.row), settings_key(run.row)].append(run)
    found = []
    for members in alike.values():
        times = sorted((run.step_s or 0.0, run.id) for run in members)
        if math.log(times[-1][0] / times[0][0]) > APART:
            found.append(Conflict(rows=tuple(run.id for run in members), why=Message(
                "few-shot.twice", "{ids} have the same settings, but took {least:.3g} s and {most:.3g} s",
                {"ids": [run.id for run in members], "least": times[0][0], "most": times[-1][0]},
            )))
    return found


def _unlike(runs: Sequence[Run], base: CalibrationTable) -> list[Conflict]:
    case = predictor_of(base)
    cells: defaultdict[str, list[tuple[float, float, Run]]] = defaultdict(list)
    for run in runs:
        if run.step_s:
            known = estimate(case(run), run.layout)
            if (half := _half_width(known)) is not None:
                cells[key_of(run).values()["cell"]].append((math.log(run.step_s / known.step_s), half, run))
    found = []
    for members in cells.values():
        (low, narrow, fast), (high, wide, slow) = (choose(members, key=lambda each: (each[0], each[2].id)) for choose in (min, max))
        if high - low > UNLIKELY * math.hypot(narrow, wide):
            found.append(Conflict(rows=(fast.id, slow.id), why=Message(
                "few-shot.unlike",
                "{fast} took {below:.2f} times its prediction, {slow} {above:.2f} times: nothing that one machine, framework and "
                "precision have in common makes both",
                {"fast": fast.id, "below": math.exp(low), "slow": slow.id, "above": math.exp(high)},
            )))
    return found


def _half_width(known: Estimate) -> float | None:
    if known.interval is None:
        return None
    low, high = known.interval.step_s
    return math.log(high / low) / 2.0


def moved(runs: Sequence[Run], base: CalibrationTable, table: CalibrationTable) -> list[Moved]:
    """Constants that differ between two calibrations for the cells of some runs, what moved farthest first."""
    cells = {key_of(run).values()["cell"]: run for run in runs}
    found = []
    for cell, run in cells.items():
        prior, key = run.case.calibration.constants, key_of(run)
        before, after = (each.calibration(prior, key).constants for each in (base, table))
        for name, offsets in table.offsets.items():
            if cell in offsets.by_level.get(OWN, {}):
                one, other = float(getattr(before, name)), float(getattr(after, name))
                if one > 0.0 and abs(math.log(other / one)) >= SAID:
                    found.append(Moved(constant=name, cell=cell, before=one, after=other))
    return sorted(found, key=lambda each: (-abs(math.log(each.after / each.before)), each.constant, each.cell))


def interval_ratio(runs: Sequence[Run], table: CalibrationTable) -> float | None:
    """How wide intervals of the step are for layouts like these: geometric mean of upper over lower end; None of no run.

    Units:   ratio, 1 where nothing is uncertain.
    """
    case = predictor_of(table)
    widths = [half for run in runs if (half := _half_width(estimate(case(run), run.layout))) is not None]
    return math.exp(2.0 * sum(widths) / len(widths)) if widths else None
