"""torchtitan's flags in a launch script, under the keys of its dataclasses: ``--compile.enable`` is ``compile.enable``.

Also ``--section.no-name`` (False), ``MODULE=`` and ``CONFIG=`` of ``run_train.sh``, and the sub-command
``activation-checkpoint:full``, which must stay behind all flags.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from meshwright.documents.launch import LaunchDocument, parse_launch, words_of
from meshwright.documents.opening import open_source
from meshwright.documents.source import UNKNOWN, Setting, Source
from meshwright.errors import InputError
from meshwright.frameworks.surface import typed

if TYPE_CHECKING:
    from meshwright.frameworks.base import File
    from meshwright.frameworks.surface import Key

CHECKPOINTING = "activation_checkpoint"
"""Key of the sub-command."""
_COMMAND = re.compile(r"activation[-_]checkpoint:([a-z_-]+)")
_VARIABLES = {"MODULE": "module", "CONFIG": "config", "CONFIG_FILE": "job.config_file"}
"""Variables of ``run_train.sh`` -> keys."""


class FlagDocument(Struct, frozen=True, kw_only=True):
    """A launch script whose flags are dotted keys."""

    launch: LaunchDocument

    @property
    def path(self) -> str:
        """As the user gave it."""
        return self.launch.path

    @property
    def text(self) -> str:
        """As it was read."""
        return self.launch.text

    def settings(self) -> Mapping[str, Setting]:
        """Values in the types of their keys, as far as they have it."""
        found: dict[str, Setting] = {}
        for name, setting in self.launch.environment().items():
            if name in _VARIABLES and setting.value is not None:
                found[_VARIABLES[name]] = replace(setting, key=_VARIABLES[name])
        for flag, setting in self.launch.settings().items():
            rest, mode = _without_command(setting.value)
            if mode:
                found[CHECKPOINTING] = replace(setting, key=CHECKPOINTING, value=mode)
            key, value = key_of(flag, rest)
            found[key] = replace(setting, key=key, value=_typed(key, value))
        return found

    def changed(self, edits: Mapping[str, object]) -> str:
        """The script with some flags set or taken out; the sub-command stays last."""
        here, flags = self.settings(), self._flags()
        wanted = edits.get(CHECKPOINTING, here[CHECKPOINTING].value if CHECKPOINTING in here else None)
        words: dict[str, object] = {}
        for key, value in edits.items():
            if key == CHECKPOINTING:
                continue
            for flag in flags.get(key, ()):
                words[flag] = None  # a flag may change its name: --no-x
            flag = _spelled(key, value, flags.get(key, ()))
            words[flag] = _words(value)
        moves = CHECKPOINTING in edits or any(
            flag not in self.launch.settings() for flag, value in words.items() if value is not None
        )
        if not moves or wanted is None:
            return self.launch.changed(words)
        bare = {flag: _bare(value) for flag, value in self._carriers().items() if flag not in words}
        text = self.launch.changed(bare | words)
        again = parse_launch(text, path=self.path)
        last = list(again.settings())[-1]
        return again.changed({last: (*(words_of(again.settings()[last].value) or ()), f"activation-checkpoint:{wanted}")})

    def _flags(self) -> dict[str, tuple[str, ...]]:
        """Key -> flags as they are spelled."""
        found: dict[str, tuple[str, ...]] = {}
        for flag, setting in self.launch.settings().items():
            key = key_of(flag, setting.value)[0]
            found[key] = (*found.get(key, ()), flag)
        return found

    def _carriers(self) -> dict[str, object]:
        """Flags that the sub-command seems to be a value of."""
        return {flag: setting.value for flag, setting in self.launch.settings().items() if _without_command(setting.value)[1]}


def _without_command(value: object) -> tuple[object, str]:
    """A flag's values without the sub-command behind them, and its mode."""
    texts = value if isinstance(value, tuple) else (value,)
    found = [match[1] for text in texts if isinstance(text, str) and (match := _COMMAND.fullmatch(text))]
    if not found:
        return value, ""
    rest = tuple(text for text in texts if not (isinstance(text, str) and _COMMAND.fullmatch(text)))
    return (True if not rest else rest[0] if len(rest) == 1 else rest), found[-1].replace("_", "-")


def _bare(value: object) -> object:
    """A flag's values without the sub-command."""
    return _without_command(value)[0]


def key_of(flag: str, value: object) -> tuple[str, object]:
    """The key and value of a flag: dashes are underscores, ``no-`` in front of the last name is False."""
    key = flag.removeprefix("--").replace("-", "_")
    section, dot, name = key.rpartition(".")
    if value is True and name.startswith("no_") and _key(key) is None:
        return f"{section}{dot}{name.removeprefix('no_')}", False
    return key, value


def _spelled(key: str, value: object, before: Sequence[str]) -> str:
    """The flag of a key as it stands there, or as torchtitan's manual spells it."""
    section, dot, name = key.rpartition(".")
    off = value is False
    for flag in before:
        if key_of(flag, True)[1] is (not off):
            return flag
    return f"--{section}{dot}{'no-' if off else ''}{name}".replace("_", "-")


def _words(value: object) -> object:
    """A value as words: a list is one word with commas, a list of lists one such word for each inner list."""
    if value is False:
        return True  # --no-name
    if isinstance(value, (list, tuple)):
        inner = value if value and all(isinstance(each, (list, tuple)) for each in value) else [value]
        return tuple(",".join(map(str, each)) for each in inner)
    return value


def _key(name: str) -> Key | None:
    """A key of any release."""
    from meshwright.frameworks.torchtitan.surfaces import surface

    spans = surface().keys.get(name)
    return spans[-1] if spans else None


def _typed(name: str, value: object) -> object:
    """Texts of flags in the type of their key; what does not fit stays as it is and is found wrong later."""
    known = _key(name)
    if known is None or value is UNKNOWN or value is None:
        return value
    if known.kind == "list":
        parts = [text.split(",") for text in (value if isinstance(value, tuple) else (value,)) if isinstance(text, str)]
        return parts if name.endswith("module_fqns_per_model_part") else [each for part in parts for each in part]
    try:
        return typed(structs.replace(known, choices=()), value)
    except InputError:
        return value


def open_files(files: Sequence[File]) -> Source:
    """TOML and launch scripts as one source; flags win over the file, as torchtitan has it."""
    source = open_source(files)
    documents = tuple(
        FlagDocument(launch=document) if isinstance(document, LaunchDocument) else document for document in source.documents
    )
    ordered = sorted(documents, key=lambda document: isinstance(document, FlagDocument))
    settings = {key: setting for document in ordered for key, setting in document.settings().items()}
    return replace(source, documents=documents, settings=settings)


def flag_words(key: str, value: object) -> Iterator[str]:
    """The words of a key on a command line."""
    yield _spelled(key, value, ())
    yield from words_of(_words(value)) or ()
