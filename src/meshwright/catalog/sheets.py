"""A sheet of the catalogue: a YAML file with a table of sources and blocks of devices, clusters or models."""

from __future__ import annotations

from functools import cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from meshwright.errors import InputError, Message, did_you_mean, fault, nearest
from meshwright.readers.names import name_fault
from meshwright.readers.safe import require_mapping
from meshwright.readers.shipped import load_shipped
from meshwright.text import kind, shown
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SECTIONS = ("sources", "devices", "clusters", "models", "measured")


class Sheet(Value, frozen=True, kw_only=True):
    """The sections of one file, not yet structured."""

    path: str
    sources: Mapping[str, str]
    devices: Mapping[str, object]
    clusters: Mapping[str, object]
    models: Mapping[str, object]
    measured: Mapping[str, object]
    """Name of a cluster of this sheet -> what a profile found on it."""
    shipped: bool = False
    """Whether it is a file of this package."""

    def where(self, section: str, name: str) -> str:
        """The path of a block for messages."""
        return f"{self.path}: {section}.{name}"


def data_path(name: str) -> Path:
    """A file that ships with the catalogue."""
    return Path(__file__).parent / "data" / name


def read_sheet(path: Path | str) -> Sheet:
    """A sheet from a file; a wrong section name or a section without names is refused, all at once."""
    from meshwright.readers.safe_yaml import load_yaml  # the catalogue's own sheets need no reader of YAML

    return _sheet(load_yaml(path), path)


def _sheet(loaded: object, path: Path | str, *, shipped: bool = False) -> Sheet:
    """The sheet that a document is."""
    document = require_mapping(loaded, str(path))
    faults: list[Message] = []
    sections: dict[str, dict[str, object]] = {section: {} for section in SECTIONS}
    for key, value in document.items():
        if key not in SECTIONS:
            hint = {"hint": did_you_mean(key, SECTIONS), "known": SECTIONS}
            faults.append(Message("sheet.section", "is no known section{hint}; known: {known}", hint, f"{path}: {key}"))
        elif not isinstance(value, dict):
            template = "holds {kind}: names with blocks of keys below them are expected"
            faults.append(Message("sheet.mapping", template, {"kind": kind(value)}, f"{path}: {key}"))
        elif odd := [name for name in value if not isinstance(name, str)]:
            faults.append(Message("sheet.name", "{name} is not text; put it in quotes", {"name": shown(odd[0])}, f"{path}: {key}"))
        else:
            sections[key] = value
            faults += [wrong for name in value if (wrong := name_fault(name, f"{path}: {key}"))]
    faults += [
        Message("sheet.source", "{value} is not text", {"value": shown(value)}, f"{path}: sources.{key}")
        for key, value in sections["sources"].items()
        if not isinstance(value, str)
    ]
    for name in sections["measured"]:
        if name not in sections["clusters"]:
            near = {"hint": did_you_mean(name, sections["clusters"])}
            faults.append(Message("sheet.measured", "is no cluster of this file{hint}", near, f"{path}: measured.{name}"))
    if faults:
        raise InputError(faults)
    sources = {key: str(value) for key, value in sections.pop("sources").items()}
    return Sheet(path=str(path), sources=sources, shipped=shipped, **sections)


@cache
def shipped(name: str) -> Sheet:
    """A sheet of the catalogue, read once."""
    path = data_path(name)
    return _sheet(load_shipped(path), path, shipped=True)


class Names:
    """Names and aliases of one section, in any case of letters."""

    def __init__(self, noun: str, aliases: Mapping[str, Iterable[str]], listing: str = "") -> None:
        """Keep every spelling; one that means two things is our mistake. ``listing``: the command that shows them all."""
        self.noun, self.listing = noun, listing
        self.names = tuple(sorted(aliases))
        self._aliases = {name: tuple(others) for name, others in aliases.items()}
        self._canonical: dict[str, str] = {}
        for name, others in self._aliases.items():
            for spelling in (name, *others):
                known = self._canonical.setdefault(spelling.lower(), name)
                assert known == name, f"{noun} {spelling!r} means {known} and {name}"

    def spellings(self, name: str) -> tuple[str, ...]:
        """The aliases of a name, as they are written; none for a name that is not known."""
        return self._aliases.get(name, ())

    def find(self, spelling: str) -> str | None:
        """The name behind a spelling, or None; an ``InputError`` for what is no text."""
        if not isinstance(spelling, str | PurePath):
            raise fault("catalog.kind", "a {noun} is named by a text, not by {kind}", noun=self.noun, kind=kind(spelling))
        return self._canonical.get(str(spelling).strip().lower())

    def near(self, spelling: str, others: Iterable[str] = ()) -> str:
        """The names that a spelling may have meant, and how to see the rest; ``others`` are known beside them."""
        return nearest(spelling, [*self._canonical, *others], self.listing, self._canonical)

    def resolve(self, spelling: str) -> str:
        """The name behind a spelling, or an ``InputError`` with what is near."""
        name = self.find(spelling)
        if name is None:
            raise fault("catalog.unknown", "unknown {noun} {name!r}{hint}", noun=self.noun, name=spelling, hint=self.near(spelling))
        return name


def aliases_of(blocks: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """The aliases of every block, without structuring the rest of it."""
    return {
        name: tuple(str(alias) for alias in block.get("aliases") or ()) if isinstance(block, dict) else ()
        for name, block in blocks.items()
    }


def looks_like_path(name: str) -> bool:
    """Whether a name that the catalogue does not know is meant as a file."""
    if name.lower().endswith((".yaml", ".yml", ".json")) or name.startswith((".", "/", "~")):
        return True
    try:
        return bool(name.strip()) and Path(name).exists()
    except (OSError, ValueError):  # too long for a file name, or with a zero byte
        return False
