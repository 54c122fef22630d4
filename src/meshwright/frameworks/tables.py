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
def table_keys(name: str, release: str = "") -> frozenset[str]:
    """The keys of a framework of this package over all of its releases, or of one, read without its adapter.

    ``takes.csv`` beside the table names the frameworks whose files it takes as well, with all of their keys that are no flags, and
    what stands before these here; where it names a release of them, with all keys of that release.

    Holds:   those of its ``surface``.
    """
    folder = Path(__file__).parent / name.replace("-", "_")
    keys, takes = (row[0] for row in _rows(folder / "surface.csv") if _had(row, release)), folder / "takes.csv"
    others = [(*row, "", "")[:3] for row in _rows(takes)] if takes.exists() else []
    return frozenset(keys).union(
        *({before + key for key in table_keys(other, at) if at or not key.startswith("-")} for other, before, at in others))


def _had(row: list[str], release: str) -> bool:
    """Whether a row of a surface is of a release; every row is of all of them together."""
    since, until = row[4:6] if release else ("", "")
    return (not since or _order(since) <= _order(release)) and (not until or _order(release) <= _order(until))


def _order(release: str) -> tuple[bool, tuple[int, ...]]:
    """
    >>> sorted(("main", "0.16", "0.9"), key=_order)
    ['0.9', '0.16', 'main']
    """
    numbers = release.split(".")
    return not all(map(str.isdigit, numbers)), tuple(int(each) for each in numbers if each.isdigit())


def _rows(path: Path) -> list[list[str]]:
    """The rows of a table below its first."""
    text = path.read_text(encoding="utf-8")
    _, *table = csv.reader(line for line in text.splitlines() if not line.startswith("#"))
    return [row for row in table if row]
