"""Configuration files that a launch names: read without them, a script would have the framework's defaults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from meshwright.documents.launch import LaunchDocument, flags
from meshwright.documents.opening import is_script
from meshwright.documents.source import UNKNOWN
from meshwright.errors import Message

if TYPE_CHECKING:
    from meshwright.documents.shell_launch import Word
    from meshwright.documents.source import Source


ASKED_FOR = frozenset({"import.config-file", "import.program-file"})
"""Messages that a file which the launch names has to be given."""


def missing_file(source: Source, keys: Sequence[str]) -> Message | None:
    """What to give, where the launch names a configuration file and only scripts were given; one that a script writes is there."""
    if any(not is_script(document.path) for document in source.documents):
        return None
    if any(document.shell.embedded for document in launches(source)):
        return None
    for key, value, place in _named(source, keys):
        name = value if isinstance(value, str) else "a file that only the run knows"
        return Message(
            "import.config-file", "{key} names {name}, where the layout stands: give that file as well",
            {"key": key, "name": name}, path=place,
        )
    return None


def launches(source: Source) -> Iterator[LaunchDocument]:
    """The scripts, also where a framework reads their flags in its own way."""
    for document in source.documents:
        inner: object = document
        while (below := getattr(inner, "inner", None)) is not None:
            inner = below
        for each in (inner, getattr(inner, "launch", None), getattr(inner, "script", None)):
            if isinstance(each, LaunchDocument):
                yield each


def started(source: Source) -> tuple[str, str] | None:
    """The Python program that a launch starts and where, of scripts that are given alone; None where another file is there, or
    the script writes one."""
    if any(not is_script(document.path) for document in source.documents):
        return None
    if any(document.shell.embedded for document in launches(source)):
        return None
    for launch in launches(source):
        word = launch.shell.launch.program
        if word is not None and (name := name_of(word)) is not None and name.endswith(".py"):
            return name, f"{launch.path}:{word.line}"
    return None


def name_of(word: Word) -> str | None:
    """A path as the script says it, or where only the run knows its folder, what stands behind that."""
    if word.known:
        return word.text
    last = word.part.pieces[-1] if word.part.pieces else None
    tail = last.text.rpartition("/")[2] if last is not None and not last.unknown else ""
    return tail or None


def _named(source: Source, keys: Sequence[str]) -> Iterator[tuple[str, object, str]]:
    """Key, value and place of the files that settings and launchers name; of a value that only the run knows, its last part."""
    for key in keys:
        setting = source.settings.get(key)
        if setting is not None and setting.value not in (None, True):
            known = setting.value is not UNKNOWN
            yield key, setting.value if known else _argument(source, key), setting.place
        for launch in launches(source):
            word = launch.shell.launch.launcher_options.get(key)
            if word is not None:
                yield f"--{key}", name_of(word), f"{launch.path}:{word.line}"


def _argument(source: Source, key: str) -> str | None:
    """What a launch gives as a key, as far as it is known."""
    for launch in launches(source):
        for name, words, _ in flags(launch.shell.launch.arguments):
            if name == key and len(words) == 1:
                return name_of(words[0])
    return None
