"""Figures as a person reads them; base units inside, units of people outside."""

from __future__ import annotations

import re

from meshwright.units import FACTORS, GIB, MICRO, MILLI, TERA, count, gib

__all__ = [
    "about", "bare_gib", "chance", "count", "gib", "gib_of", "integer", "list_of", "narrow_chance",
    "percent", "plural", "rate", "seconds", "signed", "speed", "tflops", "unitless",
]

_SMALL = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_LIST_FULL = 3


_OTHER_UNITS = ("%", "FLOP", "TFLOP", "tokens/s", "samples/s", "h", "min", "days", "day", "device-hours", "kWh", "MWh")
"""Units that no figure of the catalogue has."""
_UNITS = "|".join(map(re.escape, sorted({*FACTORS, *_OTHER_UNITS} - {"1", "ratio", "count"}, key=len, reverse=True)))
BEFORE_UNIT = re.compile(rf"(?:(?<=\d)|(?<=\d[KMBT])) (?=(?:{_UNITS})(?![\w-]))")
"""The blank between a figure and its unit, where no line is broken."""


def percent(ratio: float, digits: int = 1) -> str:
    """A ratio as percent."""
    return f"{100 * ratio:z.{digits}f} %"


def chance(ratio: float) -> str:
    """A probability; only what is certain is 0 or 100 %."""
    if 0.0 < ratio < 0.01:
        return "under 1 %"
    return "over 99 %" if 0.99 < ratio < 1.0 else percent(ratio, 0)


def narrow_chance(ratio: float) -> str:
    """A probability in a narrow column; only what is certain is 100 %."""
    return "> 99 %" if 0.99 < ratio < 1.0 else percent(ratio, 0)


def signed(ratio: float, digits: int = 1) -> str:
    """A change as percent, with its sign.

    >>> signed(0.014), signed(-0.2)
    ('+1.4 %', '-20.0 %')
    """
    return f"{100 * ratio:+z.{digits}f} %"


def integer(value: float) -> str:
    """A count with thousands separators."""
    return f"{value:z,.0f}"


def about(value: float) -> str:
    """A rough figure: two significant ones below ten, whole ones above."""
    return f"{value:.2g}" if value < 10 else integer(value)


def seconds(value_s: float) -> str:
    """Seconds as us, ms or s, always with three significant figures, so that columns of them line up."""
    magnitude = abs(value_s)
    if magnitude >= 999.5:
        return f"{value_s:z,.0f} s"
    scale, unit = (1.0, "s") if magnitude >= 0.9995 or not magnitude else (MILLI, "ms")
    scale, unit = (MICRO, "us") if 0 < magnitude < 0.9995 * MILLI else (scale, unit)
    return f"{value_s / scale:z#.3g}".rstrip(".") + f" {unit}" if magnitude else "0 s"


def rate(value: float) -> str:
    """A rate: separators below a hundred thousand, a suffix above."""
    return speed(value) if value < 1e5 else count(value)


def speed(value: float) -> str:
    """A rate to the last whole one; three significant figures below ten.

    >>> speed(2.41), speed(9.999), speed(267264.0)
    ('2.41', '10', '267,264')
    """
    return f"{value:z.3g}" if value < 10 else integer(value)


def tflops(flops_per_s: float) -> str:
    """A speed in TFLOP/s."""
    return f"{flops_per_s / TERA:z,.4g} TFLOP/s"


def gib_of(part_bytes: float, whole_bytes: float) -> str:
    """``61.2 / 79.1 GiB``."""
    return f"{part_bytes / GIB:z.1f} / {whole_bytes / GIB:z.1f} GiB"


def bare_gib(value_bytes: float, digits: int = 1) -> str:
    """A size in GiB without the unit, which its column names."""
    return f"{value_bytes / GIB:z.{digits}f}"


def unitless(value: float) -> str:
    """A figure in units of whoever asked: four significant figures or more, separators."""
    return f"{value:z,.0f}" if abs(value) >= 1000 or value == round(value) else f"{value:z.4g}"


def plural(number: int, noun: str, many: str = "") -> str:
    """``1 node``, ``64 nodes``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {many or noun + 's'}"


def small(number: int) -> str:
    """A count as a word below ten."""
    return _SMALL[number] if 0 <= number < len(_SMALL) else str(number)


def list_of(numbers: list[int]) -> str:
    """``1-3`` for neighbours, else ``1, 3, 4``."""
    if len(numbers) >= _LIST_FULL and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]}-{numbers[-1]}"
    return ", ".join(map(str, numbers))
