"""How long, how many device-hours, how much money and energy a whole run takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.report.facts import flat
from meshwright.report.headline import UNCALIBRATED
from meshwright.report.view import plain
from meshwright.report.words import count, integer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from meshwright.domain.estimate import Estimate


class RunCost(Protocol):
    """What the report reads of a run's cost (``meshwright.search``)."""

    @property
    def days(self) -> float:
        """Wall time."""

    @property
    def device_hours(self) -> float:
        """Devices times hours."""

    @property
    def cost(self) -> float | None:
        """Money, where a price is known."""

    @property
    def energy_kwh(self) -> float | None:
        """Energy, where the power is known."""


def run_cost_lines(
    cost: RunCost, estimate: Estimate, tokens: float, deadline_days: float | None = None
) -> Iterator[RenderableType]:
    """The whole run on the first plan, and whether it meets the deadline."""
    title = Text(f"Training on {count(tokens)} tokens with the first plan", style="bold")
    if not estimate.calibrated:
        title.append("  ").append(UNCALIBRATED, style="bold black on yellow")
    yield Padding(title, (1, 0, 0, 0))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    table.add_row("time", f"{cost.days:,.1f}", "days")
    table.add_row("devices", count(cost.device_hours), "device-hours")
    if cost.cost is not None:
        table.add_row("cost", integer(cost.cost), "(in the currency of the price)")
    if cost.energy_kwh is not None:
        table.add_row("energy", integer(cost.energy_kwh), "kWh")
    yield Padding(table, (0, 0, 0, 2))
    if deadline_days is not None:
        late = cost.days - deadline_days
        words = f"misses the deadline of {deadline_days:g} days by {late:,.1f}" if late > 0 else (
            f"meets the deadline of {deadline_days:g} days with {-late:,.1f} to spare"
        )  # fmt: skip
        yield Text(f"  {words}", style="bold red" if late > 0 else "green")


def minimum_lines(minimum: object) -> Iterator[RenderableType]:
    """The smallest number of devices that fits, and that meets the deadline."""
    yield Padding(Text("Smallest number of devices", style="bold"), (1, 0, 0, 0))
    for key, value in flat(plain(minimum)):
        yield Padding(Text.assemble((f"{key.replace('_', ' ')}: ", "dim"), value), (0, 0, 0, 2))


def saved_lines(paths: Sequence[str]) -> Iterator[RenderableType]:
    """Which files were written."""
    yield Padding(Text("Written", style="bold"), (1, 0, 0, 0))
    for path in paths:
        yield Text(f"  {path}", no_wrap=True, overflow="ignore")
