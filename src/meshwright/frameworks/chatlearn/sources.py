"""ChatLearn's files as one source: the YAML, the words behind it on the command line, and references between keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.documents.opening import is_script, open_source
from meshwright.documents.overrides import OverrideDocument
from meshwright.documents.source import UNKNOWN, Setting, Source
from meshwright.errors import InputError, Message
from meshwright.readers.safe_yaml import parse_yaml

if TYPE_CHECKING:
    from meshwright.frameworks.base import File
    from meshwright.frameworks.surface import Surface

_REFERENCE = re.compile(r"\$\{([^${}]*)\}")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+")
_UNTYPED = ("models.policy_trainer.", "models.ref_policy.")
"""Sections that are plain mappings when references are resolved: what they do not hold is not found."""
_DEPTH = 20
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
    if twice := [each for each in source.remarks if each.id == "yaml.twice"]:
        raise InputError(replace(each, id="chatlearn.twice", template="OmegaConf refuses the file: found duplicate key {key} "
                                 "(lines {first} and {line})") for each in twice)
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
    for key, setting in settings.items():
        if isinstance(setting.value, str) and "${" in setting.value:
            value, lost = _value(setting.value, settings, 0)
            resolved[key] = replace(setting, value=None if lost else value)
            if lost:
                missing[key] = lost
    return resolved, missing


def _value(text: str, settings: Mapping[str, Setting], depth: int) -> tuple[object, str]:
    """What a text with references comes to, and the first name in it that is not found."""
    while found := _REFERENCE.search(text):
        name = found[1].strip()
        if ":" in name or depth > _DEPTH:
            return UNKNOWN, ""
        value, lost = _look_up(name, settings, depth)
        if lost or value is UNKNOWN or found[0] == text:
            return value, lost
        text = text[: found.start()] + str(value) + text[found.end() :]
    return text, ""


def _look_up(name: str, settings: Mapping[str, Setting], depth: int) -> tuple[object, str]:
    """The value behind a reference; a default of ChatLearn's classes where the section is typed."""
    setting = settings.get(name)
    if setting is not None:
        value = setting.value
        return _value(value, settings, depth + 1) if isinstance(value, str) and "${" in value else (value, "")
    known = _surface().find(name, _surface().releases[-1])
    if known is None or name.startswith(_UNTYPED):
        section = any(key.startswith(f"{name}.") for key in settings)
        return (UNKNOWN, "") if section else (None, name)
    return (parse_yaml(known.default) if known.default else None), ""


def _is_text(name: str) -> bool:
    """Whether a key holds words: of those that lay ranks out, none does."""
    known = _surface().find(name, _surface().releases[-1])
    return known is not None and known.kind == "str"


def _surface() -> Surface:
    from meshwright.frameworks.chatlearn import surface

    return surface()
