"""Keys that say one value of a layout and nothing else, as rows: what a row writes is what it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from meshwright.domain.layout import Layout

if TYPE_CHECKING:
    from meshwright.frameworks.compose import Values
    from meshwright.frameworks.planned import Planned

NOT = {True: False, False: True}
"""Words of a switch that is on where the knob is off."""
_PLAIN = Layout()


class Says(Struct, frozen=True):
    """A key and what it says: a knob of ``Layout`` (``overlap.tensor`` for one of its overlaps), or what follows from a plan.

    A knob is read back by the same row; what a function gives is only written.
    """

    key: str
    what: str | Callable[[Planned], object]
    words: Mapping[Any, Any] = field(default_factory=dict)
    """Value -> the framework's word for it; none where the value stands there as it is."""
    default: object = None
    """The knob where the key is absent or no such word; None: that of a plain layout."""
    when: Callable[[Planned], object] | None = None
    """Where the key is written; None: always."""
    also: tuple[str, ...] = ()
    """Other keys that say the same, and are only read."""


def decided(rows: Iterable[Says], plan: Planned) -> dict[str, object]:
    """Key -> value of the rows that a plan writes, in their order; what has no value (None) is absent."""
    found: dict[str, object] = {}
    for row in rows:
        if row.when is None or row.when(plan):
            value = row.what(plan) if callable(row.what) else attrgetter(row.what)(plan.layout)
            if value is not None:
                found[row.key] = row.words[value] if row.words else value
    return found


def switched_on(settings: Mapping[str, object]) -> dict[str, object]:
    """Settings of a command line, on which a switch that is off does not stand."""
    return {key: value for key, value in settings.items() if value is not False}


def told(rows: Iterable[Says], values: Values, knob: str) -> Any:
    """What files say of a knob, by the key of its row: a degree, a truth value or a word.

    Errors: what is no such value is noted in ``values`` and reads as absent.
    """
    row, plain = _row(rows, knob), attrgetter(knob)(_PLAIN)
    key, default = values.first((row.key, *row.also)) or row.key, plain if row.default is None else row.default
    if isinstance(default, bool):
        value = values.bool(key, row.words.get(default, default))
        return row.words.get(value, value)
    if row.words:
        word = values.text(key, row.words[default])
        return next((value for value, known in row.words.items() if known == word), default)
    return values.degree(key)


def spellings(rows: Iterable[Says], knob: str) -> tuple[str, ...]:
    """All keys that say a knob, the framework's own first."""
    row = _row(rows, knob)
    return (row.key, *row.also)


def _row(rows: Iterable[Says], knob: str) -> Says:
    return next(row for row in rows if row.what == knob)
