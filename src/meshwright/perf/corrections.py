"""What was measured over what the formulas say of it: the factor by which a cluster's own profile moves them.

Where nothing was measured every factor is 1, and no formula asks for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.perf.arrays import Array, Number, array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.cluster import Cluster
    from meshwright.domain.measured import Direction, Measured, Operation, TimedCollective, TimedCore, TimedProduct

SAME_SIZE = 1e-9
"""Difference of logs below which two group sizes are as near."""
BLUR = 0.1
"""Distance in doublings below which two shapes count as the same."""


def collective_ratio(operation: Operation, ranks: Number, domains: Number, each_bytes: Number, cluster: Cluster) -> Array:
    """Measured over formula of a collective of ``each_bytes``, by the tier that its group needs.

        network where the group spans domains, else scale-up;   ``timed_ratio`` of that tier

    Shapes:  ranks, domains and each_bytes broadcast.
    Units:   bytes -> ratio.
    Holds:   1 where the cluster or the tier was not measured.
    Source:  none, bookkeeping.
    """
    measured = cluster.measured
    if measured is None:
        return array(1.0)
    inside = timed_ratio(measured.scale_up, operation, ranks, each_bytes)
    return np.where(array(domains) > 1.0, timed_ratio(measured.network, operation, ranks, each_bytes), inside)


def timed_ratio(timed: Sequence[TimedCollective], operation: Operation, ranks: Number, each_bytes: Number) -> Array:
    """Measured over formula at the nearest measured group size, interpolated between measured payloads.

        log c piecewise linear in log B, constant beyond the ends;   group size nearest in log n, the smaller where two are

    Symbols: B ``each_bytes`` of one collective, the whole tensor; n ``ranks``.
    Shapes:  ranks and each_bytes broadcast.
    Units:   bytes -> ratio.
    Holds:   c > 0; 1 where this operation was not measured. Several measurements of one payload count as their geometric mean.
    Source:  a library changes its algorithm with the payload, so that no line fits all of it (docs/sources.md#micro-benchmarks).
    """
    curves = _curves([each for each in timed if each.operation == operation])
    log_bytes, log_ranks = np.log(np.maximum(1.0, array(each_bytes))), np.log(np.maximum(1.0, array(ranks)))
    if not curves:
        return array(1.0)
    found, nearest = array(0.0), array(np.inf)
    for size, (places, logs) in sorted(curves.items()):
        away = np.abs(log_ranks - np.log(size))
        found = np.where(away < nearest - SAME_SIZE, np.interp(log_bytes, places, logs), found)
        nearest = np.minimum(away, nearest)
    return np.asarray(np.exp(found))


def _curves(timed: Sequence[TimedCollective]) -> dict[int, tuple[Array, Array]]:
    """Group size -> log payloads, rising, and the log ratios there."""
    points: dict[int, dict[int, list[float]]] = {}
    for each in timed:
        points.setdefault(each.ranks, {}).setdefault(max(1, each.payload_bytes), []).append(float(np.log(each.ratio)))
    return {
        ranks: (np.log(np.array(sorted(found))), np.array([sum(found[size]) / len(found[size]) for size in sorted(found)]))
        for ranks, found in points.items()
    }


def product_ratio(
    measured: Measured | None, rows: Number, columns: Number, inner: Number, *, dtype: str, direction: Direction
) -> Array:
    """Measured over formula of a matrix product whose forward is (rows, inner) x (inner, columns).

    Shapes:  rows, columns and inner broadcast.
    Units:   elements -> ratio.
    Holds:   1 where no product of this data type and direction was measured, or where correcting does not help.
    Source:  ``near_ratio``.
    """
    near = [each for each in (measured.products if measured else ()) if (each.dtype, each.direction) == (dtype, direction)]
    return near_ratio(near, rows, columns, inner)


def core_ratios(
    measured: Measured | None, groups: Number, tokens: Number, head_dim: float, *, dtype: str
) -> tuple[Array, Array]:
    """Measured over formula of a causal attention core, forward and backward; ``groups``: heads of all sequences.

    Shapes:  groups and tokens broadcast; a tuple of two arrays comes back.
    Units:   heads, tokens, elements -> ratio.
    Holds:   1 where no core of this data type was measured, or where correcting does not help.
    Source:  ``near_ratio``.
    """
    cores = [each for each in (measured.cores if measured else ()) if each.dtype == dtype]
    ahead, behind = ([each for each in cores if each.direction == direction] for direction in ("forward", "backward"))
    return near_ratio(ahead, groups, tokens, head_dim), near_ratio(behind, groups, tokens, head_dim)


def near_ratio(timed: Sequence[TimedProduct] | Sequence[TimedCore], *sides: Number) -> Array:
    """Measured over formula of what was timed with sides near these; 1 where nothing was.

        log c = sum w_i log c_i / sum w_i;   w_i = 1 / (d_i^2 + blur^2)^2

    Symbols: d_i distance in doublings, sqrt of the sum of squares over the sides of the shape.
    Shapes:  the sides broadcast.
    Units:   elements -> ratio.
    Holds:   between the smallest and the largest measured ratio; far from all shapes their mean.
    Source:  inverse-distance weights, Shepard 1968; used only where they make samples better that they have not seen.
    """
    if not timed:
        return array(1.0)
    place = [np.log2(np.maximum(1.0, array(side))) for side in sides]
    total, weights = array(0.0), array(0.0)
    for each in timed:
        squared = array(BLUR**2)
        for here, there in zip(place, each.shape, strict=True):
            squared = squared + np.square(here - np.log2(there))
        weight = 1.0 / np.square(squared)
        total, weights = total + weight * np.log(each.ratio), weights + weight
    return np.asarray(np.exp(total / weights))
