"""Files of this package, which hold no surprise: read faster than those of strangers."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from msgspec import Struct
from msgspec.json import Decoder

if TYPE_CHECKING:
    from pathlib import Path


class Derived(Struct, frozen=True):
    """A document of YAML as JSON."""

    checksum: int
    """Of the bytes of the YAML."""
    document: object


_DECODER = Decoder(Derived)


def load_shipped(path: Path) -> object:
    """The one document of a YAML file of this package: from its JSON, or from itself where that is not of these bytes."""
    content = path.read_bytes()
    try:
        derived = _DECODER.decode(derived_path(path).read_bytes())
    except FileNotFoundError:
        derived = None
    if derived is None or derived.checksum != crc32(content):
        from meshwright.readers.shipped_yaml import parsed

        return parsed(content)
    return derived.document


def derived_path(path: Path) -> Path:
    """Where the JSON of a YAML file of this package stands."""
    return path.parent / "derived" / f"{path.stem}.json"
