"""The layouts of the grid that fit, as a list: what is run where all of them are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.estimate.overlap import overlap_for
from meshwright.search.finalists import Finalists
from meshwright.search.grid import Counts, evaluate_grid
from meshwright.search.space import make_space, parse_pins

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.search.runner import Runner


def listed(
    case: Case, features: Features, runner: Runner, pins: Mapping[str, str], most: int
) -> tuple[list[tuple[Layout, float, float]], int]:
    """Layouts of the plain grid that fit and that the framework runs, each with its step and bytes; and how many fit in all.

    Units:   seconds, bytes reserved on the fullest device.
    Holds:   fastest first, of all that fit the first ``most``, of these what the framework does not refuse.
    """
    overlap, counts = overlap_for(case, words=features.overlaps), Counts()
    space = make_space(case, features, case.cluster.num_devices, parse_pins(pins))
    kept = Finalists(
        space=space, overlap=overlap, objective="step-time", capacity_bytes=case.capacity_bytes, keep=most, near_wanted=False,
        front_wanted=False,
    )
    for rows in evaluate_grid(space, counts, overlap=overlap):
        kept.add(rows)
    found = []
    for each in kept.best:
        layout = replace(each.layout, overlap=runner.overlap(case, each.layout))
        if not runner.check(case, layout):
            found.append((layout, each.step_s, each.reserved_bytes))
    return found, counts.fitting
