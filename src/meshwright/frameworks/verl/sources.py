"""verl's files as one source: a tree of YAML, and Hydra's words on a command line above it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.documents.launch import LaunchDocument
from meshwright.documents.opening import is_script, open_source
from meshwright.documents.source import UNKNOWN, Around, Setting, Source
from meshwright.errors import InputError
from meshwright.frameworks.omegaconf import refuse_twice
from meshwright.frameworks.owners import knows
from meshwright.frameworks.tables import rows
from meshwright.frameworks.verl.keys import DP, MCORE
from meshwright.readers.safe_yaml import parse_yaml

if TYPE_CHECKING:
    from meshwright.frameworks.base import File
    from meshwright.frameworks.surface import Surface

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+")
_REFERENCE = re.compile(r"\$\{(?:oc\.select:)?([\w.]+)(?:,([^{}]*))?\}")
_WORD = re.compile(r"(\+{1,2}|~)([A-Za-z_][\w.@/-]*)(?:=.*)?", re.DOTALL)


class Hydra(Around, frozen=True):
    """A script of Hydra's words, or a tree: what no YAML of verl has is added with ``+``."""

    added: frozenset[str]
    """Keys that must be added."""

    @property
    def unknown(self) -> tuple[str, ...]:
        """Arrays and variables of a command line that hold whole words which only the run knows."""
        if not isinstance(self.inner, LaunchDocument):
            return ()
        words = (word for word in self.inner.shell.launch.arguments if not word.known and "=" not in word.part.plain)
        return tuple(dict.fromkeys(name for word in words for name in word.part.unknowns))

    @property
    def is_script(self) -> bool:
        """Whether its keys are words of a command line."""
        return isinstance(self.inner, LaunchDocument)

    @property
    def prefixes(self) -> Mapping[str, str]:
        """Key -> ``+``, ``++`` or ``~`` before it."""
        if not isinstance(self.inner, LaunchDocument):
            return {}
        words = (word.text if word.known else word.part.plain for word in self.inner.shell.launch.arguments)
        return {found[2]: found[1] for word in words if (found := _WORD.fullmatch(word))}

    def settings(self) -> Mapping[str, Setting]:
        """Those of the document."""
        return self.inner.settings()

    def changed(self, edits: Mapping[str, object]) -> str:
        """The document with the edits."""
        there = self.inner.settings() if is_script(self.path) else {}
        new = self.added - set(there) if is_script(self.path) else frozenset[str]()
        return self.inner.changed({f"+{key}" if key in new else key: value for key, value in edits.items()})


def added_keys(package: str) -> frozenset[str]:
    """The keys of a surface that stand in no YAML of verl."""
    return frozenset(row["key"] for row in rows(package, "surface.csv") if row["added"])


def opener(package: str) -> Callable[[Sequence[File]], Source]:
    """How files of a back end are opened: the words of a script win over YAML, wherever it stands.

    A key that no YAML has and that stands there with ``+`` is the user's own: nothing is read of it here.
    """
    added, known = added_keys(package), frozenset(row["key"] for row in rows(package, "surface.csv"))

    def open_files(files: Sequence[File]) -> Source:
        source = open_source(sorted(files, key=lambda file: is_script(file.path)))
        refuse_twice(source, "verl")
        settings = dict(values_of_words(source.settings))
        for key, setting in settings.items():
            if isinstance(setting.value, str) and "${" in setting.value:
                settings[key] = replace(setting, value=_resolved(setting.value, settings))
        remarks = tuple(remark for remark in source.remarks if remark.id != "source.twice")
        documents = tuple(Hydra(each, added) for each in source.documents)
        own = {key for each in documents for key, prefix in each.prefixes.items() if prefix != "~" and not knows(known, key)}
        settings = {key: setting for key, setting in settings.items() if key not in own}
        return replace(source, documents=documents, settings=settings, remarks=remarks)

    return open_files


def values_of_words(settings: Mapping[str, Setting]) -> Iterator[tuple[str, Setting]]:
    """Settings with the values that Hydra reads from words: ``1e-6`` is a number, ``null`` and ``[a,b]`` are what YAML has."""
    for key, setting in settings.items():
        value = setting.value
        if isinstance(value, tuple):
            value = " ".join(map(str, value))
        if isinstance(value, str) and is_script(setting.file) and not key.startswith("-") and "${" not in value:
            with suppress(InputError):
                value = parse_yaml(value)
        if isinstance(value, str) and _NUMBER.fullmatch(value):
            value = float(value)
        yield key, setting if value is setting.value else replace(setting, value=value)


def _resolved(text: str, settings: Mapping[str, Setting]) -> object:
    """What a reference to another key of the files comes to; unknown where it leads elsewhere."""
    found = _REFERENCE.fullmatch(text)
    there = settings.get(found[1]) if found else None
    if found is None or (there is None and not found[2]):
        return UNKNOWN
    value = there.value if there is not None else parse_yaml(found[2])
    return UNKNOWN if isinstance(value, str) and "${" in value else value


def is_sft(source: Source) -> bool:
    """Whether the files are of the SFT trainer."""
    if source.program:
        return "sft" in source.program.rpartition(".")[2]
    sections = {key.partition(".")[0] for key in source.settings}
    return "actor_rollout_ref" not in sections and bool(sections & {"engine", "optim"})


def lost(source: Source) -> tuple[str, ...]:
    """Arrays that only the run knows, where the files have no key of the policy or its engine beside them."""
    section = "engine." if is_sft(source) else "actor_rollout_ref.actor."
    if any(key.startswith(section) for key in source.settings):
        return ()
    return tuple(name for document in source.documents if isinstance(document, Hydra) for name in document.unknown)


def engine_of(source: Source) -> str:
    """The back end that files choose (``megatron``, ``dp``, ``veomni`` ...); empty where they choose none, which is ``dp``."""
    if is_sft(source):
        chosen = source.value("engine")
        named = chosen if isinstance(chosen, str) else ""
        if any(key.startswith("engine.tensor_model_parallel") for key in source.settings):
            return named or MCORE
        return {"fsdp": DP, "fsdp2": DP}.get(named, named)
    chosen = source.value("model_engine")
    if isinstance(chosen, str):
        return chosen
    name = source.value("--config-name") or source.value("-cn") or source.value("config-name")
    if isinstance(name, str) and MCORE in name:
        return MCORE
    strategy = source.value("actor_rollout_ref.actor.strategy")
    if strategy == MCORE:
        return MCORE
    return DP if isinstance(strategy, str) else ""


def detect(source: Source, surface: Surface) -> str | None:
    """The release that knows more of the keys; None where both know as many."""
    fields = [key for key in source.settings if not key.startswith("-")]
    known = {release: sum(surface.find(key, release) is not None for key in fields) for release in surface.releases}
    able = [release for release, count in known.items() if count == max(known.values())]
    return able[0] if len(able) == 1 else None
