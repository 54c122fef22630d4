"""The layout of a grid that demands least memory, and the corner of the grid where it stands."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from meshwright.estimate.degrees import Degrees
from meshwright.estimate.memory import held_bytes
from meshwright.estimate.single import estimate
from meshwright.estimate.split import compose
from meshwright.estimate.stages import stage_parameters
from meshwright.perf.arrays import array
from meshwright.perf.states import Shards, training_states
from meshwright.search.finalists import Finalists
from meshwright.search.grid import Counts, evaluate_grid
from meshwright.search.grid_bounds import ROUNDING
from meshwright.search.space import TREATMENTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Overlap
    from meshwright.search.finalists import Candidate
    from meshwright.search.runner import Runner
    from meshwright.search.space import Space

ASKED = 240
"""Layouts that the framework is asked about: it may refuse the first of them."""


def corner(space: Space) -> Space:
    """The part of a grid that demands least: micro-batch 1, one chunk, most recompute, as far as these are not pinned.

    Holds:   a larger micro-batch, more chunks or less recompute never need less memory.
    """
    able = [name for name in reversed(TREATMENTS) if name in space.treatments and name in space.features.recompute]
    return structs.replace(
        space, microbatches=space.microbatches[:1], chunks=space.chunks[:1], treatments=tuple(able[:1]) or space.treatments
    )


def least_states_bytes(case: Case) -> float:
    """What every layout of a case reserves at least on its fullest device: the states of the model, each once over all devices.

    Units:   bytes.
    Holds:   optimizer states on the devices; no layout keeps less than a share of everything.
    Source:  ``perf.states``, ``estimate.memory``, whose terms these are, with every state split over all devices.
    """
    devices = array(case.cluster.num_devices)
    whole = stage_parameters(case, compose(case.model, ((case.model.num_layers,),)), Degrees.of({}))
    shards = Shards(optimizer=devices, gradient=devices, parameter=devices, expert_data_parallel=devices)
    states = training_states(whole.dense, whole.experts, array(0.0), shards, case)
    return float(held_bytes(case, states.total_bytes).sum()) * ROUNDING


def least_demanding(spaces: Sequence[Space], overlap: Overlap, runner: Runner) -> Estimate | None:
    """The least demanding layout of some grids that the framework runs; None where it refuses all that it was asked about.

    Where no layout of the corners is legal, or the framework refuses those, the whole grids are looked through.
    """
    for grids in ([corner(space) for space in spaces], spaces):
        for each in sorted((each for grid in grids for each in _leanest(grid, overlap)), key=lambda each: each.reserved_bytes):
            case = spaces[0].case
            layout = replace(each.layout, overlap=runner.overlap(case, each.layout))
            if not runner.check(case, layout):
                return estimate(case, layout)
    return None


def _leanest(space: Space, overlap: Overlap) -> list[Candidate]:
    """The layouts of a grid that demand least memory, least first."""
    pool = Finalists(
        space=space, overlap=overlap, objective="memory", capacity_bytes=math.inf, keep=ASKED, near_wanted=False, front_wanted=False
    )
    for rows in evaluate_grid(space, Counts(), overlap=overlap, bound=False, bar=pool):
        pool.add(rows)
    return pool.best
