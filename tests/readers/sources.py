"""Files of tests: written, read, and broken in every way that files break."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path

from meshwright.errors import MeshwrightError
from meshwright.readers.formats import Format
from meshwright.readers.source import Source


def source(directory: Path, content: bytes | str, name: str = "file") -> Source:
    path = directory / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Source(path)


def reads(format: Format, directory: Path, content: bytes | str, name: str = "file") -> tuple:
    """What the format reads of the content; the content must be told to be of it."""
    given = source(directory, content, name)
    assert format.told(given.sample)
    return format.read(given)


def survives(format: Format, directory: Path, content: bytes) -> tuple:
    """What is read of content that may be anything: values with finite figures, or one clear line."""
    given = source(directory, content)
    format.told(given.sample)
    try:
        found = format.read(given)
    except MeshwrightError as error:
        assert len(error.messages) == 1
        assert "\n" not in str(error)
        return ()
    for each in found:
        finite(each)
    return found


def finite(value: object) -> None:
    """Every figure anywhere in a value is finite."""
    if is_dataclass(value):
        for each in fields(value):
            finite(getattr(value, each.name))
    elif isinstance(value, Mapping):
        for each in value.values():
            finite(each)
    elif isinstance(value, (tuple, list)):
        for each in value:
            finite(each)
    elif isinstance(value, float):
        assert math.isfinite(value)
