"""TOML in place, through tomlkit: comments, order and spacing stay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import tomlkit
from msgspec import Struct
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Table

from meshwright.documents.source import Setting
from meshwright.errors import fault
from meshwright.readers.safe import refuse_long_numbers

MAX_DEPTH = 60


class TomlDocument(Struct, frozen=True, kw_only=True):
    """A TOML file."""

    path: str
    text: str
    values: Mapping[str, object]

    def settings(self) -> Mapping[str, Setting]:
        """Leaves by dotted key, with their lines."""
        lines = _lines(self.text)
        return {key: Setting(key=key, value=value, file=self.path, line=lines.get(key, 0)) for key, value in _leaves(self.values)}

    def changed(self, edits: Mapping[str, object]) -> str:
        """The text with the edits."""
        document = tomlkit.parse(self.text)
        for key, value in edits.items():
            *sections, name = key.split(".")
            table: tomlkit.TOMLDocument | Table = document
            for section in sections:
                if section not in table:
                    if value is None:
                        break
                    table[section] = tomlkit.table()
                below = table[section]
                if not isinstance(below, Table):
                    raise fault("edit.section", "{section} is no table, so {key} cannot be set in it",
                                path=self.path, section=section, key=key)
                table = below
            else:
                if value is not None:
                    _put(table, name, value)
                elif name in table:
                    table.remove(name)
        return tomlkit.dumps(document)


def _put(table: tomlkit.TOMLDocument | Table, name: str, value: object) -> None:
    """Set a value; the comment behind an old one stays behind the new."""
    old = table.get(name)
    item = tomlkit.item(value)
    if old is not None and hasattr(old, "trivia"):
        item.trivia.comment_ws, item.trivia.comment = old.trivia.comment_ws, old.trivia.comment
        item.trivia.trail = old.trivia.trail
    table[name] = item


def parse_toml(text: str, *, path: str = "") -> TomlDocument:
    """A TOML document."""
    if any(line.count("[") > MAX_DEPTH for line in text.splitlines()):
        raise fault("toml.depth", "nested too deeply", path=path)
    refuse_long_numbers(text, path)
    try:
        values = tomlkit.parse(text).unwrap()
    except (TOMLKitError, ValueError, RecursionError) as error:
        raise fault("toml.malformed", "not TOML: {reason}", path=path, reason=" ".join(str(error).split())) from None
    return TomlDocument(path=path, text=text, values=values)


def _leaves(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Leaves of nested tables."""
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _lines(text: str) -> dict[str, int]:
    """Line of each plain ``key = value`` below its ``[table]``; tomlkit keeps no positions."""
    found: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if stripped.startswith("[") and not stripped.startswith("[["):
            section = stripped.split("]")[0].strip("[ ").replace('"', "") + "."
        elif "=" in stripped and not stripped.startswith("#"):
            found.setdefault(section + stripped.split("=")[0].strip().strip('"'), number)
    return found
