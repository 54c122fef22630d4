"""How long, how many device-hours, how much money and energy a whole run takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.report.blocks import Section, line
from meshwright.report.headline import UNCALIBRATED
from meshwright.words import count, integer, percent, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import RenderableType

    from meshwright.domain.estimate import Estimate
    from meshwright.search import DeviceCount, MinimumDevices, RunCost


def run_cost_lines(run: RunCost, estimate: Estimate) -> Iterator[RenderableType]:
    """The whole run on the first plan, and whether it meets the deadline."""
    title = Text(f"Training on {count(run.tokens)} tokens with the first plan", style="bold")
    if not estimate.calibrated:
        title.append("  ").append(UNCALIBRATED, style="bold black on yellow")
    yield Padding(title, (1, 0, 0, 0))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1))
    for name in ("", "value", "ends", ""):
        table.add_column(justify="right" if name else "left")

    def row(name: str, key: str, words: str, figure: Callable[[float], str] = integer) -> None:
        ends = [figure(end) for end in run.intervals.get(key, ())]
        table.add_row(name, figure(getattr(run, key)), f"({'-'.join(ends)})" if ends else "", words)

    row("time", "days", f"days on {integer(run.devices)} devices, {integer(run.steps)} steps", lambda days: f"{days:z,.1f}")
    row("work", "device_hours", "device-hours")
    if run.cost is not None:
        row("cost", "cost", "in the currency of the price")
    row("energy", "energy_kwh", "kWh, devices that run and their nodes")
    yield Padding(table, (0, 0, 0, 2))
    if run.idle_devices:
        money = f", {integer(run.idle_cost)} of the cost" if run.idle_cost is not None else ""
        idle = f"{plural(run.idle_devices, 'idle device')} paid for, too"
        yield Text(f"  {idle}: {integer(run.idle_device_hours)} of the device-hours{money}", style="yellow")
    brackets = f"brackets hold {percent(estimate.interval.level, 0)} of runs; " if estimate.interval else ""
    yield Text(f"  {brackets}without failures, checkpoints and evaluation", style="dim")
    yield from _deadline(run)


def _deadline(run: RunCost) -> Iterator[RenderableType]:
    """Whether the predicted time meets the deadline, and whether the upper end of its interval does."""
    if run.deadline_days is None:
        return
    late = run.days - run.deadline_days
    words = f"misses the deadline of {run.deadline_days:g} days by {late:z,.1f}"
    if run.meets_deadline:
        words = f"meets the deadline of {run.deadline_days:g} days with {-late:z,.1f} to spare"
    if run.intervals:
        least, most = (end - run.deadline_days for end in run.intervals["days"])
        if late <= 0:
            words += f"; the upper end misses it by {most:z,.1f}" if most > 0 else "; so does the upper end"
        else:
            words += f"; the lower end meets it with {-least:z,.1f}" if least <= 0 else "; so does the lower end"
    yield Text(f"  {words}", style="green" if run.meets_deadline else "bold red")


FITS = "fits"


def minimum_lines(minimum: MinimumDevices) -> Iterator[RenderableType]:
    """The smallest number of devices that fits, and that meets the deadline: by the predicted step, and by its upper end."""
    yield Padding(Text("Smallest number of devices", style="bold"), (1, 0, 0, 0))
    yield from _count(FITS, minimum.fits)
    if minimum.meets_deadline is not None or (minimum.fits is not None and minimum.fits.days is not None):
        yield from _count("meets the deadline, as predicted", minimum.meets_deadline)
        yield from _count("meets it at the upper end of the interval, too", minimum.meets_deadline_upper)
    least, most = (integer(end(minimum.tried, default=0)) for end in (min, max))
    tried = f"{len(minimum.tried)} numbers between {least} and {most} devices" if least != most else f"{most} devices alone"
    yield Text(f"  {tried} tried, of those that split into degrees which divide model and batch", style="dim")


def _count(what: str, found: DeviceCount | None) -> Iterator[RenderableType]:
    """A number of devices, its layout, and how fast and how dear it is."""
    if found is None:
        yield Text(f"  {what}: none that was tried")
        return
    held = ", optimizer states in host memory" if "offload=optimizer" in found.label else ""
    held = held or (", nothing in host memory" if what == FITS else "")
    yield Text(f"  {what}: {plural(found.devices, 'device')} ({plural(found.nodes, 'node')}){held}")
    ends = found.interval
    words = [f"{seconds(found.step_s)} per step" + (f" ({' to '.join(map(seconds, ends.step_s))})" if ends else "")]
    for value, unit, between in ((found.days, "days", ends and ends.days), (found.cost, "for the run", ends and ends.cost)):
        if value is not None:
            shown = [f"{each:z,.1f}" if unit == "days" else integer(each) for each in (value, *(between or ()))]
            words.append(f"{shown[0]} {unit}" + (f" ({shown[1]} to {shown[2]})" if between else ""))
    yield Text(f"    {', '.join(words)}")
    yield Text(f"    {found.label}", style="cyan")


def saved_lines(paths: Sequence[str]) -> Iterator[Section]:
    """Which files were written."""
    yield Section(title="Written", blocks=tuple(line(path, whole=True, indent=2) for path in paths))
