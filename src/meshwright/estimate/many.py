"""Many layouts of any sort, evaluated as columns: the path of refinements, whose layouts are not a grid."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from meshwright.estimate.degrees import Degrees, columns_of
from meshwright.estimate.evaluate import composition_of, evaluate_columns, settings_of
from meshwright.estimate.split import stack
from meshwright.perf.arrays import Array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.estimate.costs import Settings


def evaluate_many(case: Case, layouts: Sequence[Layout]) -> tuple[Array, Array]:
    """Step time and reserved bytes of every layout, in the order given.

    Shapes:  n layouts -> two columns of n.
    Units:   s, bytes.
    Holds:   equal to ``evaluate`` of each up to the last bits.
    Source:  ``estimate.evaluate.evaluate_columns``.
    """
    groups: defaultdict[Settings, list[int]] = defaultdict(list)
    for index, layout in enumerate(layouts):
        groups[settings_of(layout)].append(index)
    step_s, reserved = np.zeros(len(layouts)), np.zeros(len(layouts))
    for settings, members in groups.items():
        times, bytes_ = _evaluate_group(case, settings, [layouts[index] for index in members])
        step_s[members], reserved[members] = times, bytes_
    return step_s, reserved


def _evaluate_group(case: Case, settings: Settings, layouts: Sequence[Layout]) -> tuple[Array, Array]:
    keys = [_pipeline_key(layout) for layout in layouts]
    first = dict(zip(reversed(keys), reversed(layouts), strict=True))
    compositions = {key: composition_of(case, layout, every_stage=False) for key, layout in first.items()}
    composition = stack([compositions[key] for key in keys], len(case.model.kinds))
    found = evaluate_columns(case, settings, Degrees.of(columns_of(layouts)), composition)
    return found.time.step_s, np.asarray(found.memory.reserved_bytes.max(axis=0))


def _pipeline_key(layout: Layout) -> tuple[object, ...]:
    """What the composition of a layout depends on."""
    return (layout.pipeline_parallel, layout.virtual_stages, layout.stage_layers, layout.recompute, layout.schedule)
