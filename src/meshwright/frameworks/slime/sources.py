"""slime's launch as one source: the script with the model's file that it reads, and the environment that Ray hands on."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING

from meshwright.documents.launch import flags
from meshwright.documents.naming import launches
from meshwright.documents.opening import open_source
from meshwright.documents.shell_values import UNKNOWN_MARK
from meshwright.documents.source import UNKNOWN, Setting, Source
from meshwright.errors import Message
from meshwright.frameworks.asking import whole
from meshwright.frameworks.megatron.reading import settled
from meshwright.frameworks.slime.flags import ASYNC, NODES, PER_NODE, PROGRAM, RELEASES, surface
from meshwright.text import kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.documents.shell_launch import Word
    from meshwright.frameworks.base import File

_RUNTIME = "--runtime-env-json"
_JUDGED = ("CUDA_DEVICE_MAX_CONNECTIONS", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""What checks ask of the environment: where only the run knows the JSON, nobody knows them."""
_DEFAULTS = {NODES: 1, PER_NODE: 8}
_REFUSED = '{option} {wrong}, so Ray refuses the job: {{"env_vars": {{"NAME": "value"}}}} is expected'
"""Source: Ray dashboard/modules/job/cli.py and _private/runtime_env/validation.py ``parse_and_validate_env_vars``."""


def open_files(files: Sequence[File]) -> Source:
    """The files as slime's processes find them: Ray's variables win over those of the script, the actor's flags say the devices."""
    source = settled(open_source(files), RELEASES[-1], surface())
    if not _is_own(source) and PER_NODE not in source.settings:
        return source
    return replace(
        source, remarks=(*source.remarks, *_odd_counts(source), *_odd_runtimes(source)),
        environment={**source.environment, **{each.key: each for each in _variables(source)}},
        nodes=_count(source, NODES), devices_per_node=_count(source, PER_NODE),
    )


def _is_own(source: Source) -> bool:
    return source.program.rpartition("/")[2] in {PROGRAM, ASYNC}


def other_program(source: Source) -> str:
    """A program that may add flags of its own, as ``parse_args`` lets it."""
    return source.program if source.program.endswith(".py") and not _is_own(source) else ""


def _count(source: Source, key: str) -> int | None:
    """A number of the actor's flags; None where only the run knows it, or where it is none."""
    setting = source.settings.get(key)
    return _DEFAULTS[key] if setting is None else whole(setting.value) or None


def _odd_counts(source: Source) -> Iterator[Message]:
    """Numbers of nodes and devices of which nobody can start any."""
    for what, key in (("nodes", NODES), ("devices", PER_NODE)):
        setting = source.settings.get(key)
        if setting is not None and setting.value is not UNKNOWN and not whole(setting.value):
            yield Message("launch.count", "{option} is {value}: a number of {what} from 1 is expected",
                          {"option": key, "value": setting.value, "what": what}, setting.place)


def _variables(source: Source) -> Iterator[Setting]:
    """What ``ray job submit --runtime-env-json`` sets."""
    for launch in launches(source):
        for word, text in _runtimes(launch.shell.launch.command.words):
            found: object = None
            with suppress(ValueError, RecursionError):
                found = json.loads(text, strict=False)
            variables = found.get("env_vars") if isinstance(found, dict) else dict.fromkeys(_JUDGED, UNKNOWN_MARK)
            for name, value in variables.items() if isinstance(variables, dict) else ():
                said = UNKNOWN if UNKNOWN_MARK in str(value) else str(value)
                yield Setting(key=name, value=said, file=launch.path, line=word.line)


def _odd_runtimes(source: Source) -> Iterator[Message]:
    """What ``ray job submit`` refuses as its environment: no JSON, no object, variables that are no texts."""
    for launch in launches(source):
        for word, text in _runtimes(launch.shell.launch.command.words):
            if UNKNOWN_MARK not in text and (wrong := _wrong_runtime(text)):
                yield Message("slime.runtime-env", _REFUSED, {"option": _RUNTIME, "wrong": wrong}, f"{launch.path}:{word.line}")


def _wrong_runtime(text: str) -> str:
    """What is wrong with a runtime environment, in words; empty where nothing is."""
    try:
        found = json.loads(text, strict=False)
    except json.JSONDecodeError as error:
        return f"is no JSON ({error.msg.lower()}, character {error.pos + 1})"
    except (ValueError, RecursionError):
        return "is no JSON"
    if not isinstance(found, dict):
        return f"is {kind(found)} and no object"
    variables = found.get("env_vars")
    if variables is None:  # as where nothing is said of them
        return ""
    if not isinstance(variables, dict):
        return f"has env_vars that are {kind(variables)}"
    odd = next((name for name, value in variables.items() if not isinstance(value, str)), None)
    return "" if odd is None else f"has env_vars.{odd} as {kind(variables[odd])}, not in quotes"


def _runtimes(words: Sequence[Word]) -> Iterator[tuple[Word, str]]:
    """The JSON of each option, joined to it or behind it."""
    for word, follower in pairwise(words):
        name, equals, text = word.part.plain.partition("=")
        if name == _RUNTIME:
            yield (word, text) if equals else (follower, follower.part.plain)


def lost_arrays(source: Source) -> tuple[str, ...]:
    """What holds flags that only the run knows: arrays of a file that the script reads and that was not given.

    Without such a file an array that nothing sets is empty.
    """
    if not any(remark.id == "shell.source" for remark in source.remarks):
        return ()
    words = (word for launch in launches(source) for word in _spare(launch.shell.launch.arguments))
    return tuple(dict.fromkeys(name for word in words if not word.known for name in word.part.unknowns))


def _spare(arguments: Sequence[Word]) -> Iterator[Word]:
    """Words that are the value of no flag: before all of them, behind switches, and behind the one that a flag takes."""
    yield from takewhile(lambda word: not word.text.startswith("-"), arguments)
    for flag, words, _ in flags(arguments):
        key = surface().find(flag, RELEASES[-1])
        if key is not None and key.kind not in {"ints", "floats", "strs"}:
            yield from words[key.kind != "switch" :]
