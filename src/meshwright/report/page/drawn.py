"""Charts that pages are made of, each written once for any width: bars of parts, waterfalls, ranges, changes.

All lie: a row for each thing, its name left of it, or above where there is no room, so that a phone shows the same as a desk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import floor
from textwrap import wrap
from typing import TYPE_CHECKING

from meshwright.report.charts import MAX_TICKS, apart, round_axis, round_up
from meshwright.report.page.theme import SERIES
from meshwright.report.svg import BLUE, GREEN, GRID, INK, MUTED, ORANGE, PAPER, RED, Drawing
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshwright.report.charts import Axis

SIZE = 12.0
GLYPH = 0.56
"""Mean width of a character over the size of its font."""
BAR, GAP, LINE = 16.0, 9.0, 15.0
FOOT = 36.0
MOST_NAMES = 0.42
"""Of a drawing's width that names may take before they stand above their bars."""


class Parted(Value, frozen=True, kw_only=True):
    """A bar of parts."""

    name: str
    parts: tuple[float, ...]
    word: str
    """What stands at its end."""
    over: bool = False
    """Whether it goes beyond the limit."""
    gap: float = 0.0
    """Pixels below it, before what is of another kind."""


class Ranged(Value, frozen=True, kw_only=True):
    """A value with the ends of its interval, and what it is compared with."""

    name: str
    value: float | None
    ends: tuple[float, float] | None = None
    other: float | None = None
    word: str = ""
    bad: bool = False


class Changed(Value, frozen=True, kw_only=True):
    """A change from zero."""

    name: str
    ratio: float
    word: str
    bad: bool = False


def width_of(words: str, size: float = SIZE) -> float:
    """Pixels of a text, about."""
    return GLYPH * size * len(words)


@dataclass(slots=True, kw_only=True)
class _Rows:
    """Rows one below the other: where their names stand, and where their bars."""

    drawing: Drawing
    names: Sequence[str]
    top: float
    tail: float
    """Room at the right."""
    left: float = 0.0
    above: bool = False
    gaps: Sequence[float] = ()
    """Pixels below each row, beside those below all."""
    lines: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        longest = max(map(width_of, self.names), default=0.0)
        self.above = longest > MOST_NAMES * self.drawing.width
        self.left = 4.0 if self.above else longest + 10.0
        room = int((self.drawing.width - 8.0) / (GLYPH * SIZE))
        self.lines = [wrap(name, room, break_on_hyphens=False) or [""] if self.above else [name] for name in self.names]

    @property
    def width(self) -> float:
        return self.drawing.width - self.left - self.tail

    @property
    def bottom(self) -> float:
        return self.top + sum(self.height(place) for place in range(len(self.names)))

    def height(self, place: int) -> float:
        return BAR + GAP + (LINE * len(self.lines[place]) if self.above else 0.0) + (self.gaps[place] if self.gaps else 0.0)

    def put(self) -> list[float]:
        """The names; where the bars begin."""
        y, found = self.top, []
        for place, lines in enumerate(self.lines):
            if self.above:
                for line in lines:
                    y += LINE
                    self.drawing.text(self.left, y - 3, line, size=SIZE)
                found.append(y)
                y += self.height(place) - LINE * len(lines)
            else:
                self.drawing.text(self.left - 10, y + BAR - 4, lines[0], size=SIZE, anchor="end")
                found.append(y)
                y += self.height(place)
        return found


def stacked(
    rows: Sequence[Parted], parts: Sequence[tuple[str, str]], width: float, *, title: str, limit: float | None = None,
    limit_word: str = "", unit: Callable[[float], str] = "{:.1f} GiB".format,
) -> Drawing:
    """Bars of parts against a limit; ``parts``: name and colour of each; ``unit``: the words of a value.

    Units:  values in any unit, the words of the rows say it; pixels.
    """
    said = "; ".join(f"{row.name}: {row.word}" for row in rows)
    drawing = Drawing(width=width, height=0.0, title=title, description=said)
    top = legend(drawing, parts if len(parts) > 1 else [], 4.0) + (20.0 if limit is not None else 6.0)
    tail = max((width_of(row.word) for row in rows), default=0.0) + 10.0
    place = _Rows(drawing=drawing, names=[row.name for row in rows], top=top, tail=tail,
                  gaps=[row.gap for row in rows])
    most = max([sum(row.parts) for row in rows] + ([limit] if limit is not None else []), default=1.0) or 1.0
    scale = place.width / most
    for row, y in zip(rows, place.put(), strict=True):
        x = place.left
        for value, (name, colour) in zip(row.parts, parts, strict=True):
            if value > 0:
                over = row.over and len(parts) == 1
                drawing.rectangle(x, y, max(value * scale, 0.5), BAR, RED if over else colour, opacity=0.5 if over else 1.0,
                                  value=_said(row, name, value, unit))
                x += value * scale
        drawing.text(drawing.width - tail + 8, y + BAR - 4, row.word, size=SIZE, colour=RED if row.over else INK, bold=row.over)
    if limit is not None:
        x = place.left + limit * scale
        drawing.line([(x, top - 4), (x, place.bottom)], RED, width=1.5, dash="5 3")
        drawing.text(x, top - 8, limit_word, size=SIZE - 1, colour=RED, anchor="end")
    drawing.height = place.bottom + 2
    return drawing


def _said(row: Parted, name: str, value: float, unit: Callable[[float], str]) -> str:
    """What a part stands for: ``stage 0: activations 12.3 GiB of 46.1 GiB``."""
    return f"{row.name}: {name} {unit(value)}{f' of {row.word}' if len(row.parts) > 1 else ''}"


def waterfall(parts: Sequence[tuple[str, float, str, str]], width: float, *, title: str) -> Drawing:
    """Parts of a whole, each beginning where the one before it ends: name, value, words, colour."""
    said = "; ".join(f"{name}: {words}" for name, _, words, _ in parts)
    drawing = Drawing(width=width, height=0.0, title=title, description=said)
    tail = max((width_of(words) for _, _, words, _ in parts), default=0.0) + 10.0
    place = _Rows(drawing=drawing, names=[name for name, *_ in parts], top=4.0, tail=tail)
    scale, x = place.width / (sum(value for _, value, _, _ in parts) or 1.0), place.left
    for (name, value, words, colour), y in zip(parts, place.put(), strict=True):
        drawing.rectangle(place.left, y, place.width, BAR, GRID, opacity=0.45)
        drawing.rectangle(x, y, max(value * scale, 1.0), BAR, colour, value=f"{name}: {words}")
        x += value * scale
        drawing.text(drawing.width - 2, y + BAR - 4, words, size=SIZE, anchor="end")
    drawing.height = place.bottom + 2
    return drawing


def ranges(
    rows: Sequence[Ranged], width: float, *, title: str, words: Callable[[float], str], label: str, of: str = "", other: str = "",
    low: float | None = None,
) -> Drawing:
    """Values as dots with their intervals as whiskers on one scale, what each is compared with as a ring.

    ``of``, ``other``: the names of both kinds of dots; ``low``: where the scale begins, else a little below the lowest value.
    """
    said = "; ".join(f"{row.name}: {row.word}" for row in rows)
    drawing = Drawing(width=width, height=0.0, title=title, description=said)
    kinds = [(name, colour) for name, colour in ((of, BLUE), (other, ORANGE)) if name]
    top = legend(drawing, kinds, 4.0) + 6.0
    tail = max((width_of(row.word) for row in rows), default=0.0) + 14.0
    place = _Rows(drawing=drawing, names=[row.name for row in rows], top=top, tail=tail)
    seen = [each for row in rows for each in (row.value, row.other, *(row.ends or ())) if each is not None] or [0.0]
    least = min(seen) - 0.08 * (max(seen) - min(seen)) if low is None else low
    axis = round_axis(seen, words=words, low=round_down(least, max(seen)))
    _scale(drawing, axis, place, label)
    for row, y in zip(rows, place.put(), strict=True):
        middle, colour = y + BAR / 2, RED if row.bad else BLUE
        if row.ends is not None:
            low_x, high_x = (place.left + axis.share(each) * place.width for each in row.ends)
            drawing.line([(low_x, middle), (high_x, middle)], colour, width=2.0, opacity=0.75)
            drawing.segments([((x, middle - 4), (x, middle + 4)) for x in (low_x, high_x)], colour, width=1.5)
        if row.other is not None:
            drawing.circle(place.left + axis.share(row.other) * place.width, middle, 4.5, fill=PAPER, stroke=ORANGE, width=2.0,
                           value=f"{row.name}: {words(row.other)} {other}")
        if row.value is not None:
            between = f", {words(row.ends[0])} to {words(row.ends[1])}" if row.ends is not None else ""
            drawing.circle(place.left + axis.share(row.value) * place.width, middle, 4.0, fill=colour,
                           value=f"{row.name}: {words(row.value)}{between}")
        drawing.text(drawing.width - 2, y + BAR - 4, row.word, size=SIZE, anchor="end", colour=RED if row.bad else INK)
    drawing.height = place.bottom + FOOT
    return drawing


def changes(rows: Sequence[Changed], width: float, *, title: str, less: str, more: str) -> Drawing:
    """Changes to the left and to the right of zero; ``less``, ``more``: what the sides mean."""
    said = "; ".join(f"{row.name}: {row.word}" for row in rows)
    drawing = Drawing(width=width, height=0.0, title=title, description=said)
    tail = max((width_of(row.word) for row in rows), default=0.0) + 10.0
    place = _Rows(drawing=drawing, names=[row.name for row in rows], top=24.0, tail=tail)
    low, high = min(0.0, *(row.ratio for row in rows)), max(0.0, *(row.ratio for row in rows))
    scale = place.width / ((high - low) or 1.0)
    zero = place.left - low * scale
    if low < 0.0:
        drawing.text(place.left, 12, f"\u2190 {less}", size=SIZE - 1, colour=MUTED)
    if high > 0.0:
        taken = width_of(f"\u2190 {less}{more} \u2192", SIZE - 1) + 12.0 if low < 0.0 else 0.0
        end = place.left + max(place.width, taken)  # above the figures where bars are too short for both
        drawing.text(end, 12, f"{more} \u2192", size=SIZE - 1, colour=MUTED, anchor="end")
    for row, y in zip(rows, place.put(), strict=True):
        x, end = sorted((zero, zero + row.ratio * scale))
        drawing.rectangle(x, y, max(end - x, 1.0), BAR, RED if row.bad else GREEN if row.ratio < 0 else BLUE,
                          opacity=0.45 if row.bad else 1.0, value=f"{row.name}: {row.word}")
        drawing.text(drawing.width - 2, y + BAR - 4, row.word, size=SIZE, anchor="end", colour=RED if row.bad else INK)
        drawing.segments([((zero, y - 3.0), (zero, y + BAR + 3.0))], MUTED)
    drawing.height = place.bottom + 2
    return drawing


def series(count: int) -> list[str]:
    """Colours of so many parts side by side."""
    return [SERIES[place % len(SERIES)] for place in range(count)]


def round_down(low: float, high: float) -> float:
    """Where a scale begins that has both on it: zero where that costs less than a third of it, else a round value."""
    if low <= 0.34 * high:
        return 0.0
    step = round_up((high - low) / MAX_TICKS) if high > low else 0.1 * high
    return floor(low / step) * step


def _scale(drawing: Drawing, axis: Axis, place: _Rows, label: str) -> None:
    """Lines down the rows at the ticks, their words below."""
    ticks = [(place.left + axis.share(value) * place.width, words) for value, words in axis.ticks]
    for x, words in apart(ticks, SIZE - 1.5):
        drawing.segments([((x, place.top), (x, place.bottom))], GRID)
        half = width_of(words, SIZE - 1) / 2
        middle = min(max(x, half), drawing.width - half)
        drawing.text(middle, place.bottom + 13, words, size=SIZE - 1.5, colour=MUTED, anchor="middle")
    drawing.text(place.left + place.width / 2, place.bottom + 30, label, size=SIZE - 1, colour=MUTED, anchor="middle")


def legend(drawing: Drawing, kinds: Sequence[tuple[str, str]], top: float) -> float:
    """Names with their colours on as many lines as they need; where these end."""
    if not kinds:
        return top
    x, y = 4.0, top + 12
    for name, colour in kinds:
        wide = 16 + width_of(name) + 14
        if x > 4.0 and x + wide > drawing.width:
            x, y = 4.0, y + 18
        drawing.rectangle(x, y - 10, 11, 11, colour)
        drawing.text(x + 16, y, name, size=SIZE, colour=MUTED)
        x += wide
    return y + 6
