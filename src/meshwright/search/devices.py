"""How many devices: the smallest count that fits, and the smallest that meets a deadline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from meshwright.estimate.overlap import overlap_for
from meshwright.search.linearity import best_step_s, fits_anywhere
from meshwright.search.space import divisors
from meshwright.units import SECONDS_PER_DAY

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features

MAX_NODES = 16384
BETWEEN = 16
"""Counts between two rungs of the ladder that are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCount:
    """A number of devices with the predicted step and days there."""

    devices: int
    nodes: int
    step_s: float
    days: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimumDevices:
    """The smallest counts; None where none up to the limit does."""

    fits: DeviceCount | None
    meets_deadline: DeviceCount | None
    tried: tuple[int, ...]


def node_ladder(limit: int) -> tuple[int, ...]:
    """Node counts that are tried: 1, 2, 3, 4, 6, 8, 12, ... up to a limit."""
    powers = [2**k for k in range(limit.bit_length())]
    return tuple(sorted({n for n in (*powers, *(3 * p // 2 for p in powers[1:])) if 1 <= n <= limit}))


def min_devices(
    case: Case, features: Features, *, tokens: float | None = None, deadline_days: float | None = None,
    limit_nodes: int = MAX_NODES, progress: Callable[[int, int], None] | None = None,
) -> MinimumDevices:
    """The smallest number of whole nodes on which a layout fits, and on which the run meets its deadline.

    Holds:   node counts 2^k and 3 2^k, then up to sixteen counts below the first good one; parts of a node. The global batch
             stays, so large counts may have no legal layout. A deadline that no rung of the ladder meets is answered by None.
    """
    per_node = case.cluster.devices_per_node
    ladder = node_ladder(limit_nodes)
    tried: list[int] = []
    fits: DeviceCount | None = None
    meets: DeviceCount | None = None
    wanted = tokens is not None and deadline_days is not None

    def in_time(count: DeviceCount) -> bool:
        return deadline_days is not None and count.days is not None and count.days <= deadline_days

    below = 0
    for place, nodes in enumerate(ladder):
        found = _count(case, features, nodes * per_node, tokens, tried)
        if progress is not None:
            progress(place + 1, len(ladder))
        if found is not None and fits is None:
            fits = _smaller(case, features, below, nodes, tokens, tried, lambda _: True) or found
        if found is not None and in_time(found):
            meets = _smaller(case, features, below, nodes, tokens, tried, in_time) or found
        if meets is not None or (fits is not None and not wanted):
            break
        below = nodes
    return MinimumDevices(fits=fits, meets_deadline=meets, tried=tuple(sorted(set(tried))))


def _count(case: Case, features: Features, devices: int, tokens: float | None, tried: list[int]) -> DeviceCount | None:
    """The best layout on so many devices, or None where none fits."""
    own = replace(case, cluster=replace(case.cluster, num_devices=devices))
    tried.append(devices)
    overlap = overlap_for(own)
    if not fits_anywhere(own, features, devices, overlap=overlap):
        return None
    step_s = best_step_s(own, features, devices, overlap=overlap)
    if step_s is None:
        return None
    days = None if tokens is None else tokens / case.batch.tokens * step_s / SECONDS_PER_DAY
    return DeviceCount(devices=devices, nodes=-(-devices // case.cluster.devices_per_node), step_s=step_s, days=days)


def _smaller(
    case: Case, features: Features, below: int, nodes: int, tokens: float | None, tried: list[int],
    good: Callable[[DeviceCount], bool],
) -> DeviceCount | None:
    """The smallest count between two rungs that is good too; under one node, parts of it."""
    per_node = case.cluster.devices_per_node
    if nodes == 1:
        counts = [part for part in divisors(per_node) if part < per_node]
    else:
        counts = [between * per_node for between in range(below + 1, nodes, max(1, (nodes - below) // BETWEEN))]
    for devices in counts:
        found = _count(case, features, devices, tokens, tried)
        if found is not None and good(found):
            return found
    return None
