"""The report of ``calibrate``: what was fitted to what, how well it holds out of fold, and what the constants became."""

from __future__ import annotations

from math import exp
from typing import TYPE_CHECKING

from meshwright.report.blocks import Run, Section, line, table
from meshwright.words import integer, percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.domain.calibration import CalibrationTable, Freedom
    from meshwright.evidence.rows.reading import RowsRead
    from meshwright.report.blocks import Told

MOST = 15
"""Largest offsets that are shown."""


def calibration_report(
    found: CalibrationTable, readings: Sequence[RowsRead], freedoms: Sequence[Freedom], out: str
) -> Iterator[Told]:
    """What was learnt, as a person reads it."""
    said = found.diagnostics
    yield line(Run("Calibration", bold=True), f"   {found.name}@{found.version}   written to {out}")
    runs = sum(len(reading.runs) for reading in readings)
    own = "own_" if "own_runs" in said else ""
    errors = [
        f"{words} {percent(said[key])}" for words, kind in (("step time", "step"), ("memory", "memory"))
        if (key := f"{own}median_{kind}_error_ratio") in said
    ]
    fitted = f"{integer(runs)} {'run' if runs == 1 else 'runs'}" + ("" if own else f", {integer(said.get('offsets', 0))} offsets")
    yield line(
        f"{fitted}; median error of {'own ' * bool(own)}held-out runs: {', '.join(errors) or 'unknown'}; "
        f"layouts of one case are told apart from {percent(found.ranking_ratio)} on"
    )
    if "converged" in said and not said["converged"]:
        yield line("the fit ended at its last round, not at its tolerance", kind="note")
    for name, words in found.provenance.items():
        yield line(f"{name}: {words}", kind="small")
    if own:  # what stands behind its own runs is the base's: ``few_shot_report`` says what they moved
        return
    spread = {freedom.name: freedom.spreads for freedom in freedoms}
    moved = [
        (abs(offset) / spread.get(name, {}).get(level, 1.0), name, level, value, offset)
        for name, each in found.offsets.items() for level, values in each.by_level.items() for value, offset in values.items()
    ]
    rows = [
        (name, level, value or "all runs", f"{exp(offset):.2f}", f"{distance:.1f}")
        for distance, name, level, value, offset in sorted(moved, key=lambda each: (-each[0], each[1:4]))[:MOST]
    ]
    yield Section(title="Constants farthest from their priors", blocks=(
        table(("constant", "level", "of", "times the prior", "spreads"), rows, right=[3, 4], whole=[3, 4]),
    ))
