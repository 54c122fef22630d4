"""Many trial values of the physical constants, evaluated at once: what a fit asks of the cost model."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from meshwright.domain.memory_reading import MemoryReading
from meshwright.estimate.degrees import Degrees, columns_of
from meshwright.estimate.evaluate import composition_of, evaluate_columns, settings_of
from meshwright.estimate.split import stack, take_columns
from meshwright.perf.arrays import Array

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.estimate.costs import Settings


FULLEST_DEVICE = MemoryReading()


class Trials(Struct, frozen=True, kw_only=True):
    """Figures of n layouts under k trial values of the constants, ``[layout, trial]``."""

    step_s: Array
    """With the closed form of the bubble."""
    shown_bytes: Array
    """Memory as the run's own counter shows it."""
    reserved_bytes: Array


def evaluate_trials(
    case: Case, layouts: Sequence[Layout], values: Mapping[str, Array], reading: MemoryReading = FULLEST_DEVICE
) -> Trials:
    """Step time and memory of every layout under every trial.

    Shapes:  n layouts, constants of k trials each -> ``[n, k]``. Constants that ``values`` does not name keep the case's value.
    Units:   s, bytes.
    Holds:   equal to ``evaluate`` with those constants up to the last bits; the bubble is the closed form.
    Source:  ``estimate.evaluate.evaluate_columns``: a trial is a column like any other.
    """
    trials = len(next(iter(values.values())))
    result = Trials(
        step_s=np.zeros((len(layouts), trials)), shown_bytes=np.zeros((len(layouts), trials)),
        reserved_bytes=np.zeros((len(layouts), trials)),
    )
    groups: defaultdict[Settings, list[int]] = defaultdict(list)
    for index, layout in enumerate(layouts):
        groups[settings_of(layout)].append(index)
    for settings, members in groups.items():
        _evaluate_group(case, settings, [layouts[index] for index in members], values, reading, trials, result, members)
    return result


def _evaluate_group(
    case: Case, settings: Settings, layouts: Sequence[Layout], values: Mapping[str, Array], reading: MemoryReading,
    trials: int, into: Trials, members: Sequence[int],
) -> None:
    count = len(layouts)
    tiled = {name: np.tile(value, count) for name, value in values.items()}
    constants = replace(case.calibration.constants, **tiled)  # type: ignore[arg-type]
    tried = replace(case, calibration=replace(case.calibration, constants=constants))
    degrees = Degrees.of({word: np.repeat(column, trials) for word, column in columns_of(layouts).items()})
    compositions = [composition_of(case, layout, every_stage=False) for layout in layouts]
    composition = take_columns(stack(compositions, len(case.model.kinds)), np.repeat(np.arange(count), trials))
    found = evaluate_columns(tried, settings, degrees, composition)
    shape = (count, trials)
    rows = (len(composition.stage), count * trials)

    def fullest(bytes_: Array) -> Array:
        return np.asarray(np.broadcast_to(bytes_, rows).max(axis=0)).reshape(shape)

    into.step_s[members] = np.broadcast_to(found.time.step_s, (count * trials,)).reshape(shape)
    shown = found.memory.shown(reading, composition, case.cluster.device.memory_bytes)
    into.shown_bytes[members] = np.broadcast_to(shown, (count * trials,)).reshape(shape)
    into.reserved_bytes[members] = fullest(found.memory.reserved_bytes)
