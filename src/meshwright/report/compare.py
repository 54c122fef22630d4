"""Why not mine: the user's layout beside the winner, term by term, and what would have to be true for it to win."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.report.blocks import Block, Run, Section, figure, line, table
from meshwright.report.timesplit import parts_of
from meshwright.words import gib, percent, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.search.result import Comparison

LEAST_S = 1e-9
"""A difference below it is that of rounding."""


def comparison_report(comparison: Comparison) -> Iterator[Section]:
    """The place of the layout, the two sets of terms, and the conditions under which it would win."""
    yield Section(title=f"Why not {comparison.label}?", blocks=tuple(_compared(comparison)))


def _compared(comparison: Comparison) -> Iterator[Block]:
    mine, best = comparison.estimate, comparison.winner.estimate
    for reason in comparison.refused_because:
        yield line(Run(f"refused: {reason}", "bad"), indent=2)
    if comparison.better_listed is not None:
        yield line(_place(comparison), indent=2)
    elif not mine.fits:
        short = mine.memory_reserved_bytes - mine.memory_capacity_bytes
        yield line(Run(f"It does not fit: short of {gib(short)} on stage {mine.peak_stage}.", "bad"), indent=2)

    def row(name: str, ours: float, theirs: float) -> tuple[str | Run, ...]:
        return name, figure(ours, seconds), figure(theirs, seconds), _signed(ours - theirs)

    rows = [
        row(ours.name, ours.value, theirs.value)
        for ours, theirs in zip(parts_of(mine), parts_of(best), strict=True) if ours.value > 0 or theirs.value > 0
    ]
    first = len(rows)
    rows.append(row("step", mine.step_s, best.step_s))
    if mine.interval is not None:
        rows.append(row("expected", mine.expected_step_s, best.expected_step_s))
    bold = range(first, len(rows))
    gain, more = mine.mfu_ratio - best.mfu_ratio, mine.memory_reserved_bytes - best.memory_reserved_bytes
    rows.append(("MFU", figure(mine.mfu_ratio, percent), figure(best.mfu_ratio, percent),
                 Run(f"{100 * gain:+z.1f}", value=gain, unit="ratio")))
    rows.append(("memory", figure(mine.memory_reserved_bytes, gib), figure(best.memory_reserved_bytes, gib),
                 Run(f"{'-' if more < 0 else '+'}{gib(abs(more))}", value=more, unit="bytes")))
    head = ("", "yours", f"plan {comparison.winner.rank}", "yours - best")
    yield table(head, rows, right=(1, 2, 3), whole=range(4), bold=bold, ruled=frozenset({first}))
    if comparison.needed:
        yield line(Run("What stands between it and the first plan", "strong"), indent=2)
    for condition in comparison.needed:
        yield line(condition, kind="item", indent=4)


def _place(comparison: Comparison) -> str:
    """Where it stands among the listed plans, and how many layouts of the grid are better by what plans are ranked by."""
    if comparison.rank is not None:
        return "It is the first plan." if comparison.rank == 1 else f"It is plan {comparison.rank} of the list."
    ahead = comparison.better_listed or 0
    where = f"would stand behind plan {ahead}" if ahead else "would stand before plan 1"
    return f"It is not listed; it {where}, with {plural(comparison.better or 0, 'better layout')} in the grid."


def _signed(difference_s: float) -> Run:
    """A difference of seconds with its sign."""
    said = f"{'-' if difference_s < 0 else '+'}{seconds(abs(difference_s))}" if abs(difference_s) >= LEAST_S else "0"
    return Run(said, value=difference_s, unit="s")
