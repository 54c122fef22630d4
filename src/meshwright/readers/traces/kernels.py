"""Sums over kernels of a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.observed import KernelSum
from meshwright.readers.traces.names import KINDS
from meshwright.text import shortened, visible

if TYPE_CHECKING:
    from meshwright.readers.traces.columns import Device, Floats

MAX_KERNEL_SUMS = 100
LONGEST_NAME = 300
SMALL_KERNEL_US = 10.0
"""TraceLens's bound of a short kernel."""
_US = 1e-6


def kernel_sums(device: Device, names: Sequence[str]) -> tuple[KernelSum, ...]:
    """Sums by name and kind, the longest first."""
    if not len(device.start):
        return ()
    keys, index = np.unique(device.name * len(KINDS) + device.kind, return_inverse=True)
    totals, counts = np.bincount(index, weights=device.duration), np.bincount(index)
    found = []
    for each in np.argsort(-totals, kind="stable")[:MAX_KERNEL_SUMS]:
        name, kind = divmod(int(keys[each]), len(KINDS))
        found.append(KernelSum(name=shortened(visible(names[name]), LONGEST_NAME), kind=KINDS[kind], count=int(counts[each]),
                               total_s=float(totals[each]) * _US))
    return tuple(found)


def median_s(duration: Floats) -> float | None:
    """The median of durations in microseconds, in seconds; None of none."""
    return float(np.median(duration)) * _US if len(duration) else None
