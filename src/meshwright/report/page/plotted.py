"""Charts of two axes on pages, for any width: pairs of values, how often values occur, predicted against measured."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.report.charts import Axis, Frame, log_axis, round_axis
from meshwright.report.page.drawn import FOOT, SIZE, legend, round_down, width_of
from meshwright.report.svg import BLUE, GREEN, GRID, MUTED, RED, Drawing
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshwright.report.svg import Point

LEAST_LEFT = 52.0
"""Pixels left of a frame, so that charts one below the other begin alike."""
FAR = 3.0
"""From which ratio of the highest to the lowest on a scale of factors is better."""


class Paired(Value, frozen=True, kw_only=True):
    """Pairs of values of one kind."""

    name: str
    points: tuple[Point, ...]
    colour: str = BLUE
    words: tuple[str, ...] = ()
    """Beside each point; none where there are too many."""
    joined: bool = False
    values: tuple[str, ...] = ()
    """What each point stands for, where it is pointed at; its two values unless said."""


def pairs(
    kinds: Sequence[Paired], width: float, *, title: str, across: str, up: str, words: tuple[Callable[[float], str], ...],
    height: float = 0.0, limit: float | None = None, level: float | None = None, limit_word: str = "", mark: float | None = None,
    factors: bool = False,
) -> Drawing:
    """Pairs of values as dots, joined or not.

    ``limit``, ``level``: a value across, or up, that is not to be passed; ``mark``: a value across that is meant. ``factors``:
    equal steps upwards are equal factors where the values go far apart.
    """
    said = "; ".join(f"{kind.name}: {len(kind.points)} points" for kind in kinds)
    tall = height or min(320.0, 0.72 * width)
    drawing = Drawing(width=width, height=0.0, title=title, description=said)
    top = legend(drawing, [(kind.name, kind.colour) for kind in kinds if kind.name], 4.0) + (24.0 if up else 8.0)
    x, y = ([point[place] for kind in kinds for point in kind.points] for place in (0, 1))
    seen = [*x, limit] if limit is not None else x
    x_axis = round_axis(seen, words=words[0], label=across, low=round_down(min(x), max(x)))
    tall_of = [*y, level] if level is not None else y
    low = round_down(min(tall_of) - 0.1 * (max(tall_of) - min(tall_of)), max(tall_of))
    y_axis = round_axis(tall_of, words=words[1], low=low)
    if factors and min(y) > 0 and max(y) > FAR * min(y):
        y_axis = log_axis(y)
        y_axis = replace(y_axis, ticks=tuple((value, words[1](value)) for value, _ in y_axis.ticks))
    left = max(LEAST_LEFT, max(width_of(each, 10) for _, each in y_axis.ticks) + 12)
    frame = Frame(drawing=drawing, left=left, top=top, width=width - left - 16, height=tall, across=x_axis, up=y_axis)
    frame.ground()
    drawing.text(4, top - 8, up, size=SIZE - 1, colour=MUTED)
    if limit is not None:
        frame.line([(limit, y_axis.low), (limit, y_axis.high)], RED, dash="5 3")
        drawing.text(frame.at(limit, 0)[0] - 4, top + 14, limit_word, size=SIZE - 1, colour=RED, anchor="end")
    if level is not None:
        frame.line([(x_axis.low, level), (x_axis.high, level)], RED, dash="5 3")
        place = frame.at(x_axis.high, level)
        drawing.text(place[0] - 4, place[1] - 5, limit_word, size=SIZE - 1, colour=RED, anchor="end")
    if mark is not None:
        frame.line([(mark, y_axis.low), (mark, y_axis.high)], GREEN, dash="5 4")
    for kind in reversed(kinds):
        if kind.joined:
            frame.line(kind.points, kind.colour)
        values = kind.values or tuple(f"{across}: {words[0](x)}; {up or kind.name}: {words[1](y)}" for x, y in kind.points)
        frame.dots(kind.points, kind.colour, size=8.0, opacity=1.0, values=values)
    taken = [(x - 4.0, x + 4.0, y + 4.0) for kind in kinds for x, y in (frame.at(*point) for point in kind.points)]
    for kind in kinds:
        for point, words_of_point in zip(kind.points, kind.words, strict=False):
            _named(frame, frame.at(*point), words_of_point, taken)
    drawing.height = top + tall + FOOT
    return drawing


def _named(frame: Frame, place: Point, words: str, taken: list[tuple[float, float, float]]) -> None:
    """A name right or left of its point, where none of those that stand already is in the way."""
    wide = width_of(words, SIZE - 1)
    for x, y in ((place[0] + 8, place[1] - 5), (place[0] - 8 - wide, place[1] + 14), (place[0] + 8, place[1] + 14)):
        free = all(x > right or x + wide < left or abs(y - line) > SIZE for left, right, line in taken)
        if free and x > frame.left and x + wide < frame.drawing.width:
            frame.drawing.text(x, y, words, size=SIZE - 1)
            taken.append((x, x + wide, y))
            return


def histogram(values: Sequence[float], width: float, *, title: str, label: str, words: Callable[[float], str]) -> Drawing:
    """How many values lie in each of equal steps."""
    drawing = Drawing(width=width, height=0.0, title=title, description=f"{len(values)} values up to {words(max(values))}")
    across = round_axis([max(values)], label=label, words=words)
    bins = int(min(40, max(8, width // 18)))
    step = (across.high - across.low) / bins
    counts = [0] * bins
    for each in values:
        counts[min(bins - 1, int((each - across.low) / step))] += 1
    frame = Frame(drawing=drawing, left=52.0, top=10.0, width=width - 68.0, height=150.0, across=across,
                  up=round_axis([float(max(counts))], words=lambda value: f"{value:,.0f}"))
    frame.ground()
    for place, number in enumerate(counts):
        if number:
            low = across.low + place * step
            x, y = frame.at(low, float(number))
            drawing.rectangle(x + 0.5, y, frame.width / bins - 1, frame.top + frame.height - y, BLUE,
                              value=f"{words(low)} to {words(low + step)} {label}: {number:,}")
    drawing.height = 160.0 + FOOT
    return drawing


def against(kinds: Sequence[Paired], width: float, *, title: str, across: str, up: str, words: str = "{:g}") -> Drawing:
    """Predicted against measured on equal logarithmic scales: the diagonal, and within a factor of 1.5 of it."""
    drawing = Drawing(width=width, height=0.0, title=title,
                      description="; ".join(f"{kind.name}: {len(kind.points)} rows" for kind in kinds))
    top = legend(drawing, [(kind.name, kind.colour) for kind in kinds], 4.0) + 22.0
    axis = log_axis([value for kind in kinds for point in kind.points for value in point], label=across, words=words)
    side = min(width - 60.0, 430.0)
    frame = Frame(drawing=drawing, left=46.0, top=top, width=side, height=side, across=axis,
                  up=Axis(low=axis.low, high=axis.high, log=True, ticks=axis.ticks))
    frame.ground()
    drawing.text(4, top - 8, up, size=SIZE - 1, colour=MUTED)
    frame.diagonal_band(1.5, GRID, opacity=0.6)
    for kind in kinds:
        said = tuple(f"{kind.name}: {across} {x:.3g}; {up} {y:.3g}" for x, y in kind.points) if not kind.values else kind.values
        frame.dots(kind.points, kind.colour, size=4.5, opacity=0.7, values=said)
    drawing.height = top + side + FOOT
    return drawing
