"""Numbers of SAPP's files: amounts that are not negative, keys that are known, lists by stage and by round."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from meshwright.errors import did_you_mean
from meshwright.readers.limits import MAX_NUMBER
from meshwright.text import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.readers.fields import Fields

MAX_LABEL = 60


def amount(fields: Fields, name: str, *, default: float | None = None, minimum: float = 0.0, above: bool = False) -> float:
    """A finite number of at least ``minimum`` (greater with ``above``); missing without a default is a fault."""
    if not fields.has(name):
        if default is None:
            fields.fault(name, "config.missing", "is missing")
            return minimum
        return default
    value = fields.data[name]
    problem = number_fault(value)
    if problem:
        fields.fault(name, "config.number", "{value} {problem}", value=shown(value), problem=problem)
    elif not isinstance(value, (int, float)) or value < minimum or (above and value == minimum):
        bound = f"greater than {minimum:g}" if above else f"{minimum:g} or more"
        fields.fault(name, "config.amount", "{value} is out of range: it must be {bound}", value=shown(value), bound=bound)
    else:
        return float(value)
    return minimum


def number_fault(value: object) -> str:
    """What is wrong with a value as a number; empty: nothing."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"is not a number{_hint(value)}"
    if isinstance(value, float) and not math.isfinite(value):
        return "is not finite"
    return "is larger than any amount" if abs(value) > MAX_NUMBER else ""


def _hint(value: object) -> str:
    """What is wrong with text that looks like a number."""
    try:
        number = float(value) if isinstance(value, str) else math.nan
    except ValueError:
        return ""
    if not math.isfinite(number):
        return ""
    return f"; YAML reads it as text, write {number!r}" if "e" in str(value).lower() else "; remove the quotes"


def whole(value: object) -> bool:
    """Whether a value is a whole number of a harmless size (true and false are not)."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_NUMBER


def label(key: str) -> str:
    """A key for a message's path: quoted where it is long or would break the line."""
    return key if key.isprintable() and len(key) <= MAX_LABEL else shown(key)


def known_keys(fields: Fields, known: Sequence[str], hints: dict[str, str] | None = None) -> None:
    """Remember a fault for every key that nobody reads."""
    for key in sorted(set(map(str, fields.data)) - set(known)):
        hint = (hints or {}).get(key) or did_you_mean(key, known)
        fields.fault(label(key), "key.unknown", "is no known key{hint}; known: {known}", hint=hint, known=", ".join(known))
