"""Tables of facts beside an adapter."""

from __future__ import annotations

import csv
from functools import cache
from importlib import import_module
from pathlib import Path

TAKES = {"accelerate": "deepspeed", "megatron-deepspeed": "deepspeed"}
"""Framework -> the other one whose file it takes as well: all of its keys that are no flags."""


def rows(package: str, file: str) -> list[dict[str, str]]:
    """The rows of a CSV file in a package, by the names of its first line; a line that begins with ``#`` is a remark."""
    text = Path(import_module(package).__path__[0], file).read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


@cache
def table_keys(name: str) -> frozenset[str]:
    """The keys of a framework of this package over all of its releases, read without its adapter.

    Holds:   those of its ``surface``.
    """
    text = (Path(__file__).parent / name.replace("-", "_") / "surface.csv").read_text(encoding="utf-8")
    _, *table = csv.reader(line for line in text.splitlines() if not line.startswith("#"))
    keys = frozenset(row[0] for row in table if row)
    return keys | {key for key in table_keys(TAKES[name]) if not key.startswith("-")} if name in TAKES else keys
