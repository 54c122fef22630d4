"""Where a device's time went: unions of what ran on it, split over any window, and why it idled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from meshwright.domain.observed import RankSplit
from meshwright.readers.traces.intervals import Cover, Floats, together, union
from meshwright.readers.traces.names import COMMUNICATION, COMPUTE, MEMCPY, MEMSET

if TYPE_CHECKING:
    from meshwright.readers.traces.columns import Device

KERNEL_GAP_US = 30.0
"""Gap between kernels that were both launched in time which is the device's own: HTA's ``consecutive_kernel_delay``."""
LAUNCH_US = 100.0
"""Longest way of a launch to an idle device; what takes longer waits for something else."""
_US = 1e-6


@dataclass(frozen=True, eq=False)
class Timeline:
    """What ran on one device, in microseconds."""

    compute: Cover
    setting: Cover
    """Computing or setting memory."""
    communication: Cover
    working: Cover
    """Computing or communicating."""
    busy: Cover
    """Anything."""
    recognised: bool = True
    """Whether what communicates was told from what computes."""
    file: str = ""
    rank: int | None = None
    origin: float = 0.0
    """When the file's clock begins."""

    def split(self, start: float, end: float, window: str, step: int | None = None) -> RankSplit:
        """The parts of a window; they add up to it."""
        window_s = max(0.0, end - start) * _US
        covers = (self.compute, self.setting, self.working, self.busy)
        compute, setting, working, busy = (float(each.within(start, end)) * _US for each in covers)
        return RankSplit(
            file=self.file, rank=self.rank, step=step, window=window, window_s=window_s, compute_s=compute,
            communication_s=float(self.communication.within(start, end)) * _US if self.recognised else None,
            exposed_communication_s=max(0.0, working - compute) if self.recognised else None,
            exposed_copies_s=max(0.0, busy - working), memory_sets_s=max(0.0, setting - compute), idle_s=max(0.0, window_s - busy),
            start_s=(start - self.origin) * _US,
        )

    def exposed(self, start: Floats, end: Floats) -> Floats:
        """Of each interval, what runs beside no computing."""
        return np.maximum(0.0, (end - start) - self.compute.within(start, end))


def timeline(device: Device, recognised: bool = True, *, file: str = "", rank: int | None = None, origin: float = 0.0) -> Timeline:
    """Unions of a device's rows by kind."""
    def of(*kinds: int) -> Cover:
        rows = np.isin(device.kind, kinds)
        return union(device.start[rows], device.end[rows])

    compute, communication, sets = of(COMPUTE), of(COMMUNICATION), of(MEMSET)
    working = together((compute, communication))
    busy = together((working, sets, of(MEMCPY)))
    return Timeline(compute, together((compute, sets)), communication, working, busy, recognised, file, rank, origin)


def idle_causes(device: Device, busy: Cover, launched: Floats, host: Mapping[str, Cover]) -> dict[str, float]:
    """Why the device idled between its first and its last event -> seconds; in sum the idle time.

    ``device``: rows in order of start; ``launched``: when each was, not a number where that is not known; ``host``: what the
    host did, by class.

    A gap ends with a row. Where that was launched after the gap began, the host was late: for the data loader (``data``) as far as
    that overlaps, after a synchronising call that was waiting when the gap began (``sync``), otherwise by itself (``host``); from
    the launch on it is the launch's own way to the device (``launch``). Where it was launched in time, the gap is the device's own
    (``kernel``). What is longer than either can be, or ends with what has no launch, waits for something unknown (``other``).
    """
    start, end = busy.gaps()
    launch = _earliest(launched, device.start, end)
    known = np.isfinite(launch)
    late = known & (launch > start)
    until = np.where(late, np.minimum(launch, end), start)
    nothing = union(np.zeros(0), np.zeros(0))
    data = np.where(late, host.get("dataloader", nothing).within(start, until), 0.0)
    rest, way = until - start - data, end - until
    waits = late & _inside(host.get("sync", nothing), start)
    own = known & (way <= np.where(late, LAUNCH_US, KERNEL_GAP_US))
    causes = {
        "data": data, "host": np.where(waits, 0.0, rest), "launch": np.where(late & own, way, 0.0),
        "sync": np.where(waits, rest, 0.0), "kernel": np.where(~late & own, way, 0.0), "other": np.where(own, 0.0, way),
    }
    return {name: float(each.sum()) * _US for name, each in causes.items()}


def _earliest(launched: Floats, start: Floats, at: Floats) -> Floats:
    """The earliest launch among rows that begin at each time; not a number where none is known."""
    first, last = np.searchsorted(start, at, side="left"), np.searchsorted(start, at, side="right")
    if not len(at):
        return np.zeros(0)
    known = np.append(np.where(np.isfinite(launched), launched, np.inf), np.inf)
    bounds = np.stack((first, np.maximum(last, first + 1)), axis=1).ravel()
    found = np.minimum.reduceat(known, np.minimum(bounds, len(known) - 1))[::2]
    return np.where(np.isfinite(found), found, np.nan)


def _inside(cover: Cover, at: Floats) -> NDArray[np.bool_]:
    """Whether each time lies in the cover."""
    index = np.searchsorted(cover.starts, at, side="right") - 1
    if not len(cover.starts):
        return np.zeros(len(at), dtype=bool)
    return (index >= 0) & (at <= cover.ends[index])
