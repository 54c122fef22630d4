"""How long, how many device-hours, how much money and energy a whole run takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.report.blocks import Block, Run, Section, line, table
from meshwright.report.headline import UNCALIBRATED
from meshwright.words import count, integer, percent, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from meshwright.domain.estimate import Estimate
    from meshwright.search import DeviceCount, MinimumDevices, RunCost


def run_cost_lines(run: RunCost, estimate: Estimate) -> Iterator[Section]:
    """The whole run on the first plan, and whether it meets the deadline."""
    yield Section(title=f"Training on {count(run.tokens)} tokens with the first plan",
                  mark="" if estimate.calibrated else UNCALIBRATED, blocks=tuple(_cost(run, estimate)))


def _cost(run: RunCost, estimate: Estimate) -> Iterator[Block]:
    def row(name: str, key: str, words: str, spelled: Callable[[float], str] = integer) -> tuple[str | Run, ...]:
        ends, value = [spelled(end) for end in run.intervals.get(key, ())], getattr(run, key)
        return name, Run(spelled(value), value=value, unit=key), f"({'-'.join(ends)})" if ends else "", words

    rows = [row("time", "days", f"days on {integer(run.devices)} devices, {integer(run.steps)} steps", "{:z,.1f}".format),
            row("work", "device_hours", "device-hours")]
    rows += [row("cost", "cost", "in the currency of the price")] if run.cost is not None else []
    rows.append(row("energy", "energy_kwh", "kWh, devices that run and their nodes"))
    yield table([""] * 4, rows, right=(1, 2), look="plain")
    if run.idle_devices:
        money = f", {integer(run.idle_cost)} of the cost" if run.idle_cost is not None else ""
        idle = f"{plural(run.idle_devices, 'idle device')} paid for, too"
        yield line(Run(f"{idle}: {integer(run.idle_device_hours)} of the device-hours{money}", "warn"), indent=2)
    brackets = f"brackets hold {percent(estimate.interval.level, 0)} of runs; " if estimate.interval else ""
    yield line(f"{brackets}without failures, checkpoints and evaluation", kind="small", indent=2)
    yield from _deadline(run)


def _deadline(run: RunCost) -> Iterator[Block]:
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
    met = run.meets_deadline
    yield line(Run(words, "good" if met else "bad", bold=not met), indent=2)


FITS = "fits"


def minimum_lines(minimum: MinimumDevices) -> Iterator[Section]:
    """The smallest number of devices that fits, and that meets the deadline: by the predicted step, and by its upper end."""
    yield Section(title="Smallest number of devices", blocks=tuple(_minimum(minimum)))


def _minimum(minimum: MinimumDevices) -> Iterator[Block]:
    yield from _count(FITS, minimum.fits)
    if minimum.meets_deadline is not None or (minimum.fits is not None and minimum.fits.days is not None):
        yield from _count("meets the deadline, as predicted", minimum.meets_deadline)
        yield from _count("meets it at the upper end of the interval, too", minimum.meets_deadline_upper)
    least, most = (integer(end(minimum.tried, default=0)) for end in (min, max))
    tried = f"{len(minimum.tried)} numbers between {least} and {most} devices" if least != most else f"{most} devices alone"
    yield line(f"{tried} tried, of those that split into degrees which divide model and batch", kind="small", indent=2)


def _count(what: str, found: DeviceCount | None) -> Iterator[Block]:
    """A number of devices, its layout, and how fast and how dear it is."""
    if found is None:
        yield line(f"{what}: none that was tried", indent=2)
        return
    held = ", optimizer states in host memory" if "offload=optimizer" in found.label else ""
    held = held or (", nothing in host memory" if what == FITS else "")
    yield line(f"{what}: {plural(found.devices, 'device')} ({plural(found.nodes, 'node')}){held}", indent=2)
    ends = found.interval
    words = [f"{seconds(found.step_s)} per step" + (f" ({' to '.join(map(seconds, ends.step_s))})" if ends else "")]
    for value, unit, between in ((found.days, "days", ends and ends.days), (found.cost, "for the run", ends and ends.cost)):
        if value is not None:
            shown = [f"{each:z,.1f}" if unit == "days" else integer(each) for each in (value, *(between or ()))]
            words.append(f"{shown[0]} {unit}" + (f" ({shown[1]} to {shown[2]})" if between else ""))
    yield line(", ".join(words), indent=4)
    yield line(Run(found.label, "accent"), indent=4)


def saved_lines(paths: Sequence[str]) -> Iterator[Section]:
    """Which files were written."""
    yield Section(title="Written", blocks=tuple(line(path, whole=True, indent=2) for path in paths))
