"""The report of ``calibrate``: what was fitted to what, how well it holds out of fold, and what the constants became."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from meshwright.words import integer, percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from meshwright.domain.calibration import CalibrationTable, Freedom
    from meshwright.evidence.rows.reading import RowsRead

MOST = 15
"""Largest offsets that are shown."""


def calibration_report(
    table: CalibrationTable, readings: Sequence[RowsRead], freedoms: Sequence[Freedom], out: str
) -> Iterator[RenderableType]:
    """What was learnt, as a person reads it."""
    found = table.diagnostics
    title = Text("Calibration", style="bold").append(f"   {table.name}@{table.version}   written to {out}", style="not bold")
    yield title
    runs = sum(len(reading.runs) for reading in readings)
    own = "own_" if "own_runs" in found else ""
    errors = [
        f"{words} {percent(found[key])}" for words, kind in (("step time", "step"), ("memory", "memory"))
        if (key := f"{own}median_{kind}_error_ratio") in found
    ]
    fitted = f"{integer(runs)} runs" + ("" if own else f", {integer(found.get('offsets', 0))} offsets")
    yield Text(
        f"{fitted}; median error of {'own ' * bool(own)}held-out runs: {', '.join(errors) or 'unknown'}; "
        f"layouts of one case are told apart from {percent(table.ranking_ratio)} on"
    )
    if "converged" in found and not found["converged"]:
        yield Text("the fit ended at its last round, not at its tolerance", style="yellow")
    for name, words in table.provenance.items():
        yield Text(f"{name}: {words}", style="dim")
    spread = {freedom.name: freedom.spreads for freedom in freedoms}
    moved = [
        (abs(offset) / spread.get(name, {}).get(level, 1.0), name, level, value, offset)
        for name, each in table.offsets.items() for level, values in each.by_level.items() for value, offset in values.items()
    ]
    shown = Table(box=box.SIMPLE_HEAD, title="Constants farthest from their priors", title_justify="left")
    for head in ("constant", "level", "of", "times the prior", "spreads"):
        shown.add_column(head, justify="right" if head in ("times the prior", "spreads") else "left")
    for distance, name, level, value, offset in sorted(moved, key=lambda each: (-each[0], each[1:4]))[:MOST]:
        shown.add_row(name, level, value or "all runs", f"{2.718281828459045**offset:.2f}", f"{distance:.1f}")
    yield shown
