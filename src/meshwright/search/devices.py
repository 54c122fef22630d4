"""How many devices: the smallest count that fits, and the smallest that meets a deadline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from meshwright.plan.overlap import overlap_for
from meshwright.search.linearity import best_step_s, fits_anywhere
from meshwright.units import SECONDS_PER_DAY

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features

MAX_NODES = 16384


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
) -> MinimumDevices:  # fmt: skip
    """The smallest number of whole nodes on which a layout fits, and on which the run meets its deadline.

    Holds:   node counts 2^k and 3 2^k; the global batch stays, so large counts may have no legal layout. A deadline that no rung
             of the ladder meets is answered by None.
    """
    per_node = case.cluster.devices_per_node
    fits: DeviceCount | None = None
    meets: DeviceCount | None = None
    tried: list[int] = []
    ladder = node_ladder(limit_nodes)
    wanted = tokens is not None and deadline_days is not None
    for place, nodes in enumerate(ladder):
        devices = nodes * per_node
        own = replace(case, cluster=replace(case.cluster, num_devices=devices))
        tried.append(devices)
        possible = fits_anywhere(own, features, devices, overlap=overlap_for(own))
        step_s = best_step_s(own, features, devices, overlap=overlap_for(own)) if possible else None
        if progress is not None:
            progress(place + 1, len(ladder))
        if step_s is None:
            if fits is not None and devices > case.batch.tokens:
                break
            continue
        days = None if tokens is None else tokens / case.batch.tokens * step_s / SECONDS_PER_DAY
        found = DeviceCount(devices=devices, nodes=nodes, step_s=step_s, days=days)
        fits = fits or found
        if wanted and days is not None and deadline_days is not None and days <= deadline_days:
            meets = found
        if meets is not None or not wanted:
            break
    return MinimumDevices(fits=fits, meets_deadline=meets, tried=tuple(tried))
