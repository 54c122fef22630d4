"""Many layouts of any sort, evaluated as columns: the path of refinements, whose layouts are not a grid."""

from __future__ import annotations

from collections import defaultdict
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
from msgspec import structs

from meshwright.domain.kernels import with_kernels
from meshwright.estimate.combine import pipeline_time, state_costs, step_time
from meshwright.estimate.costs import work_keys
from meshwright.estimate.degrees import Degrees, columns_of
from meshwright.estimate.evaluate import composition_of, settings_of
from meshwright.estimate.known_work import KnownWork
from meshwright.estimate.memory import activation_memory, dynamic_bytes, static_bytes, step_bytes
from meshwright.estimate.split import stack, take_columns, treatments_of
from meshwright.estimate.stages import stage_costs, stage_inputs, stage_parameters, together, under
from meshwright.estimate.tables import Table
from meshwright.perf.arrays import Array, take

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.estimate.combine import StepTime
    from meshwright.estimate.costs import Settings
    from meshwright.estimate.split import Composition
    from meshwright.estimate.stages import StageInputs

def evaluate_many(case: Case, layouts: Sequence[Layout], known: KnownWork | None = None) -> tuple[Array, Array]:
    """Step time and reserved bytes of every layout, in the order given: ``price_many`` without the mean.

    Shapes:  n layouts -> two columns of n.
    Units:   s, bytes.
    Source:  ``price_many``.
    """
    step_s, _, reserved = price_many(case, layouts, known)
    return step_s, reserved


def price_many(case: Case, layouts: Sequence[Layout], known: KnownWork | None = None) -> tuple[Array, Array, Array]:
    """Step time, its mean over the times that runs take, and reserved bytes of every layout, in the order given.

    ``known``: what micro-batches of the case cost, as far as that was asked before; it gets to know these.

    Shapes:  n layouts -> three columns of n.
    Units:   s, s, bytes.
    Holds:   equal to ``evaluate`` of each up to the last bits.
    Source:  ``estimate.evaluate.evaluate_columns``, whose functions these are.
    """
    known = known or KnownWork()
    groups: defaultdict[Settings, defaultdict[Settings, list[int]]] = defaultdict(lambda: defaultdict(list))
    for index, layout in enumerate(layouts):
        settings = structs.replace(settings_of(layout), treatments=())
        groups[structs.replace(settings, schedule="")][settings].append(index)
    step_s, mean_s, reserved = (np.zeros(len(layouts)) for _ in range(3))
    for alike, schedules in groups.items():
        own = with_kernels(case, compiled=alike.compiled, attention=alike.attention)
        layers = _Layers(own, alike, [layouts[index] for members in schedules.values() for index in members], known)
        begin = 0
        for settings, members in schedules.items():
            chosen = [layouts[index] for index in members]
            inputs = layers.inputs(slice(begin, begin + len(members)))
            time, bytes_ = _evaluate_group(own, settings, chosen, inputs)
            step_s[members], mean_s[members], reserved[members] = time.step_s, time.mean_s, bytes_
            begin += len(members)
    return step_s, mean_s, reserved


def _evaluate_group(case: Case, settings: Settings, layouts: Sequence[Layout], inputs: StageInputs) -> tuple[StepTime, Array]:
    """Layouts that differ in degrees, stages and recomputation."""
    degrees, composition = Degrees.of(columns_of(layouts)), _compositions(case, layouts)
    stages = stage_costs(inputs, composition)
    parameters = stage_parameters(case, composition, degrees)
    state = state_costs(case, degrees, parameters, composition, offload=settings.offload)
    pipeline = pipeline_time(case, settings, composition, stages, degrees, hop_s=inputs.hop_s)
    activation = activation_memory(settings, composition, stages, degrees, inputs.kinds)
    reserved = (static_bytes(case, state) + np.maximum(dynamic_bytes(case, activation), step_bytes(case, state))).max(axis=0)
    time = step_time(case, settings, pipeline, state.times, degrees, reserved_bytes=reserved)
    return time, reserved


class _Layers:
    """Layers of layouts, computed once for each distinct key, under every treatment that a layout has; no schedule matters here."""

    def __init__(self, case: Case, settings: Settings, layouts: Sequence[Layout], known: KnownWork) -> None:
        degrees = Degrees.of(columns_of(layouts))
        place: dict[tuple[float, ...], int] = {}
        key = np.array([place.setdefault(each, len(place)) for each in work_keys(case, degrees)])
        _, first = np.unique(key, return_index=True)
        self._own = [treatments_of(layout.recompute) for layout in layouts]
        every = dict.fromkeys(each for several in self._own for each in several)
        found = stage_inputs(known.costs(case, structs.replace(settings, treatments=tuple(every)), take(degrees, first)))
        self._begin = {treatment: number * len(first) for number, treatment in enumerate(every)}
        self._key = key
        self._table = Table.joined([Table(under(found, number), len(first)) for number in range(len(every))])

    def inputs(self, chosen: slice) -> StageInputs:
        """What stages of some of the layouts are made of, as columns."""
        own, key = self._own[chosen], self._key[chosen]
        slots = zip_longest(*own, fillvalue=own[0][0])
        return together([self._table.take(np.array([self._begin[each] for each in slot]) + key) for slot in slots])


def _compositions(case: Case, layouts: Sequence[Layout]) -> Composition:
    """Stages of layouts as columns; layers of a treatment that a layout does not have are none."""
    keys = [_pipeline_key(layout) for layout in layouts]
    first = dict(zip(keys, layouts, strict=True))
    found = {key: composition_of(case, layout, every_stage=False) for key, layout in first.items()}
    once = {id(each): each for each in found.values()}  # what is composed alike is one object
    place = {own: number for number, own in enumerate(once)}
    slots = max(len(each.counts) for each in once.values())
    stacked = stack([_padded(each, slots) for each in once.values()], len(case.model.kinds))
    return take_columns(stacked, np.array([place[id(found[key])] for key in keys]))


def _padded(composition: Composition, slots: int) -> Composition:
    none = (None,) * (slots - len(composition.counts))
    uneven = composition.uneven
    if uneven is not None:
        uneven = structs.replace(uneven, layers=(*uneven.layers, *none))
    return structs.replace(composition, counts=(*composition.counts, *none), uneven=uneven)


def _pipeline_key(layout: Layout) -> tuple[object, ...]:
    """What the composition of a layout depends on."""
    return (layout.pipeline_parallel, layout.virtual_stages, layout.stage_layers, layout.recompute, layout.schedule)
