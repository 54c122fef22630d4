"""Configuration files that a launch names: read without them, a script would have the framework's defaults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from meshwright.documents.launch import LaunchDocument
from meshwright.documents.opening import is_script
from meshwright.documents.source import UNKNOWN
from meshwright.errors import Message

if TYPE_CHECKING:
    from meshwright.documents.source import Source


def missing_file(source: Source, keys: Sequence[str]) -> Message | None:
    """What to give, where the launch names a configuration file and only scripts were given; one that a script writes is there."""
    if any(not is_script(document.path) for document in source.documents):
        return None
    if any(document.shell.embedded for document in _launches(source)):
        return None
    for key, value, place in _named(source, keys):
        name = "a file that only the run knows" if value is UNKNOWN or not isinstance(value, str) else value
        return Message(
            "import.config-file", "{key} names {name}, where the layout stands: give that file as well",
            {"key": key, "name": name}, path=place,
        )
    return None


def _launches(source: Source) -> Iterator[LaunchDocument]:
    """The scripts, also where a framework reads their flags in its own way."""
    for document in source.documents:
        for each in (document, getattr(document, "launch", None), getattr(document, "script", None)):
            if isinstance(each, LaunchDocument):
                yield each


def _named(source: Source, keys: Sequence[str]) -> Iterator[tuple[str, object, str]]:
    """Key, value and place of the files that settings and launchers name."""
    for key in keys:
        setting = source.settings.get(key)
        if setting is not None and setting.value not in (None, True):
            yield key, setting.value, setting.place
        for launch in _launches(source):
            word = launch.shell.launch.launcher_options.get(key)
            if word is not None:
                yield f"--{key}", word.text if word.known else UNKNOWN, f"{launch.path}:{word.line}"
