"""What a profile measured: by benchmark, from which to which time, and how sure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.views.profile import groups
from meshwright.engine.profile.statistics import NOISY_RATIO
from meshwright.report.blocks import Run, figure, line, table
from meshwright.words import gib, percent, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.engine.profile.fitted import FittedMachine
    from meshwright.engine.profile.run import Profile
    from meshwright.report.blocks import Block, Table

WORDS: dict[str, str] = {
    "product": "matrix product", "grouped": "products of experts", "attention": "attention", "pass": "pass",
    "operator": "host, operator", "distributed": "host, redistribution", "unit": "host, sharded unit",
    "message": "host, pipeline hop", "transfer": "copy", "collective": "collective", "beside": "products beside",
    "memory": "large copy",
}
COLUMNS = ("measured", "samples", "shortest", "median", "longest", "interval", "at best")
FIT_COLUMNS = ("the cost model\nsays it again", "\nsamples", "median\nerror", "\nworst", "corrected\nby others")
MOST_TOO_LONG = 3


def profile_report(profile: Profile, found: FittedMachine | None, path: str | None, samples: str) -> Iterator[Block]:
    """What was measured, how sure it is, how well the cost model says it again, and where it went."""
    machine = profile.machine
    yield line(Run(machine.name, bold=True))
    memory = gib(machine.memory_bytes)
    ranks = f"{plural(machine.ranks, 'rank')} at once, {plural(machine.threads, 'thread')} each"
    yield line(f"{machine.kind}, {memory}, {plural(machine.cores, 'core')}; {ranks}; torch {machine.torch}")
    there = f", {profile.reused} of them from before" if profile.reused else ""
    yield line(f"{plural(len(profile.samples), 'sample')}{there}, in {profile.seconds:,.0f} s")
    yield _measured(profile)
    if found is not None:
        yield _fitted(found)
    yield from _remarks(profile)
    if path is not None:
        yield line(f"cluster file  {path}", whole=True)
    yield line(f"samples       {samples}", whole=True)


def _measured(profile: Profile) -> Table:
    """Times of each benchmark."""
    rows: list[tuple[str | Run, ...]] = []
    for each in groups(profile.samples):
        times = [figure(value_s, seconds) for value_s in (each.least_s, each.median_s, each.most_s)]
        name, sure = f"{WORDS[each.bench]} {each.detail}".strip(), f"\u00b1 {percent(each.interval_ratio)}"
        rows.append((name, str(each.samples), *times, sure, each.best))
    return table(COLUMNS, rows, right=range(1, len(COLUMNS)), whole=range(1, len(COLUMNS)), above=True)


def _fitted(found: FittedMachine) -> Table:
    """Errors of the cost model with the fitted figures."""
    rows = [
        (each.bench, str(each.samples), percent(each.median_ratio), percent(each.worst_ratio, 0),
         "" if each.held_out_ratio is None else percent(each.held_out_ratio)) for each in found.benches
    ]
    return table(FIT_COLUMNS, rows, right=range(1, len(FIT_COLUMNS)), whole=range(len(FIT_COLUMNS)), above=True)


def _remarks(profile: Profile) -> Iterator[Block]:
    if profile.noise_ratio > NOISY_RATIO:
        yield line(
            f"noisy machine: blocks of products took up to {profile.noise_ratio:.2f} times as long as the best of them; "
            "measure when nothing else runs", kind="note", above=True,
        )
    if profile.too_long:
        shown = "; ".join(profile.too_long[:MOST_TOO_LONG])
        more = f" and {len(profile.too_long) - MOST_TOO_LONG} more" if len(profile.too_long) > MOST_TOO_LONG else ""
        yield line(f"left out, for they take too long here: {shown}{more}", above=True)
