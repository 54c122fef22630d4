"""Axes and the few kinds of charts that reports are made of, drawn on a ``Drawing``."""

from __future__ import annotations

from math import ceil, floor, log10
from typing import TYPE_CHECKING

from meshwright.report.svg import BLUE, CHARACTER, GRID, INK, MUTED, PAPER, Drawing
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshwright.report.svg import Point

SIZE_TICK, SIZE_LABEL, SIZE_TITLE = 10.0, 11.0, 12.5
MAX_TICKS = 5
ROOM = 1.08
"""How far an axis goes beyond its highest value."""
TITLE_OVERHANG = 40.0
"""How far a title may stand out to the right of its frame."""
WHISKERS = (0.05, 0.95)
"""Quantiles where the whiskers of a box end."""


class Axis(Value, frozen=True, kw_only=True):
    """Values from low to high on a line, equal steps or equal factors."""

    low: float
    high: float
    log: bool = False
    ticks: tuple[tuple[float, str], ...] = ()
    """Value and its words."""
    label: str = ""

    def share(self, value: float) -> float:
        """Where a value lies: 0 at the low end, 1 at the high end, held inside."""
        if self.log:
            share = log10(max(value, 1e-300) / self.low) / log10(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, share))


def log_axis(values: Sequence[float], *, label: str = "", words: str = "{:g}") -> Axis:
    """An axis of factors around some values, ticks at 1, 2 and 5 of the decades as there is room."""
    low, high = min(values), max(values)
    low, high = low / 1.25, max(high, 1.6 * low) * 1.25
    decades = range(floor(log10(low)) - 1, ceil(log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        found = [digit * 10.0**power for power in decades for digit in digits if low <= digit * 10.0**power <= high]
        if len(found) <= MAX_TICKS:
            break
    return Axis(low=low, high=high, log=True, ticks=tuple((each, words.format(each)) for each in found), label=label)


def round_axis(values: Sequence[float], *, label: str = "", words: Callable[[float], str], low: float = 0.0) -> Axis:
    """An axis of equal steps from ``low`` to a little above the highest value, ticks at round values."""
    high = low + ROOM * (max(values) - low) if max(values) > low else low + 1.0
    step = round_up((high - low) / MAX_TICKS)
    ticks = [low + index * step for index in range(int((high - low) / step) + 1)]
    return Axis(low=low, high=high, ticks=tuple((each, words(each)) for each in ticks), label=label)


def round_up(step: float) -> float:
    """The next of 1, 2, 2.5, 5 times a power of ten.

    >>> round_up(1700.0), round_up(0.021)
    (2000.0, 0.025)
    """
    power = 10.0 ** floor(log10(step))
    return next(float(f"{factor * power:.6g}") for factor in (1, 2, 2.5, 5, 10) if factor * power >= step)


class Frame(Value, frozen=True, kw_only=True):
    """A rectangle of a drawing with an axis along its foot and one along its left."""

    drawing: Drawing
    left: float
    top: float
    width: float
    height: float
    across: Axis
    up: Axis

    def at(self, x: float, y: float) -> Point:
        """The place of a pair of values."""
        return self.left + self.across.share(x) * self.width, self.top + (1.0 - self.up.share(y)) * self.height

    def ground(self, title: str = "", remark: str = "") -> None:
        """Grid, tick words, labels and title."""
        draw, bottom, right = self.drawing, self.top + self.height, self.left + self.width
        draw.rectangle(self.left, self.top, self.width, self.height, PAPER, stroke=GRID)
        upright = [(x, value) for value, _ in self.across.ticks if (x := self.at(value, self.up.low)[0])]
        level = [(y, value) for value, _ in self.up.ticks if (y := self.at(self.across.low, value)[1])]
        draw.segments([((x, self.top), (x, bottom)) for x, _ in upright], GRID)
        draw.segments([((self.left, y), (right, y)) for y, _ in level], GRID)
        for x, words in apart([(x, words) for (x, _), (_, words) in zip(upright, self.across.ticks, strict=True)], SIZE_TICK):
            draw.text(x, bottom + 13, words, size=SIZE_TICK, colour=MUTED, anchor="middle")
        for (y, _), (_, words) in zip(level, self.up.ticks, strict=True):
            draw.text(self.left - 5, y + 3.5, words, size=SIZE_TICK, colour=MUTED, anchor="end")
        if self.across.label:
            draw.text(self.left + self.width / 2, bottom + 29, self.across.label, size=SIZE_LABEL, colour=MUTED, anchor="middle")
        if self.up.label:
            draw.text(self.left - 36, self.top + self.height / 2, self.up.label, size=SIZE_LABEL, colour=MUTED, anchor="middle",
                      turned=True)
        if title:
            fitting = min(SIZE_TITLE, (self.width + TITLE_OVERHANG) / (len(title) * CHARACTER))
            draw.text(self.left, self.top - (20 if remark else 7), title, size=round(fitting, 1), bold=True)
        if remark:
            draw.text(self.left, self.top - 6, remark, size=SIZE_TICK, colour=MUTED)

    def diagonal_band(self, factor: float, fill: str, *, opacity: float = 1.0) -> None:
        """Where one value is the other up to a factor, on two logarithmic axes of one range; the diagonal on top."""
        low, high = self.across.low, self.across.high
        upper = [self.at(low, low * factor), self.at(high / factor, high), self.at(high, high)]
        lower = [self.at(high, high / factor), self.at(low * factor, low), self.at(low, low)]
        self.drawing.area([*upper, *lower], fill, opacity=opacity)
        self.drawing.line([self.at(low, low), self.at(high, high)], MUTED)

    def dots(
        self, points: Sequence[Point], colour: str, *, size: float = 4.0, opacity: float = 0.6, values: Sequence[str] = (),
    ) -> None:
        """Pairs of values as dots; ``values``: what each stands for."""
        self.drawing.dots([self.at(x, y) for x, y in points], colour, size=size, opacity=opacity, values=values)

    def line(self, points: Sequence[Point], colour: str, *, width: float = 1.5, dash: str = "", opacity: float = 1.0) -> None:
        """Pairs of values as a line."""
        self.drawing.line([self.at(x, y) for x, y in points], colour, width=width, dash=dash, opacity=opacity)

    def box(self, values: Sequence[float], y: float, *, height: float, colour: str = BLUE) -> None:
        """A lying box: quartiles, the median in it, whiskers from the 5th to the 95th percentile."""
        ordered = sorted(values)
        low, first, middle, third, high = (quantile(ordered, share) for share in (WHISKERS[0], 0.25, 0.5, 0.75, WHISKERS[1]))
        x = [self.at(each, self.up.low)[0] for each in (low, first, middle, third, high)]
        draw = self.drawing
        draw.segments([((x[0], y), (x[1], y)), ((x[3], y), (x[4], y))], colour, width=1.2)
        draw.rectangle(x[1], y - height / 2, max(x[3] - x[1], 1.0), height, colour, opacity=0.35)
        draw.segments([((x[2], y - height / 2), (x[2], y + height / 2))], INK, width=2.0)


def apart(ticks: Sequence[tuple[float, str]], size: float) -> list[tuple[float, str]]:
    """Places and words side by side, without those that would touch the one before.

    >>> apart([(0.0, "0 s"), (12.0, "250 ms"), (60.0, "1 s")], 10.0)
    [(0.0, '0 s'), (60.0, '1 s')]
    """
    kept: list[tuple[float, str]] = []
    end = float("-inf")
    for x, words in ticks:
        half = 0.5 * CHARACTER * size * len(words)
        if x - half > end:
            kept.append((x, words))
            end = x + half + 0.5 * size
    return kept


def quantile(ordered: Sequence[float], share: float) -> float:
    """A quantile of sorted values, between neighbours in proportion."""
    place = share * (len(ordered) - 1)
    below = floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
