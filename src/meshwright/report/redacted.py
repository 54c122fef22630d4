"""A report with hosts, keys and paths blanked in every text of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from meshwright.diagnose.redact import redacted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Value = TypeVar("Value")


def blanked(parts: Iterable[Value]) -> Iterator[Value]:
    """Sections and blocks, every text of theirs redacted."""
    return map(_plain, parts)


def _plain(value: Value) -> Value:
    """A value, every text in it redacted."""
    found: object = value
    if isinstance(value, str):
        found = redacted(value)
    elif isinstance(value, tuple | list):
        found = type(value)(map(_plain, value))
    elif isinstance(value, Mapping):
        found = {_plain(key): _plain(each) for key, each in value.items()}
    elif is_dataclass(value) and not isinstance(value, type):
        found = replace(value, **{each.name: _plain(getattr(value, each.name)) for each in fields(value)})
    return found  # type: ignore[return-value]
