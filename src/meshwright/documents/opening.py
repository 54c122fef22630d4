"""Files as documents, by their names, and documents as one source."""

from __future__ import annotations

from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING

from meshwright.documents.source import Document, Setting, Source
from meshwright.documents.tree import parse_json_with_comments, parse_tree
from meshwright.errors import InputError, Message
from meshwright.readers.safe_yaml import Twice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.documents.source import File

YAML, JSON, TOML, PYTHON = {".yaml", ".yml"}, {".json", ".jsonc"}, {".toml"}, {".py"}


def is_script(path: str) -> bool:
    """Whether a file is a shell script: its suffix is none of a data file."""
    return PurePath(path).suffix.lower() not in YAML | JSON | TOML | PYTHON


def open_document(path: str, text: str, beside: Sequence[File] = ()) -> tuple[Document, tuple[Message, ...]]:
    """A file as a document by its suffix (none of those known: a shell script), with remarks on how it was read; ``beside`` are
    scripts that a script may read in.

    Errors: ``InputError`` where it is not in its own language.
    """
    suffix = PurePath(path).suffix.lower()
    if suffix in YAML:
        twice: Twice = []
        return parse_tree(text, path=path, twice=twice), tuple(
            Message("yaml.twice", "{key} stands twice in one place: line {line} counts, line {first} does not",
                    {"key": key, "first": first, "line": line}, path) for key, first, line in twice
        )
    if suffix in TOML:
        from meshwright.documents.toml import parse_toml  # tomlkit, which most files do not need

        return parse_toml(text, path=path), ()
    if suffix in JSON:
        document, line = parse_json_with_comments(text, path=path)
        comment = Message("json.comment", "line {line} holds a // comment, which is no JSON: frameworks refuse it",
                          {"line": line}, path)
        return document, () if line is None else (comment,)
    if suffix in PYTHON:
        from meshwright.documents.python import parse_python

        return parse_python(text, path=path)
    from meshwright.documents.launch import parse_launch

    launch = parse_launch(text, path=path, beside=tuple((file.path, file.text) for file in beside))
    return launch, launch.remarks


def _read_in(scripts: Sequence[File]) -> frozenset[str]:
    """Paths of the scripts that launch nothing and that another one reads by ``source``: they are part of that one."""
    from meshwright.documents.shell import parse_shell

    found: set[str] = set()
    for file in scripts:
        others = {each.path: each.text for each in scripts if each.path != file.path}
        with suppress(InputError):
            found |= {path for path in parse_shell(file.text, path=file.path, files=others).read
                      if parse_shell(others[path], path=path).found is None}
    return frozenset(found)


def open_source(files: Sequence[File]) -> Source:
    """All files as one source: settings of later files win over those of earlier ones, which is remarked.

    Errors: ``InputError`` with the faults of every file that is not in its own language.
    """
    documents: list[Document] = []
    remarks: list[Message] = []
    settings: dict[str, Setting] = {}
    environment: dict[str, Setting] = {}
    nodes = devices_per_node = None
    program = ""
    faults: list[Message] = []
    scripts = [file for file in files if is_script(file.path)]
    read = _read_in(scripts) if len(scripts) > 1 else frozenset()
    for file in files:
        if file.path in read:
            continue
        try:
            document, notes = open_document(file.path, file.text, [each for each in scripts if each.path in read])
            said = document.settings()
        except InputError as error:
            faults += error.messages
            continue
        documents.append(document)
        remarks += notes
        for key, setting in said.items():
            before = settings.get(key)
            if before is not None and before.value != setting.value:
                remarks.append(Message("source.twice", "{key} is also set in {other}; this one is taken",
                                       {"key": key, "other": before.place}, setting.place))
            settings[key] = setting
        if is_script(file.path):
            from meshwright.documents.launch import LaunchDocument

            assert isinstance(document, LaunchDocument), "what is no data file is a script"
            environment |= document.environment()
            nodes, devices_per_node = document.nodes or nodes, document.devices_per_node or devices_per_node
            program = document.program or program
    if faults:
        raise InputError(faults)
    return Source(
        documents=tuple(documents), settings=settings, environment=environment, nodes=nodes,
        devices_per_node=devices_per_node, program=program, remarks=tuple(remarks),
    )
