"""Formats of what runs leave behind. One file a format; a file is told by its content, never by its name.

A ``Format`` is found through the entry-point group ``meshwright.formats``; those of this package stand in ``BUILT_IN``.
``docs/adding-a-log-format.md`` says how one is added.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from meshwright.errors import InputError, Message, fault
from meshwright.readers.source import Source
from meshwright.value import Value

if TYPE_CHECKING:
    from pathlib import Path

    from meshwright.domain.observed import Observation

GROUP = "meshwright.formats"
BUILT_IN: tuple[str, ...] = (
    "network.nccl_debug",
    "network.nccl_tests",
    "network.nccl_tests_json",
    "network.allreduce_bench",
    "network.nccl_inspector",
    "hangs.flight_recorder",
    "counters.nvidia_smi",
    "counters.dmon",
    "counters.dcgm",
    "memory.snapshot",
    "memory.timeline",
    "memory.mindspore",
    "out_of_memory",
    "logs.step_record",
    "logs.megatron",
    "logs.torchtitan",
    "logs.nanotron",
    "logs.deepspeed",
    "logs.deepspeed_comms",
    "logs.hf_trainer",
    "logs.nanogpt",
    "logs.maxtext",
    "logs.mindspore",
    "logs.chatlearn",
    "logs.verl",
    "logs.nemo_rl",
    "logs.slime",
    "logs.watchdog",
    "logs.reference",
    "logs.plain",
    "traces.kineto",
    "traces.ascend_view",
    "traces.ascend_steps",
    "traces.ascend_kernels",
)
"""Modules of this package, each with a ``FORMAT``."""
MAX_FILES = 20_000
"""Of all directories together."""
MAX_DEPTH = 12
_LOG = logging.getLogger(__name__)


class Format(Value, frozen=True, kw_only=True):
    """One format: how it is told, and what is read of it."""

    name: str
    """``megatron_log``, ``chrome_trace``: what JSON calls it."""
    says: str
    """One line for people: whose files these are."""
    told: Callable[[bytes], bool]
    """Whether a sample of a file's content may be of the format; several formats may be told in one file."""
    read: Callable[[Source], tuple[Observation, ...]]
    """What the file says, mostly one value; nothing where it turns out to hold nothing of the format.

    Errors:  ``InputError`` for a file that is of the format and cannot be read.
    """


class Observed(Value, frozen=True, kw_only=True):
    """What was found in files: observations, which file was read as which formats, and what was left and why."""

    observations: tuple[Observation, ...]
    read: tuple[tuple[str, tuple[str, ...]], ...]
    left: tuple[Message, ...]


@cache
def formats() -> tuple[Format, ...]:
    """Every format, those of this package first; a plugin that cannot be loaded is logged and left out."""
    found = [EntryPoint(name, f"meshwright.readers.{name}:FORMAT", GROUP).load() for name in BUILT_IN]
    for point in entry_points(group=GROUP):
        try:
            loaded = point.load()
        except Exception as error:  # a plugin may do anything: it must not take the program down
            _LOG.warning("format %s cannot be loaded: %s", point.name, error)
            continue
        found += [each for each in (loaded if isinstance(loaded, tuple) else (loaded,)) if isinstance(each, Format)]
    return tuple({each.name: each for each in reversed(found)}.values())[::-1]


def observe(paths: Sequence[Path], told: Callable[[str], None] = lambda _: None) -> Observed:
    """Everything that files say; of directories, everything in them that is of a known format.

    ``told`` is called with the name of each file before it is read.

    Errors:  ``InputError`` where a path is missing, or where a file that was named itself holds nothing that is known.
    """
    observations: list[Observation] = []
    read: list[tuple[str, tuple[str, ...]]] = []
    left: list[Message] = []
    for source, named in _sources(paths):
        told(source.shown)
        names, faults = [], []
        try:
            able = [each for each in formats() if each.told(source.sample)]
        except InputError as error:
            able, faults = [], list(error.messages)
        for each in able:
            try:
                if found := each.read(source):
                    observations += found
                    names.append(each.name)
            except InputError as error:
                faults += error.messages
        if source.broken and names:
            faults.append(Message("observed.cut", "the archive breaks off: what stands before was read", {}, path=source.shown))
        if names:
            read.append((source.shown, tuple(names)))
        elif faults and named:
            raise InputError(faults)
        left += faults
        if not names and not faults:
            left.append(Message("observed.unknown", "nothing in it is of a known format", {}, path=source.shown))
    if not observations:
        raise InputError(left) if left else fault("observed.none", "no files to read")
    return Observed(observations=tuple(observations), read=tuple(read), left=tuple(left))


def _sources(paths: Sequence[Path]) -> Iterator[tuple[Source, bool]]:
    """Files of paths, and whether each was named itself; directories are walked in order, links to directories are not followed."""
    count = 0
    for path in paths:
        if not path.is_dir():
            yield Source(path), True
            continue
        for each in _below(path, 0):
            count += 1
            if count > MAX_FILES:
                raise fault("observed.many", "more than {limit:,} files", path=str(path), limit=MAX_FILES)
            yield Source(each), False


def _below(directory: Path, depth: int) -> Iterator[Path]:
    try:
        entries = sorted(directory.iterdir())
    except OSError as error:
        raise fault("file.unreadable", "cannot be read: {reason}", path=str(directory), reason=error.strerror) from None
    for each in entries:
        if each.is_dir():
            if depth < MAX_DEPTH and not each.is_symlink():
                yield from _below(each, depth + 1)
        elif each.is_file():
            yield each
