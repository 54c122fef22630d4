"""Tables of facts beside an adapter."""

from __future__ import annotations

import csv
from functools import cache
from importlib import import_module
from pathlib import Path


def rows(package: str, file: str) -> list[dict[str, str]]:
    """The rows of a CSV file in a package, by the names of its first line; a line that begins with ``#`` is a remark."""
    text = Path(import_module(package).__path__[0], file).read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


@cache
def table_keys(name: str) -> frozenset[str]:
    """The keys of a framework of this package over all of its releases, read without its adapter.

    ``takes.csv`` beside the table names the frameworks whose files it takes as well, with all of their keys that are no flags, and
    what stands before these here.

    Holds:   those of its ``surface``.
    """
    folder = Path(__file__).parent / name.replace("-", "_")
    keys, takes = (row[0] for row in _rows(folder / "surface.csv")), folder / "takes.csv"
    others = [(name, before) for name, *rest in _rows(takes) for before in rest or [""]] if takes.exists() else []
    return frozenset(keys).union(
        *({before + key for key in table_keys(other) if not key.startswith("-")} for other, before in others))


def _rows(path: Path) -> list[list[str]]:
    """The rows of a table below its first."""
    text = path.read_text(encoding="utf-8")
    _, *table = csv.reader(line for line in text.splitlines() if not line.startswith("#"))
    return [row for row in table if row]
