"""ms-swift's files as one source: the YAML or JSON that a launch names, and the flags behind it, which win.

Source: swift/cli/main.py (``parse_yaml_args``), and argparse under transformers' HfArgumentParser.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from meshwright.documents.launch import LaunchDocument, no_count, odd_count
from meshwright.documents.naming import launches, name_of
from meshwright.documents.opening import JSON, YAML, open_source
from meshwright.documents.source import Around, Setting, Source
from meshwright.errors import Message
from meshwright.frameworks.deepspeed.reading import one_node
from meshwright.frameworks.tables import rows

if TYPE_CHECKING:
    from meshwright.documents.source import Document
    from meshwright.frameworks.base import File

ENVIRONMENT = "ENV."
"""Section of a YAML whose keys are variables, where the environment has none of that name."""
_TABLE = {row["key"]: row for row in rows(__package__ or __name__.rpartition(".")[0], "surface.csv")}
_NEGATED = {f"no_{name}": name for name, row in _TABLE.items() if (row["kind"], row["default"]) == ("bool", "true")}
"""Flag that the parser adds -> what is on by itself, and off with it."""

COUNTED = {"NNODES": "nodes", "NPROC_PER_NODE": "devices"}
"""Variables of the launcher -> what they count."""


class Words(Around, frozen=True):
    """A launch script whose flags are names without dashes before them, in any spelling that the parser takes."""

    @property
    def spellings(self) -> Mapping[str, str]:
        """Name -> flag of the script."""
        return {canonical(flag): flag for flag in self.inner.settings() if flag.startswith("-")}

    def settings(self) -> Mapping[str, Setting]:
        """Flags by the names of the fields."""
        found = {}
        for flag, setting in self.inner.settings().items():
            name = canonical(flag)
            key = _NEGATED.get(name, name)
            found[key] = replace(setting, key=key, value=False if key != name else setting.value)
        return found

    def changed(self, edits: Mapping[str, object]) -> str:
        """The script with the edits, in the spelling that it has."""
        there, found = self.spellings, dict[str, object]()
        for name, value in edits.items():
            if f"no_{name}" in there:
                found[there[f"no_{name}"]] = None
            found[there.get(name, f"--{name}")] = str(value).lower() if isinstance(value, bool) else value
        return self.inner.changed(found)


class Tree(Around, frozen=True):
    """A YAML or JSON of names, whose ``ENV`` section is no part of them."""

    def settings(self) -> Mapping[str, Setting]:
        """Names with their values."""
        return {key: setting for key, setting in self.inner.settings().items() if not key.startswith(ENVIRONMENT)}

    def environment(self) -> Mapping[str, Setting]:
        """Variables of the ``ENV`` section."""
        return {
            key.removeprefix(ENVIRONMENT): replace(setting, key=key.removeprefix(ENVIRONMENT), value=str(setting.value))
            for key, setting in self.inner.settings().items() if key.startswith(ENVIRONMENT)
        }

    def changed(self, edits: Mapping[str, object]) -> str:
        """The document with the edits."""
        return self.inner.changed({key: list(value) if isinstance(value, tuple) else value for key, value in edits.items()})


def canonical(flag: str) -> str:
    """The name of a field from a flag: dashes within count as they are or as underscores, and a beginning that fits one name is it.

    >>> canonical("--tensor-model-parallel-size"), canonical("--tensor_model"), canonical("--no_packing"), canonical("--nothing")
    ('tensor_model_parallel_size', 'tensor_model_parallel_size', 'no_packing', 'nothing')
    """
    name = flag.lstrip("-").replace("-", "_")
    if name in _TABLE or name in _NEGATED or not name:
        return name
    able = [known for known in (*_TABLE, *_NEGATED) if known.startswith(name)]
    return able[0] if len(able) == 1 else name


def open_files(files: Sequence[File]) -> Source:
    """The files as ``megatron`` merges them: flags win over the YAML, the environment over its ``ENV``."""
    source = open_source(files)
    documents = sorted(map(_opened, source.documents), key=lambda document: isinstance(document, Words))
    settings = {key: setting for document in documents for key, setting in document.settings().items()}
    beside = {key: each for tree in documents if isinstance(tree, Tree) for key, each in tree.environment().items()}
    remarks = tuple(remark for remark in source.remarks if remark.id != "source.twice")
    texts = {name: str(beside[name].value) for name in COUNTED if name in beside}
    remarks += tuple(odd_count(name, text, COUNTED[name], beside[name].place) for name, text in texts.items() if no_count(text))
    counts = {name: int(text) for name, text in texts.items() if re.fullmatch("[0-9]{1,7}", text)}
    nodes = source.nodes if one_node(source) is None else 1
    return replace(
        source, documents=tuple(documents), settings=settings, environment={**beside, **source.environment}, remarks=remarks,
        nodes=nodes or counts.get("NNODES") or (1 if "NPROC_PER_NODE" in counts else None),
        devices_per_node=source.devices_per_node or counts.get("NPROC_PER_NODE"),
    )


def _opened(document: Document) -> Document:
    return Words(document) if isinstance(document, LaunchDocument) else Tree(document)


def verb_of(source: Source) -> str:
    """What is run: ``sft``, ``pt`` or ``rlhf``; empty where files do not say it."""
    stem = PurePath(source.program).stem if source.program.endswith(".py") else source.program.rpartition(".")[2]
    if stem in {"sft", "pt", "rlhf"}:
        return stem
    return "rlhf" if source.value("rlhf_type") is not None else ""


def names_configuration(source: Source) -> Message | None:
    """What to give, where a launch names a YAML or JSON of settings that is not there."""
    if any(isinstance(document, Tree) for document in source.documents):
        return None
    for launch in launches(source):
        for word in launch.shell.launch.arguments[:1]:
            name = name_of(word) or ""
            if PurePath(name).suffix.lower() in YAML | JSON:
                return Message("import.config-file", "{key} names {name}, where the layout stands: give that file as well",
                               {"key": "the launch", "name": name}, path=f"{launch.path}:{word.line}")
    return None
