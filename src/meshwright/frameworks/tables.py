"""Tables of facts beside an adapter."""

from __future__ import annotations

import csv
from importlib import import_module
from pathlib import Path


def rows(package: str, file: str) -> list[dict[str, str]]:
    """The rows of a CSV file in a package, by the names of its first line; a line that begins with ``#`` is a remark."""
    text = Path(import_module(package).__path__[0], file).read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
