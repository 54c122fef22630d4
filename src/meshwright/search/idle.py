"""Nodes that are better left idle: where the number of nodes does not divide the batch, fewer of them may be faster."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from meshwright.estimate.certainty import expected_s
from meshwright.estimate.overlap import overlap_for
from meshwright.search.finalists import grid_best
from meshwright.search.sizes import on, sizes

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.search.space import Pins

FEWEST = 7 / 8
"""Of the nodes that are there, at least so many are used."""
TRIED = 4
"""Numbers of devices that are looked at: those that leave least for degrees other than data parallelism."""


def left_over(case: Case, devices: int) -> int:
    """What of a number of devices cannot be data parallelism, because it does not divide the global batch: 1 is best.

    >>> 800 // gcd(800, 1024)
    25
    """
    rest, batch = devices, case.batch.global_batch_sequences
    while (common := gcd(rest, batch)) > 1:
        rest //= common
    return rest


def idle_nodes(case: Case, features: Features, pins: Pins) -> int:
    """How many whole nodes are better left idle, by the plain grid; 0 where all are best used, or nothing fits on fewer.

    Holds:   nothing is searched where all devices could be data parallelism.
    """
    per_node, total = case.cluster.devices_per_node, case.cluster.num_devices
    own = left_over(case, total)
    if own == 1 or total % per_node:
        return 0
    counts = [
        each for each in sizes(case, features, case.cluster.num_nodes)
        if FEWEST * total <= each < total and each % per_node == 0 and left_over(case, each) < own
    ]
    best = {total: _expected_s(case, features, pins)}
    for devices in sorted(counts, key=lambda each: (left_over(case, each), -each))[:TRIED]:
        best[devices] = _expected_s(on(case, devices), features, pins)
    fastest = min(best, key=lambda devices: (best[devices], devices))
    return (total - fastest) // per_node if np.isfinite(best[fastest]) else 0


def _expected_s(case: Case, features: Features, pins: Pins) -> float:
    """The expected step of the best of the grid; infinite where nothing fits."""
    found = grid_best(case, features, pins, overlap=overlap_for(case))
    if found is None:
        return float("inf")
    return float(expected_s(case, np.asarray(found.step_s), np.asarray(found.reserved_bytes)))
