"""Values of files that nobody promises: each is what it should be, or it is not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite

MOST = 1e20
"""Larger than any figure of a run."""
MOST_RANKS = 10**7
"""More than any run has."""


def number(value: object) -> float | None:
    """A finite number of bounded size, also from its text."""
    if isinstance(value, str) and len(value) <= 40:
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -MOST <= value <= MOST or not isfinite(value):
        return None
    return float(value)


def amount(value: object) -> float | None:
    """A number that is not negative."""
    found = number(value)
    return found if found is not None and found >= 0 else None


def whole(value: object) -> int | None:
    """A whole number of bounded size, also from its text."""
    if isinstance(value, str) and 0 < len(value) <= 20 and value.removeprefix("-").isascii() and value.removeprefix("-").isdigit():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 2**64 else None


def counted(value: object, most: int = 2**64) -> int | None:
    """A whole number that is not negative: how many there are, or which."""
    found = whole(value)
    return found if found is not None and 0 <= found <= most else None


def flag(value: object) -> bool:
    """True, also from its text."""
    return value is True or (isinstance(value, str) and value.lower() == "true")


def text(value: object, longest: int = 200) -> str:
    """A text, cut; of another scalar its figures; else empty."""
    return value[:longest] if isinstance(value, str) else str(value) if whole(value) is not None else ""


def mapping(value: object) -> Mapping[object, object]:
    """A mapping, or an empty one."""
    return value if isinstance(value, Mapping) else {}


def sequence(value: object) -> Sequence[object]:
    """A list, or an empty one; a text is none."""
    return value if isinstance(value, (list, tuple)) else ()
