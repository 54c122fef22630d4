"""Samples on disk: a line of JSON each, behind one that describes the machine. What is on disk survives whatever ends a run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, fields
from math import isfinite
from typing import TYPE_CHECKING, Any, get_args

from meshwright.domain.sample import Bench, Sample
from meshwright.engine.profile.machine import Machine, machine_of
from meshwright.errors import fault

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = "meshwright samples 1"
MAX_BYTES = 64 * 2**20
LARGEST = 2**63
NUMBERS = ("seconds", "low_s", "high_s", "best_s", "worst_s", "load")
COUNTS = ("busy_ranks", "blocks", "calls")
SIZES: Mapping[str, tuple[str, ...]] = {
    "product": ("rows", "columns", "inner"), "grouped": ("rows", "columns", "inner", "groups"),
    "attention": ("sequences", "heads", "tokens", "head_dim"), "pass": ("elements",), "transfer": ("bytes",),
    "memory": ("bytes",), "collective": ("ranks", "payload_bytes"),
}
WORDS: Mapping[str, tuple[str, ...]] = {
    "product": ("dtype", "direction"), "grouped": ("dtype",), "attention": ("dtype", "direction"), "pass": ("kind", "direction"),
    "transfer": ("direction",), "collective": ("operation", "tier"),
}
"""Benchmark -> arguments without which a sample of it says nothing: counts from 1, and words."""


def read_store(path: Path) -> tuple[Machine, tuple[Sample, ...]]:
    """The machine and all samples; of several of one thing the last.

    Holds:   a last line without an end, as a run that was killed leaves it, counts as not there.
    Errors:  InputError with the line for everything else that is no sample.
    """
    whole = _complete(path)
    lines = whole.decode("utf-8", errors="replace").split("\n")[:-1]
    if not lines:
        raise fault("profile.empty", "holds no samples", path=str(path))
    head = _parsed(lines[0], f"{path}: line 1")
    if head.get("format") != FORMAT or not isinstance(head.get("machine"), dict):
        raise fault(
            "profile.format", "is no file of samples: its first line does not say {format!r}", path=str(path), format=FORMAT
        )
    machine = machine_of(head["machine"], f"{path}: line 1")
    found = {}
    for number, line in enumerate(lines[1:], start=2):
        if line.strip():
            sample = sample_of(_parsed(line, f"{path}: line {number}"), f"{path}: line {number}")
            found[sample.key] = sample
    return machine, tuple(found.values())


def open_store(path: Path, machine: Machine) -> tuple[Sample, ...]:
    """Prepare a store for appending -> the samples that it has already; a torn last line is cut off.

    Errors:  InputError where it cannot be written, is no store, or belongs to another machine.
    """
    try:
        if not path.exists() or _only_begun(path):
            path.write_text(json.dumps({"format": FORMAT, "machine": machine.document()}) + "\n")
            return ()
        before, samples = read_store(path)
        differences = before.differences(machine)
        if differences:
            raise fault("profile.other", "holds samples of another machine: {differences}; give another --samples or remove it",
                        path=str(path), differences=", ".join(differences))
        with path.open("r+b") as stream:
            stream.truncate(len(_complete(path)))
    except OSError as error:
        raise fault("profile.store", "cannot be written: {reason}", path=str(path), reason=error.strerror or str(error)) from None
    return samples


def append(path: Path, sample: Sample) -> None:
    """Write one sample, and see it on the disk."""
    line = json.dumps(asdict(sample), allow_nan=False) + "\n"
    with path.open("ab") as stream:
        stream.write(line.encode())
        stream.flush()
        os.fsync(stream.fileno())


def sample_of(document: Mapping[str, Any], where: str) -> Sample:
    """A sample from JSON.

    Errors:  InputError where a figure is missing, not finite, or out of order.
    """

    def wrong(field: str) -> Exception:
        return fault("profile.sample", "is no sample: {field} is {value!r}", path=where, field=field, value=document.get(field))

    unknown = set(document) - {field.name for field in fields(Sample)}
    if unknown:
        raise fault("profile.field", "is no sample: unknown {names}", path=where, names=", ".join(sorted(unknown)))
    if document.get("bench") not in get_args(Bench):
        raise wrong("bench")
    arguments, values = document.get("arguments"), document.get("values", {})
    if not isinstance(arguments, dict) or not all(_word(each) or _number(each) for each in arguments.values()):
        raise wrong("arguments")
    sizes = [arguments.get(name) for name in SIZES.get(document["bench"], ())]
    words = [arguments.get(name) for name in WORDS.get(document["bench"], ())]
    if not all(_number(each) and float(str(each)) >= 1 for each in sizes) or not all(map(_word, words)):
        raise wrong("arguments")
    if not isinstance(values, dict) or not all(_number(each) for each in values.values()):
        raise wrong("values")
    for name in COUNTS:
        if not _number(document.get(name)) or not isinstance(document[name], int) or document[name] < 1:
            raise wrong(name)
    for name in NUMBERS:
        if not _number(document.get(name)) or document[name] < 0:
            raise wrong(name)
    ordered = [document[name] for name in ("best_s", "low_s", "seconds", "high_s", "worst_s")]
    if ordered != sorted(ordered) or document["seconds"] <= 0:
        raise wrong("seconds")
    return Sample(**document)


def _word(value: object) -> bool:
    return isinstance(value, str) and value.isprintable()


def _number(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) < LARGEST if isinstance(value, int) else isfinite(value)


def _parsed(line: str, where: str) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise fault("profile.line", "is no JSON object", path=where)
    return document


def _only_begun(path: Path) -> bool:
    """Whether a file is empty, or was torn in the first line of a store; one line of anything else is somebody's."""
    if _complete(path):
        return False
    start = json.dumps({"format": FORMAT})[:-1].encode()
    with path.open("rb") as stream:
        return start.startswith(stream.read(len(start)))


def _complete(path: Path) -> bytes:
    """The file up to its last end of line."""
    try:
        if not path.is_file():
            raise fault("profile.file", "is not a file", path=str(path))
        if path.stat().st_size > MAX_BYTES:
            raise fault("profile.size", "is larger than {limit} MiB", path=str(path), limit=MAX_BYTES >> 20)
        content = path.read_bytes()
    except OSError as error:
        raise fault("profile.file", "cannot be read: {reason}", path=str(path), reason=error.strerror or str(error)) from None
    return content[: content.rfind(b"\n") + 1]
