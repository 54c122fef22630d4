"""JSON of the YAML files of this package, read in a twentieth of the time: ``python -m meshwright.readers.deriving`` writes it.

A test holds it current; ``shipped.load_shipped`` reads it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from meshwright.readers.shipped import derived_path
from meshwright.readers.shipped_yaml import parsed

if TYPE_CHECKING:
    from collections.abc import Iterator


def files() -> Iterator[Path]:
    """All YAML files of this package."""
    return Path(__file__).parents[1].rglob("*.yaml")


def derived(content: bytes) -> str:
    """What ``shipped.Derived`` is read from."""
    found = {"checksum": crc32(content), "document": parsed(content)}
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")) + "\n"


if __name__ == "__main__":
    for each in files():
        path = derived_path(each)
        path.parent.mkdir(exist_ok=True)
        path.write_text(derived(each.read_bytes()), encoding="utf-8")
