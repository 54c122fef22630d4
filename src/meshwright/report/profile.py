"""What a profile measured: by benchmark, from which to which time, and how sure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.api.views.profile import groups
from meshwright.engine.profile.statistics import NOISY_RATIO
from meshwright.words import gib, percent, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from meshwright.engine.profile.fitted import FittedMachine
    from meshwright.engine.profile.run import Profile

WORDS: dict[str, str] = {
    "product": "matrix product", "grouped": "products of experts", "attention": "attention", "pass": "pass",
    "operator": "host, operator", "distributed": "host, redistribution", "unit": "host, sharded unit",
    "message": "host, pipeline hop", "transfer": "copy", "collective": "collective", "beside": "products beside",
    "memory": "large copy",
}
COLUMNS = ("measured", "samples", "shortest", "median", "longest", "interval", "at best")
FIT_COLUMNS = ("the cost model\nsays it again", "\nsamples", "median\nerror", "\nworst", "corrected\nby others")
MOST_TOO_LONG = 3


def profile_report(profile: Profile, found: FittedMachine | None, path: str | None, samples: str) -> Iterator[RenderableType]:
    """What was measured, how sure it is, how well the cost model says it again, and where it went."""
    machine = profile.machine
    yield Text(machine.name, style="bold")
    memory = gib(machine.memory_bytes)
    ranks = f"{plural(machine.ranks, 'rank')} at once, {plural(machine.threads, 'thread')} each"
    yield Text(f"{machine.kind}, {memory}, {plural(machine.cores, 'core')}; {ranks}; torch {machine.torch}")
    there = f", {profile.reused} of them from before" if profile.reused else ""
    yield Text(f"{plural(len(profile.samples), 'sample')}{there}, in {profile.seconds:,.0f} s")
    table = _table(COLUMNS)
    for each in groups(profile.samples):
        times = [seconds(each.least_s), seconds(each.median_s), seconds(each.most_s)]
        name, sure = f"{WORDS[each.bench]} {each.detail}".strip(), f"± {percent(each.interval_ratio)}"
        table.add_row(name, str(each.samples), *times, sure, each.best)
    yield Padding(table, (1, 0, 1, 2))
    if found is not None:
        yield Padding(_fitted(found), (0, 0, 1, 2))
    yield from _remarks(profile)
    if path is not None:
        yield Text(f"cluster file  {path}", no_wrap=True)
    yield Text(f"samples       {samples}", no_wrap=True)


def _table(columns: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    for place, name in enumerate(columns):
        table.add_column(name, justify="right" if place else "left", no_wrap=True)
    return table


def _fitted(found: FittedMachine) -> Table:
    """Errors of the cost model with the fitted figures."""
    table = _table(FIT_COLUMNS)
    for each in found.benches:
        corrected = "" if each.held_out_ratio is None else percent(each.held_out_ratio)
        table.add_row(each.bench, str(each.samples), percent(each.median_ratio), percent(each.worst_ratio, 0), corrected)
    return table


def _remarks(profile: Profile) -> Iterator[Text]:
    if profile.noise_ratio > NOISY_RATIO:
        yield Text(
            f"noisy machine: blocks of products took up to {profile.noise_ratio:.2f} times as long as the best of them; "
            "measure when nothing else runs",
            style="yellow",
        )
    if profile.too_long:
        shown = "; ".join(profile.too_long[:MOST_TOO_LONG])
        more = f" and {len(profile.too_long) - MOST_TOO_LONG} more" if len(profile.too_long) > MOST_TOO_LONG else ""
        yield Text(f"left out, for they take too long here: {shown}{more}")
