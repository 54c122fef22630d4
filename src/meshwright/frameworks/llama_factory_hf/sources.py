"""LLaMA-Factory's files as one source: the training YAML, words of the command line above it, and the engine's file beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from meshwright.documents.launch import LaunchDocument
from meshwright.documents.naming import launches, name_of
from meshwright.documents.opening import JSON, YAML, open_source
from meshwright.documents.source import UNKNOWN, Around, Setting, Source
from meshwright.errors import InputError, Message
from meshwright.frameworks.deepspeed.reading import one_node
from meshwright.readers.safe_yaml import parse_yaml

if TYPE_CHECKING:
    from meshwright.documents.shell_launch import Word
    from meshwright.documents.source import Document
    from meshwright.frameworks.base import File
    from meshwright.frameworks.settings import Reading

DEEPSPEED, ACCELERATE = "deepspeed.", "accelerate."
"""What stands before the keys of DeepSpeed's JSON (as if it stood in the YAML itself) and of accelerate's YAML."""
_OWN = {"stage", "finetuning_type", "do_train", "model_name_or_path", "dataset", "cutoff_len", "per_device_train_batch_size"}
_OF_ACCELERATE = {"distributed_type", "compute_environment", "num_machines", "num_processes"}
_OF_DEEPSPEED = {
    "zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu", "zero_allow_untested_optimizer", "tensor_parallel",
    "gradient_clipping",
}
"""Keys that tell whose file it is."""


class Prefixed(Around, frozen=True):
    """A document of an engine, with a prefix before its keys."""

    prefix: str

    def settings(self) -> Mapping[str, Setting]:
        """Those of the document under the longer keys."""
        return {
            self.prefix + key: replace(setting, key=self.prefix + key) for key, setting in self.inner.settings().items()
        }

    def changed(self, edits: Mapping[str, object]) -> str:
        """The document with the edits under its own keys."""
        return self.inner.changed({key.removeprefix(self.prefix): value for key, value in edits.items()})


class Words(Around, frozen=True):
    """A launch script whose flags are keys without their dashes, and whose words are what YAML makes of them."""

    def settings(self) -> Mapping[str, Setting]:
        """Flags and overrides by the names of the arguments."""
        return {
            key.lstrip("-"): replace(setting, key=key.lstrip("-"), value=_scalar(setting.value))
            for key, setting in self.inner.settings().items()
        }

    def changed(self, edits: Mapping[str, object]) -> str:
        """The script with the edits, in the spelling that it has."""
        there = self.inner.settings()
        dashed = any(key.startswith("-") for key in there)
        return self.inner.changed({
            f"--{key}" if f"--{key}" in there or (dashed and key not in there) else key: _word(value)
            for key, value in edits.items()
        })


def _scalar(value: object) -> object:
    """The text of a word as OmegaConf reads it; what is no YAML stays text."""
    if not isinstance(value, str):
        return value
    try:
        return parse_yaml(value)
    except InputError:
        return value


def _word(value: object) -> object:
    """A value behind a key: parsers take no bare flag for false."""
    return str(value).lower() if isinstance(value, bool) else value


def open_files(files: Sequence[File]) -> Source:
    """The files as LLaMA-Factory merges them: words of the command line win over the YAML."""
    source = open_source(files)
    documents = sorted(map(_sorted_out, source.documents), key=_rank)
    settings = {key: setting for document in documents for key, setting in document.settings().items()}
    remarks = tuple(remark for remark in source.remarks if remark.id != "source.twice")
    nodes = source.nodes if one_node(source) is None else 1
    return replace(source, documents=tuple(documents), settings=settings, remarks=remarks, nodes=nodes)


def _sorted_out(document: Document) -> Document:
    """A document by its role."""
    if isinstance(document, LaunchDocument):
        return Words(document)
    names = {key.partition(".")[0] for key in document.settings()}
    if names & _OWN:
        return document
    if names & _OF_ACCELERATE:
        return Prefixed(document, ACCELERATE)
    return Prefixed(document, DEEPSPEED) if names & _OF_DEEPSPEED else document


def _rank(document: Document) -> int:
    """The training YAML first, scripts last; whatever stands around them."""
    if isinstance(document, (Prefixed, Words)):
        return 1 if isinstance(document, Prefixed) else 2
    inner = getattr(document, "inner", None)
    return 0 if inner is None else _rank(inner)


def engine_part(source: Source, prefix: str) -> Source:
    """The settings and files of an engine by its own keys."""
    settings = {
        key.removeprefix(prefix): replace(setting, key=key.removeprefix(prefix))
        for key, setting in source.settings.items() if key.startswith(prefix)
    }
    documents = tuple(
        document.inner for document in source.documents if isinstance(document, Prefixed) and document.prefix == prefix
    )
    return replace(source, settings=settings, documents=documents)


def engine_reading(reading: Reading, prefix: str) -> Reading | None:
    """A reading of an engine's settings alone; None where there are none."""
    part = engine_part(reading.source, prefix)
    return replace(reading, source=part) if part.settings else None


def names_configuration(source: Source) -> Message | None:
    """What to give, where a launch names a training YAML and no file with LLaMA-Factory's own keys is there."""
    if any(_rank(document) == 0 for document in source.documents):
        return None
    for launch in launches(source):
        for word in (launch.shell.launch.program, *launch.shell.launch.arguments[:1]):
            if word is not None and (name := _file_of(word)):
                return Message(
                    "import.config-file", "{key} names {name}, where the layout stands: give that file as well",
                    {"key": "the launch", "name": name}, path=f"{launch.path}:{word.line}",
                )
    return None


def _file_of(word: Word) -> str:
    """The name of a YAML or JSON that a word names; empty for any other word."""
    name = name_of(word) or ""
    return name if PurePath(name).suffix.lower() in YAML | JSON else ""


def launchers(source: Source) -> Iterator[str]:
    """The launchers of the scripts."""
    return (launch.shell.launch.launcher for launch in launches(source))


def detect(source: Source) -> str | None:
    """``fsdp2`` where accelerate's file is there; None: the release cannot be told."""
    return "fsdp2" if source.value(f"{ACCELERATE}distributed_type") not in {None, UNKNOWN, "DEEPSPEED"} else None
