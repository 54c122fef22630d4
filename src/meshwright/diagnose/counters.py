"""Counters of devices, judged: how busy and how full they were, what held them down, and which differ from the rest.

Utilisation is the share of time in which any kernel runs, one that waits for another rank too: it finds stalls, never efficiency.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from meshwright.diagnose.judged import Judged, Severity
from meshwright.domain.observed import Counters, DeviceSeries, Place
from meshwright.errors import Message

BUSY, FULL = 0.90, 0.80
"""Shares of time and of memory that the tuning guides ask for."""
HELD = 0.05
"""Share of samples from which a reason counts (a judgement, not a measurement)."""
SLOW_CLOCK = 0.95
"""Share of the median clock below which a device is slow (Ascend's advisor: a drop of 5 %)."""
LEFT_OUT = 0.5
"""Share of the median utilisation below which a device does less than the rest."""
WAITING_POWER = 0.5
"""Share of its limit below which a device that is always busy mostly waits."""
SEVERITIES: dict[str, Severity] = {
    "hardware slowdown": "high", "hardware thermal": "high", "power brake": "high", "software thermal": "medium",
    "thermal": "medium", "software power cap": "low",
}
"""Reason -> severity: a cap on power is normal where a device is at its limit, heat and hardware are not."""
ENOUGH = 3
"""Devices, or samples, from which a median says something."""

Device = tuple[str, DeviceSeries]
"""A file, and a device in it."""


def judge_counters(files: Sequence[Counters]) -> tuple[Judged, ...]:
    """What the counters of all devices together say."""
    devices = [(counters.file, each) for counters in files for each in counters.devices]
    return tuple(found for judge in (_faults, _held, _slow, _idle, _waiting, _guides) for found in judge(devices))


def _judged(device: Device, severity: Severity, id: str, template: str, change: str = "", **values: object) -> Judged:
    return Judged(message=Message(id, template, {"device": _name(device[1])} | values), severity=severity,
                  place=Place(file=device[0]), change=change)


def _name(series: DeviceSeries) -> str:
    return f"{series.host} {series.device}".strip()


def _values(devices: Sequence[Device], figure: str) -> list[float]:
    return [each.means[figure] for _, each in devices if figure in each.means]


def _faults(devices: Sequence[Device]) -> Iterator[Judged]:
    for device in devices:
        if xid := device[1].most.get("xid", 0.0):
            yield _judged(device, "high", "counters.xid", "device {device} reports the driver's error Xid {xid}",
                          "look it up and drain the node", xid=int(xid))


def _held(devices: Sequence[Device]) -> Iterator[Judged]:
    for device in devices:
        series = device[1]
        for reason, times in series.throttled.items():
            if times >= HELD * series.samples:
                yield _judged(device, SEVERITIES.get(reason, "medium"), "counters.held_down",
                              "device {device} is held down by {reason} in {share:.0%} of its samples", "look at cooling and power",
                              reason=reason, share=times / series.samples)


def _slow(devices: Sequence[Device]) -> Iterator[Judged]:
    """Devices whose clock lies below that of the others while they work."""
    working = [each for each in devices if each[1].means.get("utilization_ratio", 1.0) >= LEFT_OUT and "clock_hz" in each[1].means]
    if len(working) < ENOUGH:
        return
    usual = median(_values(working, "clock_hz"))
    for device in working:
        clock = device[1].means["clock_hz"]
        if clock < SLOW_CLOCK * usual:
            yield _judged(device, "medium", "counters.slow_clock",
                          "device {device} runs at {clock:.0f} MHz where the others run at {usual:.0f}",
                          "look at its cooling, power and application clocks, or leave it out", clock=clock / 1e6,
                          usual=usual / 1e6)


def _idle(devices: Sequence[Device]) -> Iterator[Judged]:
    """Devices that do much less than the others."""
    rates = _values(devices, "utilization_ratio")
    if len(rates) < ENOUGH:
        return
    usual = median(rates)
    for device in devices:
        rate = device[1].means.get("utilization_ratio")
        if rate is not None and rate < LEFT_OUT * usual:
            yield _judged(device, "medium", "counters.left_out",
                          "device {device} is busy {rate:.0%} of the time where the others are {usual:.0%}", rate=rate, usual=usual)


def _waiting(devices: Sequence[Device]) -> Iterator[Judged]:
    """All devices busy and none near its limit: kernels that wait for other ranks look like work."""
    known = [(each.means["utilization_ratio"], each.means["power_w"] / each.means["power_limit_w"]) for _, each in devices
             if {"utilization_ratio", "power_w", "power_limit_w"} <= set(each.means) and each.means["power_limit_w"] > 0]
    if known and all(busy >= BUSY and power < WAITING_POWER for busy, power in known):
        yield Judged(message=Message("counters.waiting",
                                     "devices are busy all the time at {power:.0%} of their power: they may mostly wait",
                                     {"power": median(power for _, power in known)}), severity="low",
                     place=Place(file=devices[0][0]), change="look at exposed communication in a trace")


def _guides(devices: Sequence[Device]) -> Iterator[Judged]:
    """What the tuning guides ask for."""
    rates = _values([each for each in devices if each[1].samples >= ENOUGH], "utilization_ratio")
    if rates and sum(rates) / len(rates) < BUSY:
        yield Judged(message=Message("counters.utilisation",
                                     "devices are busy {rate:.0%} of the time; the guides ask for {asked:.0%}",
                                     {"rate": sum(rates) / len(rates), "asked": BUSY}), severity="advice",
                     place=Place(file=devices[0][0]))
    shares = [each.most["memory_used_bytes"] / each.means["memory_total_bytes"] for _, each in devices
              if "memory_used_bytes" in each.most and each.means.get("memory_total_bytes", 0.0) > 0]
    if shares and max(shares) < FULL:
        yield Judged(message=Message("counters.memory", "memory is {share:.0%} full at most; the guides ask for {asked:.0%}",
                                     {"share": max(shares), "asked": FULL}), severity="advice", place=Place(file=devices[0][0]),
                     change="less recomputation, a larger micro-batch, or less model parallelism")
