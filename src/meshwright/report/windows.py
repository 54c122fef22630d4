"""A long time on a short line: all of it, or its beginning and its end with a gap between them."""

from __future__ import annotations

from math import floor, log10

from meshwright.value import Value


class Window(Value, frozen=True, kw_only=True):
    """Times from begin to end at pixels from left to right."""

    begin: float
    end: float
    left: float
    right: float

    def at(self, time: float) -> float:
        """The pixel of a time, held inside."""
        inside = min(max(time, self.begin), self.end)
        length = self.end - self.begin
        return self.left + (inside - self.begin) * (self.right - self.left) / length if length > 0 else self.left

    def ticks(self, most: int = 6) -> list[float]:
        """Round times in steps of 1, 2 or 5."""
        length = self.end - self.begin
        if length <= 0:
            return [self.begin]
        power = 10.0 ** floor(log10(length / most))
        step = next(factor * power for factor in (1, 2, 5, 10) if length / (factor * power) <= most)
        first = -int(-self.begin // step)
        return [number * step for number in range(first, first + most + 1) if self.begin <= number * step <= self.end * (1 + 1e-12)]


class Widths(Value, frozen=True, kw_only=True):
    """Pixels of a slot, and between two windows."""

    least: float = 2.0
    """Of a slot that can be seen."""
    enough: float = 4.0
    """Of slots that need no cut."""
    good: float = 7.0
    """Of slots once a line is cut."""
    gap: float = 36.0


def windows(length: float, slot: float, wanted: float, *, left: float, right: float, widths: Widths, cut: bool) -> list[Window]:
    """One window where slots are wide enough; else (or where ``cut``) two, of the wanted time as far as slots can be seen then."""
    room = right - left
    if not cut and (length <= 0 or slot <= 0 or slot * room / length >= widths.enough):
        return [Window(begin=0.0, end=length, left=left, right=right)]
    half = (room - widths.gap) / 2
    shown = min(max(half / widths.good * slot, wanted), half / widths.least * slot, length / 2)
    return [
        Window(begin=0.0, end=shown, left=left, right=left + half),
        Window(begin=length - shown, end=length, left=right - half, right=right),
    ]
