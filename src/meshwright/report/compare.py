"""Why not mine: the user's layout beside the winner, term by term, and what would have to be true for it to win."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from meshwright.report.timesplit import parts_of
from meshwright.words import gib, percent, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from meshwright.search.result import Comparison


LEAST_S = 1e-9
"""A difference below it is that of rounding."""


def comparison_report(comparison: Comparison) -> Iterator[RenderableType]:
    """The place of the layout, the two sets of terms, and the conditions under which it would win."""
    mine, best = comparison.estimate, comparison.winner.estimate
    yield Padding(Text.assemble(("Why not ", "bold"), (comparison.label, "bold cyan"), ("?", "bold")), (1, 0, 0, 0))
    for reason in comparison.refused_because:
        yield Text(f"  refused: {reason}", style="red")
    if comparison.better_listed is not None:
        yield Text(f"  {_place(comparison)}")
    elif not mine.fits:
        short = mine.memory_reserved_bytes - mine.memory_capacity_bytes
        yield Text(f"  It does not fit: short of {gib(short)} on stage {mine.peak_stage}.", style="red")
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    for name in ("", "yours", f"plan {comparison.winner.rank}", "yours - best"):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    for ours, theirs in zip(parts_of(mine), parts_of(best), strict=True):
        if ours.value > 0 or theirs.value > 0:
            table.add_row(ours.name, seconds(ours.value), seconds(theirs.value), _signed(ours.value - theirs.value))
    table.add_section()
    table.add_row("step", seconds(mine.step_s), seconds(best.step_s), _signed(mine.step_s - best.step_s), style="bold")
    if mine.interval is not None:
        expected = (mine.expected_step_s, best.expected_step_s)
        table.add_row("expected", *map(seconds, expected), _signed(expected[0] - expected[1]), style="bold")
    table.add_row("MFU", percent(mine.mfu_ratio), percent(best.mfu_ratio), f"{100 * (mine.mfu_ratio - best.mfu_ratio):+z.1f}")
    memory, least = mine.memory_reserved_bytes, best.memory_reserved_bytes
    more = "-" if memory < least else "+"
    table.add_row("memory", gib(memory), gib(least), f"{more}{gib(abs(memory - least))}")
    yield Padding(table, (0, 0, 0, 2))
    if comparison.needed:
        yield Text("  What stands between it and the first plan", style="bold")
    for condition in comparison.needed:
        yield Padding(Text(f"- {condition}"), (0, 0, 0, 4))


def _place(comparison: Comparison) -> str:
    """Where it stands among the listed plans, and how many layouts of the grid are better by what plans are ranked by."""
    if comparison.rank is not None:
        return "It is the first plan." if comparison.rank == 1 else f"It is plan {comparison.rank} of the list."
    ahead = comparison.better_listed or 0
    where = f"would stand behind plan {ahead}" if ahead else "would stand before plan 1"
    return f"It is not listed; it {where}, with {plural(comparison.better or 0, 'better layout')} in the grid."


def _signed(difference_s: float) -> str:
    """A difference of seconds with its sign."""
    return f"{'-' if difference_s < 0 else '+'}{seconds(abs(difference_s))}" if abs(difference_s) >= LEAST_S else "0"
