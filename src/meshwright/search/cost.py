"""Days, device-hours, cost and energy of a whole run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCost:
    """A run of so many tokens at the predicted speed, without failures, checkpoints or evaluation."""

    tokens: float
    steps: float
    days: float
    devices: int
    device_hours: float
    cost: float | None
    energy_kwh: float
    """Devices at the given power, with the rest of their nodes."""
    deadline_days: float | None
    meets_deadline: bool | None


def run_cost(
    case: Case, estimate: Estimate, tokens: float, *, price_per_device_hour: float | None = None, power_w: float | None = None,
    deadline_days: float | None = None, devices: int | None = None,
) -> RunCost:
    """What a run costs.

        days = tokens / (tokens per s);   device-hours = days 24 n;   energy = (P n + node power) time

    Symbols: n devices that are paid for (those of the layout unless idle ones are counted); P power of a device.
    Units:   tokens, hours, currency of the price, kWh.
    Source:  definitions of the words.
    """
    count = devices if devices is not None else estimate.layout.world
    seconds = tokens / estimate.tokens_per_s
    hours = count * seconds / SECONDS_PER_HOUR
    power = case.cluster.device.power_w if power_w is None else power_w
    nodes = -(-count // case.cluster.devices_per_node)
    days = seconds / SECONDS_PER_DAY
    return RunCost(
        tokens=tokens, steps=tokens / case.batch.tokens, days=days, devices=count, device_hours=hours,
        cost=None if price_per_device_hour is None else hours * price_per_device_hour,
        energy_kwh=(power * count + case.cluster.node_power_w * nodes) * seconds / SECONDS_PER_HOUR / 1e3,
        deadline_days=deadline_days, meets_deadline=None if deadline_days is None else days <= deadline_days,
    )
