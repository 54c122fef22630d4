"""The configuration surface of a framework as a table: every key, its type, and the releases that have it.

One row of ``surface.csv`` is a key: ``key,kind,default,choices,since,until,knob``. ``since`` and ``until`` are releases (empty: the
first, the last); ``knob`` is the layout word that the key expresses (tp, mb, recompute ...): only such keys are ever
changed in a user's file. A key whose type changed has one row for each span.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, get_args

from msgspec import Struct

from meshwright.errors import did_you_mean, fault
from meshwright.frameworks.tables import rows
from meshwright.value import Value

Kind = Literal["switch", "int", "float", "bool", "str", "ints", "floats", "strs", "list", "map", "any"]
"""``switch``: a flag without value. ``ints``, ``floats``, ``strs``: one or more values."""
KINDS = frozenset(get_args(Kind))


class Key(Struct, frozen=True, kw_only=True):
    """A key of a framework over a span of its releases (indices, both included)."""

    name: str
    kind: Kind
    default: str = ""
    """As the framework's source writes it; empty where there is none."""
    choices: tuple[str, ...] = ()
    since: int
    until: int
    knob: str = ""


class Surface(Value, frozen=True, kw_only=True):
    """All keys of a framework over its releases, oldest first."""

    title: str
    releases: tuple[str, ...]
    keys: Mapping[str, tuple[Key, ...]]

    def at(self, release: str) -> Mapping[str, Key]:
        """The keys of one release."""
        index = self.releases.index(release)
        return {name: key for name, spans in self.keys.items() for key in spans if key.since <= index <= key.until}

    def find(self, name: str, release: str) -> Key | None:
        """A key in one release, or None."""
        index = self.releases.index(release)
        return next((key for key in self.keys.get(name, ()) if key.since <= index <= key.until), None)

    def span(self, name: str) -> str:
        """Where a key exists: ``0.12 to 0.13``, ``from 0.14 on``; empty where it never did."""
        spans = self.keys.get(name)
        if not spans:
            return ""
        first, last = min(key.since for key in spans), max(key.until for key in spans)
        if last == len(self.releases) - 1:
            return f"from {self.releases[first]} on" if first else "in all releases"
        if first == last:
            return f"in {self.releases[first]} only"
        return f"{self.releases[first]} to {self.releases[last]}" if first else f"up to {self.releases[last]}"

    def hint(self, name: str, release: str) -> str:
        """What may be said to somebody who used a key that a release lacks."""
        span = self.span(name)
        return f"; it exists {span}" if span else did_you_mean(name, self.at(release))

    def inside(self, name: str, release: str) -> bool:
        """Whether a section above the key takes whatever it holds."""
        parts = name.split(".")
        above = (self.find(".".join(parts[:depth]), release) for depth in range(1, len(parts)))
        return any(each is not None and each.kind in {"map", "any", "list"} for each in above)

    def knobs(self) -> Mapping[str, str]:
        """Key -> layout word, for the keys that express a layout."""
        return {name: knob for name in self.keys if (knob := self.knob(name))}

    def knob(self, name: str) -> str:
        """The layout word that a key expresses; empty where it expresses none."""
        return self.keys[name][-1].knob


def load_surface(package: str, title: str, releases: Sequence[str], file: str = "surface.csv") -> Surface:
    """The table beside a framework's adapter; a malformed one is our mistake."""
    keys: dict[str, list[Key]] = {}
    for key in _keys(rows(package, file), releases):
        keys.setdefault(key.name, []).append(key)
    return Surface(title=title, releases=tuple(releases), keys={name: tuple(spans) for name, spans in keys.items()})


def _keys(table: Sequence[Mapping[str, str]], releases: Sequence[str]) -> Iterator[Key]:
    """The keys of a table."""
    for row in table:
        kind = row["kind"]
        assert kind in KINDS, f"{row['key']} is of unknown kind {kind}"
        yield Key(
            name=row["key"], kind=kind, default=row["default"] or "",  # type: ignore[arg-type]
            choices=tuple(filter(None, (row["choices"] or "").split("|"))),
            since=releases.index(row["since"]) if row["since"] else 0,
            until=releases.index(row["until"]) if row["until"] else len(releases) - 1, knob=row["knob"] or "",
        )


_WORDS = {
    "switch": "no value", "int": "a whole number", "float": "a number", "bool": "true or false", "str": "one word",
    "ints": "whole numbers", "floats": "numbers", "strs": "words", "list": "a list", "map": "a mapping", "any": "anything",
}


def typed(key: Key, value: object, *, strict: bool = False) -> object:
    """A value as the type of its key; texts of flags are converted, values of YAML, JSON and TOML only checked.

    ``strict``: a number in quotes is no number.
    Errors: ``InputError`` with what was wanted.
    """
    wanted = key.kind
    try:
        match wanted:
            case "switch":
                result: object = value if isinstance(value, bool) else _no(value)
            case "int":
                result = _int(value, strict=strict)
            case "float":
                result = _float(value, strict=strict)
            case "bool":
                result = _bool(value, strict=strict)
            case "str":
                result = (
                    value if isinstance(value, str) else _no(value) if isinstance(value, (list, tuple, Mapping)) else str(value)
                )
            case "ints":
                result = tuple(_int(each, strict=strict) for each in _many(value))
            case "floats":
                result = tuple(_float(each, strict=strict) for each in _many(value))
            case "strs":
                result = tuple(str(each) for each in _many(value))
            case "list":
                result = value if isinstance(value, (list, tuple)) else _no(value)
            case "map":
                result = value if isinstance(value, Mapping) else _no(value)
            case _:
                result = value
    except (ValueError, TypeError, OverflowError):
        raise fault("setting.type", "{key} is {value!r}: {wanted} is expected",
                    key=key.name, value=value, wanted=_WORDS[wanted]) from None
    words = result if isinstance(result, tuple) else (result,)
    if key.choices and any(str(word) not in key.choices for word in words):
        odd = next(str(word) for word in words if str(word) not in key.choices)
        raise fault(
            "setting.choice", "{key} is {value!r}: one of {choices} is expected{hint}",
            key=key.name, value=odd, choices=", ".join(key.choices), hint=did_you_mean(odd, key.choices),
        )
    return result


def _no(value: object) -> object:
    raise ValueError(value)


def _int(value: object, *, strict: bool) -> int:
    """A whole number; True is none."""
    if isinstance(value, bool) or (strict and not isinstance(value, int)):
        raise ValueError(value)
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(value)
    return int(value)  # type: ignore[call-overload,no-any-return]


def _float(value: object, *, strict: bool) -> float:
    """A number."""
    if isinstance(value, bool) or (strict and not isinstance(value, (int, float))):
        raise ValueError(value)
    return float(value)  # type: ignore[arg-type]


def _bool(value: object, *, strict: bool) -> bool:
    """A truth value; texts of flags in the spellings that parsers take."""
    if isinstance(value, bool):
        return value
    word = str(value).lower()
    if strict or word not in {"true", "false", "1", "0", "yes", "no"}:
        raise ValueError(value)
    return word in {"true", "1", "yes"}


def _many(value: object) -> Sequence[object]:
    """One or more values."""
    if isinstance(value, (bool, Mapping)) or value is None:
        raise ValueError(value)
    return value if isinstance(value, (list, tuple)) else (value,)
