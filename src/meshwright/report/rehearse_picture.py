"""Predicted against measured as a picture: a dot for each layout, its repetitions as a bar, the diagonal, and 25 % beside it."""

from __future__ import annotations

from math import log10
from typing import TYPE_CHECKING, Any

from meshwright.report.svg import BLUE, GREEN, GRID, MUTED, Drawing
from meshwright.words import seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

WIDTH, HEIGHT, EDGE = 560.0, 560.0, 60.0
MARGIN = 1.25
BESIDE = 1.25


def picture(view: Mapping[str, Any]) -> str:
    """One number of ranks as SVG text; logarithmic axes of the same length."""
    entries = [entry for entry in view["entries"] if entry["measured_s"] is not None]
    drawing = Drawing(
        width=WIDTH, height=HEIGHT, title=f"{view['model']} on {view['ranks']} ranks: predicted against measured step time",
        description=view["verdict"],
    )
    if not entries:
        drawing.text(WIDTH / 2, HEIGHT / 2, "nothing was measured", anchor="middle")
        return str(drawing)
    every = [each for entry in entries for each in (*entry["runs_s"], entry["predicted_s"])]
    low, high = min(every) / MARGIN, max(every) * MARGIN

    def along(value_s: float) -> float:
        return (WIDTH - 2 * EDGE) * log10(value_s / low) / log10(high / low)

    def place(measured_s: float, predicted_s: float) -> tuple[float, float]:
        return EDGE + along(measured_s), HEIGHT - EDGE - along(predicted_s)

    for tick in _ticks(low, high):
        drawing.segments([(place(tick, low), place(tick, high)), (place(low, tick), place(high, tick))], GRID)
        x, _ = place(tick, low)
        _, y = place(low, tick)
        drawing.text(x, HEIGHT - EDGE + 16, seconds(tick), size=10, colour=MUTED, anchor="middle")
        drawing.text(EDGE - 6, y + 3, seconds(tick), size=10, colour=MUTED, anchor="end")
    drawing.line([place(low, low), place(high, high)], MUTED, width=1.2)
    drawing.line([place(low * BESIDE, low), place(high, high / BESIDE)], MUTED, dash="4 4")
    drawing.line([place(low, low * BESIDE), place(high / BESIDE, high)], MUTED, dash="4 4")
    for entry in entries:
        runs, predicted = entry["runs_s"], entry["predicted_s"]
        colour = GREEN if entry["planned"] == 1 else BLUE
        drawing.line([place(min(runs), predicted), place(max(runs), predicted)], colour, width=1.5, opacity=0.6)
        drawing.circle(*place(entry["measured_s"], predicted), 4.0, fill=colour)
    drawing.text(WIDTH / 2, HEIGHT - EDGE / 3, "measured step", anchor="middle")
    drawing.text(EDGE / 3, HEIGHT / 2, "predicted step", anchor="middle", turned=True)
    drawing.text(EDGE, EDGE / 2, f"{view['model']}, {view['ranks']} ranks; green: the plan's first; dashes: 25 %", bold=True)
    return str(drawing)


def _ticks(low: float, high: float) -> list[float]:
    """Round values within a range, never fewer than two of a decade."""
    exponents = range(int(log10(low)) - 2, int(log10(high)) + 2)
    values = [digit * 10.0**exponent for exponent in exponents for digit in (1, 1.5, 2, 3, 5, 7)]
    return [value for value in values if low <= value <= high]
