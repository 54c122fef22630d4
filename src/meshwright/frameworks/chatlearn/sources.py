"""ChatLearn's files as one source: the YAML, the words behind it on the command line, and references between keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from meshwright.documents.opening import is_script, open_source
from meshwright.documents.overrides import OverrideDocument
from meshwright.documents.source import UNKNOWN, Setting, Source
from meshwright.errors import InputError, Message
from meshwright.frameworks.omegaconf import Lost, References, refers, refuse_twice
from meshwright.readers.safe_yaml import parse_yaml

if TYPE_CHECKING:
    from meshwright.frameworks.base import File
    from meshwright.frameworks.surface import Surface

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+")
_UNTYPED = ("models.policy_trainer.", "models.ref_policy.")
"""Sections that are plain mappings when references are resolved: what they do not hold is not found."""
NULLABLE = frozenset(
    f"models.policy_trainer.{name}"
    for name in (
        "recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_modules", "pipeline_model_parallel_layout",
        "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers", "virtual_pipeline_model_parallel_size",
    )
)
"""Fields that may be None."""


def open_files(files: Sequence[File]) -> Source:
    """The files as ChatLearn merges them: overrides of a script win over the YAML, wherever they stand."""
    ordered = sorted(files, key=lambda file: is_script(file.path))
    source = open_source(ordered)
    refuse_twice(source, "chatlearn")
    settings = dict(_scalars(source.settings))
    remarks = [
        remark for remark in source.remarks if not (remark.id == "source.twice" and is_script(remark.path.rpartition(":")[0]))
    ]
    resolved, missing = resolve(settings)
    if not any(is_script(file.path) for file in ordered):  # paths of weights are the command line's to say
        missing = {key: name for key, name in missing.items() if not _is_text(name)}
    remarks += [
        Message("chatlearn.interpolation", "Interpolation key '{name}' not found", {"name": name}, settings[key].place)
        for key, name in missing.items()
    ]
    documents = tuple(
        OverrideDocument(script=each, nullable=NULLABLE) if is_script(each.path) else each for each in source.documents
    )
    return replace(source, documents=documents, settings=resolved, remarks=tuple(remarks))


def _scalars(settings: Mapping[str, Setting]) -> Iterator[tuple[str, Setting]]:
    """Settings with the values that OmegaConf reads: words of a command line are YAML, and ``2e-6`` is a number."""
    for key, setting in settings.items():
        value = setting.value
        if isinstance(value, tuple):
            value = " ".join(map(str, value))
        if isinstance(value, str) and is_script(setting.file) and not key.startswith("-"):
            with suppress(InputError):
                value = parse_yaml(value) if "${" not in value else value
        if isinstance(value, str) and _NUMBER.fullmatch(value):
            value = float(value)
        yield key, setting if value is setting.value else replace(setting, value=value)


def resolve(settings: Mapping[str, Setting]) -> tuple[dict[str, Setting], dict[str, str]]:
    """Settings with their references filled in, and key -> name for those that lead nowhere (they read as absent).

    What only the machine knows (``${oc.env:HOME}``) is unknown.
    """
    resolved, missing = dict(settings), dict[str, str]()
    references = References(settings, partial(_by_default, settings))
    for key, setting in settings.items():
        if refers(setting.value):
            value = references.value(setting)
            resolved[key] = replace(setting, value=None if isinstance(value, Lost) else value)
            if isinstance(value, Lost):
                missing[key] = value.name
    return resolved, missing


def _by_default(settings: Mapping[str, Setting], name: str) -> object:
    """What a reference comes to that names no key of the files: a default of ChatLearn's classes where the section is typed."""
    if ":" in name:
        return UNKNOWN
    known = _surface().find(name, _surface().releases[-1])
    if known is None or name.startswith(_UNTYPED):
        section = any(key.startswith(f"{name}.") for key in settings)
        return UNKNOWN if section else Lost(name)
    return parse_yaml(known.default) if known.default else None


def _is_text(name: str) -> bool:
    """Whether a key holds words: of those that lay ranks out, none does."""
    known = _surface().find(name, _surface().releases[-1])
    return known is not None and known.kind == "str"


def _surface() -> Surface:
    from meshwright.frameworks.chatlearn import surface

    return surface()
