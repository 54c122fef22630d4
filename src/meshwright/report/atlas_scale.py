"""The colours of an atlas: light and dark rise with the value, so that they are read in print and by the colour-blind, too."""

from __future__ import annotations

from math import log

STOPS = ("#3b1c5a", "#414487", "#2f6b8e", "#22908c", "#46b87a", "#a5d63f", "#f6e626")
"""From low to high, in equal steps."""
COLD, MIDDLE, WARM = "#2b66b1", "#f4f4f2", "#b4362b"
"""Of ratios: below one, one, above."""
DARK_INK, LIGHT_INK = "#010101", "#fffffe"
"""Words on the colours: one of them is read on any. Not those of a page, which changes its own by night."""
EMPTY, MUTED_INK = "#e9ebee", "#51585f"


def ramp(share: float) -> str:
    """The colour of a share of the scale, 0 to 1.

    >>> ramp(0.0), ramp(1.0)
    ('#3b1c5a', '#f6e626')
    """
    place = min(1.0, max(0.0, share)) * (len(STOPS) - 1)
    at = min(int(place), len(STOPS) - 2)
    return mixed(STOPS[at], STOPS[at + 1], place - at)


def diverging(ratio: float, most: float = 2.0) -> str:
    """The colour of a ratio: cold below one, warm above, full at ``most`` times more or less."""
    share = max(-1.0, min(1.0, log(ratio) / log(most)))
    return mixed(MIDDLE, WARM if share > 0 else COLD, abs(share))


def mixed(one: str, other: str, share: float) -> str:
    """A colour between two."""
    parts = [(int(one[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in parts)


def luminance(colour: str) -> float:
    """Relative luminance, 0 to 1 (WCAG 2.2)."""
    linear = []
    for at in (1, 3, 5):
        value = int(colour[at : at + 2], 16) / 255
        linear.append(value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4)
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """How far two colours are apart for a reader, 1 to 21 (WCAG 2.2)."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def ink_on(colour: str) -> str:
    """Dark or light words, whichever are read better on a colour."""
    return max((DARK_INK, LIGHT_INK), key=lambda ink: contrast(ink, colour))


def share_of(value: float, top: float) -> float:
    """Where a value lies between nought and the highest of an atlas."""
    return value / top if top > 0 else 0.0
