"""Sums of samples by device, in memory that does not grow with their number; and the units that counters come in."""

from __future__ import annotations

from dataclasses import dataclass, field

from meshwright.domain.observed import DeviceSeries
from meshwright.readers.loose import amount

MAX_DEVICES = 65_536

UNITS = {
    "%": 0.01, "w": 1.0, "mw": 1e-3, "mhz": 1e6, "c": 1.0, "b": 1.0, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "": 1.0,
}
"""What one of a unit is in SI or as a ratio."""

REASONS = ((0x4, "software power cap"), (0x8, "hardware slowdown"), (0x20, "software thermal"), (0x40, "hardware thermal"),
           (0x80, "power brake"))
"""Bits of ``clocks_event_reasons.active`` (NVML) that slow a device down."""


def reasons_of(bits: int) -> tuple[str, ...]:
    """Why clocks are held down."""
    return tuple(name for bit, name in REASONS if bits & bit)


@dataclass(slots=True)
class Series:
    """What is kept of one device's samples."""

    device: str
    host: str = ""
    name: str = ""
    samples: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    least: dict[str, float] = field(default_factory=dict)
    most: dict[str, float] = field(default_factory=dict)
    throttled: dict[str, int] = field(default_factory=dict)
    first_s: float | None = None
    last_s: float | None = None
    clocked: int = 0

    def add(self, figures: dict[str, float], reasons: tuple[str, ...] = (), at_s: float | None = None) -> None:
        """One sample; what no device can show is left out of it."""
        self.samples += 1
        for name, value in figures.items():
            if amount(value) is None or (name.endswith("_ratio") and value > 1):
                continue
            self.sums[name] = self.sums.get(name, 0.0) + value
            self.counts[name] = self.counts.get(name, 0) + 1
            self.least[name] = min(value, self.least.get(name, value))
            self.most[name] = max(value, self.most.get(name, value))
        for reason in reasons:
            self.throttled[reason] = self.throttled.get(reason, 0) + 1
        if at_s is not None:
            self.first_s = at_s if self.first_s is None else min(self.first_s, at_s)
            self.last_s = at_s if self.last_s is None else max(self.last_s, at_s)
            self.clocked += 1

    def series(self) -> DeviceSeries:
        """The samples' means and bounds; the period where they carry their time."""
        span = self.last_s - self.first_s if self.first_s is not None and self.last_s is not None else 0.0
        return DeviceSeries(
            device=self.device, host=self.host, name=self.name, samples=self.samples,
            period_s=span / (self.clocked - 1) if self.clocked > 1 and span > 0 else None,
            means={name: total / self.counts[name] for name, total in self.sums.items()},
            least=self.least, most=self.most, throttled=self.throttled)


@dataclass(slots=True)
class AllSeries:
    """Every device of a file."""

    found: dict[tuple[str, str], Series] = field(default_factory=dict)

    def of(self, device: str, host: str = "") -> Series | None:
        """The device's series; None where there are more devices than any file has."""
        if (host, device) not in self.found:
            if len(self.found) >= MAX_DEVICES:
                return None
            self.found[host, device] = Series(device, host)
        return self.found[host, device]

    def all(self) -> tuple[DeviceSeries, ...]:
        """Those that have a sample, in the order in which they came."""
        return tuple(each.series() for each in self.found.values() if each.samples)
