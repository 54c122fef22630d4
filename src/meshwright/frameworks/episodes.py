"""What files say of a step of reinforcement learning, value by value: None of what is wrong, absent, or only known to the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.readers.pairs import number as number_of

if TYPE_CHECKING:
    from meshwright.frameworks.settings import Reading


def number(reading: Reading, key: str, default: float | None = None) -> float | None:
    """A number, which flags have as text; the framework's default where the files are silent."""
    value = reading.source.value(key, default)
    if isinstance(value, str):
        return number_of(value)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def whole(reading: Reading, key: str, default: int | None = None) -> int | None:
    """A whole number of at least 1."""
    value = number(reading, key, default)
    return int(value) if value is not None and value >= 1 and value == int(value) else None


def share(reading: Reading, key: str, default: float | None = None) -> float | None:
    """A share of a device's memory."""
    value = number(reading, key, default)
    return value if value is not None and 0.0 < value <= 1.0 else None
