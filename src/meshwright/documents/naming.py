"""Configuration files that a launch names: read without them, a script would have the framework's defaults."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.documents.launch import LaunchDocument, flags
from meshwright.documents.opening import is_script
from meshwright.documents.shell import spelled
from meshwright.documents.shell_launch import LAUNCHERS
from meshwright.documents.source import UNKNOWN
from meshwright.errors import Message

if TYPE_CHECKING:
    from meshwright.documents.shell_launch import Launch, Word
    from meshwright.documents.source import Source


_PATH = re.compile(r"/[^\s/]+(?:/[^\s/]+)*\.[a-z]+")
_JOINED = re.compile(r"(?:--?[A-Za-z][\w-]*|[A-Za-z_]\w*)=")
"""An option with its value, or a variable that is set for the program."""
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


def open_to_the_run(source: Source, deciding: Collection[str]) -> Source:
    """The source without remarks on what only the run knows, where nothing that decides a layout may hang on it.

    What does: numbers of nodes and devices, words that may hold flags, values of ``deciding`` keys, and whatever scripts hold that
    launch nothing. A folder, a token or a tokenizer does not.
    """
    hanging = {name for key, setting in source.settings.items() if key in deciding and not _argument(source, key)
               for name in setting.hangs_on}
    for launch in launches(source):
        if launch.shell.found is None:
            return source
        hanging |= {spelled(name) for name in _open_names(launch.shell.found)}
    remarks = tuple(each for each in source.remarks if each.id != "shell.unknown" or each.values.get("name") in hanging)
    return source if len(remarks) == len(source.remarks) else replace(source, remarks=remarks)


def _open_names(found: Launch) -> Iterator[str]:
    """Names that a launch's own words hang on, but for values of single flags, options that count nothing, files of a folder."""
    launcher, held = LAUNCHERS.get(found.launcher), Counter[str]()
    for word in (*found.command.outer, *found.command.words):
        held.update(word.part.unknowns)
    settled = [words[0] for _, words, _ in flags(found.arguments) if len(words) == 1]
    counting = (*launcher.nodes, *launcher.per_node, *launcher.total) if launcher is not None else ()
    settled += [word for option, word in found.launcher_options.items() if option not in counting]
    settled += [word for word in found.command.words if _PATH.fullmatch(word.part.pieces[-1].text if word.part.pieces else "")]
    settled += [word for word in _before(found) if _JOINED.match(word.part.plain) and _option(word) not in counting]
    for word in settled:
        held.subtract(word.part.unknowns)
    yield from (name for name, count in held.items() if count > 0)
    if launcher is not None and launcher.by_environment:
        yield from (name for option in counting for name in _unknowns(found.launcher_options.get(option)))


def _before(found: Launch) -> Sequence[Word]:
    """Words of a launch that are no arguments of its program."""
    words = found.command.words
    return words[: len(words) - len(found.arguments)]


def _option(word: Word) -> str:
    """The name of an option from ``--name=value``."""
    return word.part.plain.partition("=")[0].lstrip("-").replace("_", "-")


def _unknowns(word: Word | None) -> tuple[str, ...]:
    return word.part.unknowns if word is not None else ()
