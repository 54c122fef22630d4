"""What checks of files ask of a reading, and what they say of a setting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.documents.source import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.documents.source import Setting
    from meshwright.frameworks.base import Values
    from meshwright.frameworks.settings import Reading

MAX_DIGITS = 19
"""Of a number that a framework could hold."""


def at(setting: Setting | None, expected: object, /, **more: object) -> Values:
    """The values of a finding: what stands there (or another ``value``), what would be right, the place, and more for its words."""
    here = {"value": setting.value, "path": setting.place} if setting else {"value": None, "path": ""}
    return {**here, "expected": expected, **more}


def place_of(reading: Reading, *keys: str) -> str:
    """Where the first of some keys stands; empty where none does."""
    settings = (reading.source.setting(key) for key in keys)
    return next((setting.place for setting in settings if setting is not None), "")


def count_of(reading: Reading, key: str, default: int) -> int:
    """A whole number of the files; the default where it is absent or something else."""
    value = reading.source.value(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def is_true(value: object) -> bool:
    """Whether a value is the truth value, not a word or a number for it."""
    return value is True


def is_not_true(value: object) -> bool:
    """Whether a value is anything but the truth value; where a key is absent it is None."""
    return value is not True


def is_false(value: object) -> bool:
    """Whether a value is the truth value, not an empty word or 0."""
    return value is False


def above(count: int) -> Callable[[object], bool]:
    """Whether a value is a whole number above a count; True is none."""
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and value > count


def equal(*words: object) -> Callable[[object], bool]:
    """Whether a value is one of some, of the same type: True is not 1."""
    return lambda value: any(type(value) is type(word) and value == word for word in words)


def other_than(*words: object) -> Callable[[object], bool]:
    """Whether a value is none of some."""
    return lambda value: all(value != word for word in words)


def whole(value: object) -> int | None:
    """A count as text has it; None for anything else, and for digits that are no number of anything (19 and more, or not ASCII)."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < MAX_DIGITS else None


def differs(variable: Setting | None, wanted: str) -> bool:
    """Whether a variable is something else: one that is not set is, one that only the machine of the run knows is not."""
    return variable is None or (variable.value is not UNKNOWN and str(variable.value) != wanted)
