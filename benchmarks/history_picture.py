"""The picture of the figures of all versions, ``docs/accuracy/history.svg``."""

from __future__ import annotations

from math import log10
from typing import TYPE_CHECKING

from meshwright.report.svg import BLUE, GREY, INK, MUTED, ORANGE, Drawing
from meshwright.words import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.history import Figure

WIDTH, LEFT, RIGHT, TOP, LINE = 1000.0, 300.0, 560.0, 86.0, 21.0
LOW, HIGH = 0.01, 2.0
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
SHOWN = {"grouped": BLUE, "leave-one-model-out": ORANGE}


def history_picture(figures: Sequence[Figure]) -> Drawing:
    """Step error of every set by version: a line from the first version (small) to the last (large) for two schemes.

    Shapes:  figures of any versions, in their order.
    """
    mapes = [each for each in figures if each.metric == "step_mape_ratio" and each.scheme in SHOWN]
    names = list(dict.fromkeys(each.set for each in mapes))
    versions = list(dict.fromkeys(each.version for each in figures))
    draw = Drawing(width=WIDTH, height=TOP + LINE * len(names) + 24, title="Step-time error by set and version")
    draw.text(16, 26, "Step-time error (MAPE) by set and version", size=16, bold=True)
    draw.text(16, 44, " > ".join(versions) + ": from the small dot to the large one", colour=MUTED)
    for place, (scheme, colour) in enumerate(SHOWN.items()):
        draw.circle(LEFT + 170.0 * place, 60, 4.0, fill=colour)
        draw.text(LEFT + 10 + 170.0 * place, 64, scheme, size=11)
    for tick in TICKS:
        draw.line([(_across(tick), TOP - 6), (_across(tick), TOP + LINE * len(names))], GREY, width=0.5)
        draw.text(_across(tick), TOP - 10, percent(tick, 0), size=9, anchor="middle", colour=MUTED)
    for number, name in enumerate(names):
        y = TOP + LINE * (number + 0.6)
        draw.text(LEFT - 12, y + 3, name, size=11, anchor="end", colour=INK)
        for shift, (scheme, colour) in zip((-3.0, 4.0), SHOWN.items(), strict=True):
            values = [each.value for each in mapes if each.set == name and each.scheme == scheme]
            if not values:
                continue
            points = [(_across(value), y + shift) for value in values]
            draw.line(points, colour, width=1.2, opacity=0.7)
            for place, (x, up) in enumerate(points):
                last = place == len(points) - 1
                draw.circle(x, up, 3.6 if last else 1.6, fill=colour)
    return draw


def _across(value: float) -> float:
    share = (log10(min(max(value, LOW), HIGH)) - log10(LOW)) / (log10(HIGH) - log10(LOW))
    return LEFT + share * RIGHT
