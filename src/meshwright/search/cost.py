"""Days, device-hours, cost and energy of a whole run, with what stands idle and the interval of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import field

from meshwright.units import SECONDS_PER_DAY, SECONDS_PER_HOUR
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate


class RunCost(Value, frozen=True, kw_only=True):
    """A run of so many tokens at the predicted speed, without failures, checkpoints or evaluation."""

    tokens: float
    steps: float
    days: float
    devices: int
    """Devices that run."""
    device_hours: float
    """Of all devices that are paid for, idle ones among them."""
    cost: float | None
    energy_kwh: float
    """Devices that run at the given power, with the rest of their nodes."""
    deadline_days: float | None
    meets_deadline: bool | None
    """By the predicted time."""
    surely_meets_deadline: bool | None = None
    """By the upper end of its interval, too; None without an interval."""
    idle_devices: int = 0
    """Devices in whole nodes that the layout leaves out of the cluster: the run pays for them, too."""
    idle_device_hours: float = 0.0
    idle_cost: float | None = None
    """What of the cost idle devices are."""
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Figure -> its ends with the probability of the step's interval; empty without one."""


def run_cost(
    case: Case, estimate: Estimate, tokens: float, *, price_per_device_hour: float | None = None, power_w: float | None = None,
    deadline_days: float | None = None, devices: int | None = None,
) -> RunCost:
    """What a run costs.

        steps = tokens / (tokens of a step without padding);   days = steps step
        device-hours = days 24 (n + i);   energy = (P n + node power) time

    Symbols: n devices that run; i those of ``devices`` (default: of the cluster) that stay idle and are paid for; P power of a
             device.
    Units:   tokens, hours, currency of the price, kWh.
    Holds:   all figures are proportional to the step, and so are the ends of their intervals.
    Source:  definitions of the words.
    """
    running = estimate.layout.world
    idle = max(0, (case.cluster.num_devices if devices is None else devices) - running)
    steps = tokens / case.batch.trained_tokens
    seconds = steps * estimate.step_s
    hours, idle_hours = ((number * seconds / SECONDS_PER_HOUR) for number in (running + idle, idle))
    cost, idle_cost = (None if price_per_device_hour is None else each * price_per_device_hour for each in (hours, idle_hours))
    power = case.cluster.device.power_w if power_w is None else power_w
    nodes = -(-running // case.cluster.devices_per_node)
    days = seconds / SECONDS_PER_DAY
    energy = (power * running + case.cluster.node_power_w * nodes) * seconds / SECONDS_PER_HOUR / 1e3
    figures = {"days": days, "device_hours": hours, "energy_kwh": energy} | ({} if cost is None else {"cost": cost})
    intervals = {name: scaled(value, estimate) for name, value in figures.items()} if estimate.interval else {}
    late = intervals["days"][1] if intervals else days
    return RunCost(
        tokens=tokens, steps=steps, days=days, devices=running, device_hours=hours, cost=cost,
        energy_kwh=energy, deadline_days=deadline_days, meets_deadline=None if deadline_days is None else days <= deadline_days,
        surely_meets_deadline=None if deadline_days is None or not intervals else late <= deadline_days,
        idle_devices=idle, idle_device_hours=idle_hours, idle_cost=idle_cost, intervals=intervals,
    )


def scaled(value: float, estimate: Estimate) -> tuple[float, float]:
    """The interval of a figure that is proportional to the step.

        [v lo / step, v hi / step]

    Units:   of the value.
    Holds:   the estimate has an interval.
    Source:  ``estimate.certainty.interval``.
    """
    assert estimate.interval is not None, "only what has an interval is scaled"
    low, high = (end / estimate.step_s for end in estimate.interval.step_s)
    return value * low, value * high
