"""Megatron-LM's flags by release, and a list of arguments that knows which of them its release has."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache

from msgspec import Struct, field

from meshwright.documents.quoting import flags
from meshwright.errors import fault
from meshwright.frameworks.surface import Surface, load_surface

MAIN = 20
"""Minor version of the development branch: later than every release."""
OLDEST = 11
RELEASES = (*(f"0.{minor}" for minor in range(OLDEST, MAIN)), "main")
DEFAULT_VERSION = "0.16"


@cache
def surface() -> Surface:
    """Every flag of the parser of each release (the last patch release; main of 2026-08), as it is spelt."""
    return load_surface(__package__, "Megatron-LM", RELEASES)


class Version(Struct, frozen=True, kw_only=True):
    """A Megatron-LM version: its minor number (0.16 is 16, main is later than all) and its name."""

    minor: int
    name: str


def parse_version(text: str | None) -> Version:
    """``0.16``, ``0.16.1``, ``core_r0.16.0``, ``v0.13`` or ``main``; None is the newest release that is known well."""
    wanted = (text or DEFAULT_VERSION).strip().lower()
    if wanted in {"main", "dev"}:
        return Version(minor=MAIN, name="main")
    found = re.fullmatch(r"(?:core_)?[rv]?0\.([0-9]{1,2})(?:\.[0-9]+)?", wanted)
    minor = int(found[1]) if found else 0
    if not OLDEST <= minor < MAIN:
        raise fault(
            "framework.version", "Megatron-LM version {text!r} is unknown: 0.{oldest} to 0.{newest}, or main",
            text=text, oldest=OLDEST, newest=MAIN - 1,
        )
    return Version(minor=minor, name=f"0.{minor}")


class Arguments(Struct, kw_only=True):
    """Flags with their values, in order, for one version: True for a switch, a tuple for several words."""

    version: Version
    items: dict[str, object] = field(default_factory=dict)

    def add(self, flag: str, *values: object) -> None:
        """Append a flag; one that no version has is our mistake, one that only this one lacks is in ``lacking``."""
        assert flag in surface().keys, f"{flag} is in no version of Megatron-LM"
        assert flag not in self.items, f"{flag} is written twice"
        self.items[flag] = True if not values else values[0] if len(values) == 1 else values

    def add_if(self, condition: object, flag: str, *values: object) -> None:
        """Append a flag where the condition holds."""
        if condition:
            self.add(flag, *values)

    def update(self, values: Mapping[str, object]) -> None:
        """Append flags that were decided elsewhere."""
        for flag, value in values.items():
            self.add(flag, *(() if value is True else value if isinstance(value, tuple) else (value,)))

    def leave_out(self, flags: Collection[str]) -> None:
        """Take out what is among some flags."""
        self.items = {flag: value for flag, value in self.items.items() if flag not in flags}

    def lacking(self) -> tuple[str, ...]:
        """The flags that this version does not have."""
        return tuple(flag for flag in self.items if surface().find(flag, self.version.name) is None)

    def lines(self) -> Iterator[str]:
        """One shell line for each flag."""
        yield from flags(self.items)
