"""Counters of devices, judged: faults, devices that are left out, and devices that mostly wait.

Utilisation is the share of time in which any kernel runs, one that waits for another rank too: it finds stalls, never efficiency.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from meshwright.diagnose.finding import Finding, seen_at
from meshwright.domain.observed import Counters, DeviceSeries, Place

BUSY = 0.90
"""Share of time from which a device counts as always busy."""
LEFT_OUT = 0.5
"""Share of the median utilisation below which a device does less than the rest."""
WAITING_POWER = 0.5
"""Share of its limit below which a device that is always busy mostly waits."""
ENOUGH = 3
"""Devices, or samples, from which a median says something."""

Device = tuple[str, DeviceSeries]
"""A file, and a device in it."""


def judge_counters(files: Sequence[Counters]) -> tuple[Finding, ...]:
    """What the counters of all devices together say."""
    devices = [(counters.file, each) for counters in files for each in counters.devices]
    return tuple(found for judge in (_faults, _left_out, _idle, _waiting) for found in judge(devices))


def _name(series: DeviceSeries) -> str:
    return f"{series.host} {series.device}".strip()


def _values(devices: Sequence[Device], figure: str) -> list[float]:
    return [each.means[figure] for _, each in devices if figure in each.means]


def _faults(devices: Sequence[Device]) -> Iterator[Finding]:
    for device in devices:
        if xid := device[1].most.get("xid", 0.0):
            yield seen_at(Place(file=device[0]), "warning", "counters.xid", "device {device} reports the driver's error Xid {xid}",
                          device=_name(device[1]), xid=int(xid))


def _left_out(devices: Sequence[Device]) -> Iterator[Finding]:
    """Devices that do much less than the others."""
    rates = _values(devices, "utilization_ratio")
    if len(rates) < ENOUGH:
        return
    usual = median(rates)
    for device in devices:
        rate = device[1].means.get("utilization_ratio")
        if rate is not None and rate < LEFT_OUT * usual:
            yield seen_at(Place(file=device[0]), "warning", "counters.left_out",
                          "device {device} is busy {rate:.0%} of the time where the others are {usual:.0%}",
                          device=_name(device[1]), rate=rate, usual=usual)


def _idle(devices: Sequence[Device]) -> Iterator[Finding]:
    """Devices in whose samples often no kernel runs."""
    rates = _values(devices, "utilization_ratio")
    if rates and (usual := median(rates)) < BUSY:
        yield seen_at(Place(file=devices[0][0]), "warning", "counters.idle",
                      "devices run kernels in {rate:.0%} of the time that was sampled, and wait in the rest of it",
                      remedy="device.idle", rate=usual)


def _waiting(devices: Sequence[Device]) -> Iterator[Finding]:
    """All devices busy and none near its limit: kernels that wait for other ranks look like work."""
    known = [(each.means["utilization_ratio"], each.means["power_w"] / each.means["power_limit_w"]) for _, each in devices
             if {"utilization_ratio", "power_w", "power_limit_w"} <= set(each.means) and each.means["power_limit_w"] > 0]
    if known and all(busy >= BUSY and power < WAITING_POWER for busy, power in known):
        yield seen_at(Place(file=devices[0][0]), "advice", "counters.waiting",
                      "devices are busy all the time at {power:.0%} of their power: they may mostly wait",
                      power=median(power for _, power in known))
