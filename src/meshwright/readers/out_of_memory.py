"""What a run says when its memory ends: messages of allocators, drivers, communication libraries and the kernel, in any log.

A message is found in prose, behind the prefixes of launchers, wrapped over several lines, once or from a thousand ranks. Only its
figures and the last frames of the traceback above it are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import PurePath
from typing import NamedTuple

from meshwright.domain.observed.out_of_memory import OutOfMemories, OutOfMemory, Speaker
from meshwright.errors import fault
from meshwright.readers.formats import Format
from meshwright.readers.lines import Search, tells
from meshwright.readers.needles import Needles
from meshwright.readers.source import Source
from meshwright.readers.traceback_phase import MAX_FRAMES_ABOVE, phase_of

MAX_BYTES = 64 * 10**6
"""Of a log: what is larger is cut by whoever asks."""
MAX_LINE = 4000
MAX_MESSAGES = 4096
WRAPPED = 8
"""Lines that one message may be wrapped over."""


def read_out_of_memory(text: str, where: str = "") -> tuple[OutOfMemory, ...]:
    """All messages of a log, in the order in which they stand there; one for each rank that speaks.

    ``where`` names the file: some launchers write one for each rank.
    Errors: ``InputError`` where nothing in the text is such a message.
    """
    if not text.strip():
        raise fault("oom.empty", "is empty: the message of the run that ran out of memory is wanted", path=where)
    found = _found(text, where)
    if not found:
        raise fault(
            "oom.unknown", "holds no out-of-memory message: none of an allocator, a driver, a communication library or the kernel",
            path=where,
        )
    return found


def _found(text: str, where: str) -> tuple[OutOfMemory, ...]:
    """All messages of a text, which may have none."""
    return _settled(list(_messages([_plain(line) for line in text.splitlines()])), where)


def _settled(found: Sequence[OutOfMemory], where: str) -> tuple[OutOfMemory, ...]:
    """One message a rank, which the name of the file may say."""
    alone = _FILE.search("/".join(PurePath(where).parts[-2:]))
    if alone is not None:
        found = [each if each.rank is not None else replace(each, rank=int(alone[1])) for each in found]
    return tuple(_one_per_rank(found))


def _read(source: Source) -> tuple[OutOfMemories, ...]:
    """The messages of a log of any length, each with what stands above and below it."""
    found: list[OutOfMemory] = []
    for hit in Search(Needles(_ANCHORS, source.excerpt)).hits(source):
        if len(found) >= MAX_MESSAGES:
            break
        if not _ANY.search(hit.line.text):
            continue
        raw, own = hit.around(MAX_FRAMES_ABOVE, WRAPPED)
        message = _message([_plain(line) for line in raw], own)
        if message is not None:
            found.append(replace(message, line=hit.line.number))
    messages = _settled(found, source.shown)
    return (OutOfMemories(file=source.shown, format="out_of_memory", messages=messages),) if messages else ()


def _plain(line: str) -> str:
    """A line without colours, cut where nothing more can matter."""
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line[:MAX_LINE])


_SUSPECT = re.compile(
    r"memory|mem size|tried to alloc|oom|RESOURCE_EXHAUSTED|bad_alloc|ALLOC_FAILED|CUDA calloc|207001|EL0004", re.IGNORECASE
)


def _messages(lines: Sequence[str]) -> Iterator[OutOfMemory]:
    """Each line that is a message, read together with those that it is wrapped over."""
    count = 0
    for number, line in enumerate(lines):
        message = _message(lines, number) if _SUSPECT.search(line) else None
        if message is not None:
            yield message
            count += 1
        if count >= MAX_MESSAGES:
            return


def _message(lines: Sequence[str], number: int) -> OutOfMemory | None:
    """What the line says, where it is a message."""
    line = lines[number]
    for speaker, pattern, read in _SPEAKERS:
        at = pattern.search(line)
        if at is None:
            continue
        whole = _unwrapped(lines, number, at.start())
        who = _who(line)
        phase, frame = phase_of(lines, number, _who)
        message = OutOfMemory(
            speaker=speaker, text=whole[:1500], line=number + 1, rank=who.rank, stage=who.stage, phase=phase, frame=frame
        )
        told = read(message, whole)
        return told if who.local is None else replace(told, device=who.local)
    return None


def _unwrapped(lines: Sequence[str], number: int, start: int) -> str:
    """The message from where it begins, joined with what follows as long as it goes on."""
    parts = [lines[number][start:].strip()]
    who = _who(lines[number])
    for line in lines[number + 1 : number + WRAPPED]:
        if not line.strip() or _BEGINS.search(line) or _who(line) != who:
            break
        parts.append(_PREFIX.sub("", line).strip())
    return " ".join(parts)


_BEGINS = re.compile(r"Traceback|out of memory|^\s*File \"|Error\b.*:|\bWARN\b|\bINFO\b", re.IGNORECASE)
_PREFIX = re.compile(r"^\s*(?:\[(?:rank|default)\d+\]:|\d+:|\[1,\d+\]<std\w+>:)\s?", re.IGNORECASE)
_RANKS = (
    re.compile(r"\[rank[ _]?(\d{1,7})\]", re.IGNORECASE),
    re.compile(r"^\s*\[1,(\d{1,7})\]<std"),
    re.compile(r"^\s*(\d{1,7}):\s"),
    re.compile(r"\brank(?:[ =:]{1,2}|_id[ =:]{1,2})(\d{1,7})\b", re.IGNORECASE),
)
_STAGE = (re.compile(r"\bPP[=: ](\d{1,5})\b"),)
_LOCAL = (re.compile(r"^\s*\[default(\d{1,4})\]:"),)
_FILE = re.compile(r"(?:worker|rank)[_-](\d{1,7})\b", re.IGNORECASE)
"""Logs of one rank each: ``worker_3.log`` (msrun), ``rank_3/error.log``."""


class _Who(NamedTuple):
    """Whose line it is."""

    rank: int | None
    stage: int | None
    local: int | None
    """Rank within its node."""


def _who(line: str) -> _Who:
    """Rank and pipeline stage by the prefix that a launcher or a logger writes."""
    return _named_in(line[:200])


@lru_cache(maxsize=4096)  # the lines above one message are those above the next
def _named_in(head: str) -> _Who:
    return _Who(*(
        next((int(found[1]) for pattern in patterns if (found := pattern.search(head))), None)
        for patterns in (_RANKS, _STAGE, _LOCAL)
    ))


_SIZE = r"([0-9]{1,20}(?:\.[0-9]{1,6})?) ?(bytes|[KMGT]i?B?|B)(?![A-Za-z])"
_UNITS = {"K": 2.0**10, "M": 2.0**20, "G": 2.0**30, "T": 2.0**40}
"""Allocators count in powers of 1024, whether they write GiB, GB or M."""


def _size(pattern: str, text: str) -> float | None:
    """The size that stands where ``SIZE`` does in a pattern, in bytes."""
    found = re.search(pattern.replace("SIZE", _SIZE), text, re.IGNORECASE)
    if found is None:
        return None
    number, unit = (group for group in found.groups() if group is not None)
    return float(number) * _UNITS.get(unit[0].upper(), 1.0)


def _bytes(pattern: str, text: str) -> float | None:
    """The plain count of bytes that stands where ``BYTES`` does in a pattern."""
    found = re.search(pattern.replace("BYTES", "([0-9]{1,20})"), text, re.IGNORECASE)
    return None if found is None else float(next(group for group in found.groups() if group is not None))


def _pytorch(message: OutOfMemory, text: str) -> OutOfMemory:
    """``X out of memory. Tried to allocate ...`` in the wordings of all releases and back ends."""
    device = re.search(r"(?:GPU|NPU|XPU) +(\d{1,4})\b", text)
    allocated = _size(r"SIZE is allocated by PyTorch|SIZE already allocated", text)
    unallocated = _size(r"SIZE is reserved by PyTorch but unallocated", text)
    reserved = _size(r"SIZE reserved in total by PyTorch|SIZE cached", text)
    if unallocated is None and reserved is not None and allocated is not None:
        cached_alone = "cached" in text and reserved < allocated  # before 1.4: what is free in the cache
        unallocated = reserved if cached_alone else max(0.0, reserved - allocated)
    return replace(
        message,
        device=int(device[1]) if device else None,
        requested_bytes=_size(r"Tried to allocate SIZE", text),
        capacity_bytes=_size(r"total capac(?:i)?ty of SIZE|SIZE total(?: capacity)?;", text),
        free_bytes=_size(r"of which SIZE is free|; SIZE free", text),
        allowed_bytes=_size(r"SIZE allowed", text),
        allocated_bytes=allocated,
        unallocated_bytes=unallocated,
        private_pool_bytes=_size(r"SIZE allocated in private pools", text) or 0.0,
        # 0 bytes is what a container without the driver's list of processes shows
        process_bytes=_size(r"this process has SIZE memory in use", text) or None,
        processes=tuple(_processes(text)),
    )


def _processes(text: str) -> Iterator[tuple[int, float]]:
    """Numbers and bytes of processes."""
    for found in list(re.finditer(r"Process (\d{1,9}) has (.{1,24}?) memory in use", text))[:64]:
        size = _size("^SIZE$", found[2])
        if size is not None:
            yield int(found[1]), size


def _mindspore(message: OutOfMemory, text: str) -> OutOfMemory:
    """MindSpore's pool: sizes in bytes or in M, by release and back end; the kernel that asked stands for a traceback."""
    device = re.search(r"Device\(id: ?(\d{1,4})\)", text)
    kernel = re.search(r"kernel name: ?(.{1,200}?), alloc size", text)
    phase, frame = phase_of([f'File "{kernel[1]}", in kernel'], 1, _who) if kernel else (message.phase, message.frame)
    used = _size(r"MindSpore Used memory size: ?SIZE", text)
    capacity = _size(r"Device (?:HBM )?memory size: ?SIZE", text)
    allocated = _bytes(r"TotalUsedMemStatistics ?: ?BYTES", text) if used is None else used
    return replace(
        message,
        device=int(device[1]) if device else None,
        requested_bytes=_bytes(r"alloc size ?: ?BYTES|required size\[BYTES\]|request(?:ed)? memory size:? ?BYTES ?B", text),
        capacity_bytes=_bytes(r"total mem size ?: ?BYTES", text) if capacity is None else capacity,
        free_bytes=_bytes(r"free memory size\[BYTES\]", text),
        allocated_bytes=allocated,
        unallocated_bytes=None if allocated is None else 0.0,
        phase=phase,
        frame=frame,
    )


def _sized(message: OutOfMemory, text: str) -> OutOfMemory:
    """Whatever else says how much it wanted."""
    asked = r"(?:allocate|calloc|alloc size|request(?:ed)?(?: memory)? size)[:\[ ]*"
    return replace(message, requested_bytes=_size(asked + "SIZE", text))


_Reader = Callable[[OutOfMemory, str], OutOfMemory]
_WORDINGS: tuple[tuple[Speaker, str, _Reader], ...] = (
    ("pytorch", r"(?:CUDA|HIP|NPU|XPU) out of memory\b", _pytorch),
    ("pytorch", r"Tried to allocate [0-9].*\b(?:GPU|NPU|XPU) +[0-9]", _pytorch),
    ("mindspore", r"(?:#umsg#)?Memory not enough|memory isn't enough and alloc failed|Out of Memory!!!"
                  r"|TotalUsedMemStatistics.*more than total mem size", _mindspore),
    ("xla", r"RESOURCE_EXHAUSTED.*(?:memory|allocat)", _sized),
    ("communication", r"(?:NCCL|RCCL|HCCL|ncclUnhandledCudaError).{0,200}(?:out of memory|calloc|memory allocation|malloc)",
     _sized),
    ("kernel", r"oom[-_ ]?kill|Out of memory: Kill|Memory cgroup out of memory|\bOUT_OF_MEMORY\b|cgroup out-of-memory"
               r"|DefaultCPUAllocator: (?:can't|not enough)|std::bad_alloc|Cannot allocate memory|\bMemoryError\b", _sized),
    ("driver", r"CUDA error: out of memory|HIP error: out of memory|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY"
               r"|hipErrorOutOfMemory|CU(?:BLAS|DNN)_STATUS_ALLOC_FAILED|rtMalloc.{0,80}(?:fail|memory)|\bEL0004\b|\b207001\b"
               r"|cu(?:da)?(?:Malloc|MemAlloc|HostAlloc)\w* failed.{0,60}(?:memory|$)", _sized),
)
"""Who speaks, how the message begins, and how it is read: the first that a line holds."""
_SPEAKERS = tuple((speaker, re.compile(wording, re.IGNORECASE), read) for speaker, wording, read in _WORDINGS)
_ANY = re.compile("|".join(wording for _, wording, _ in _WORDINGS), re.IGNORECASE)
_ANCHORS = (
    b"out of memory", b"out-of-memory", b"OUT_OF_MEMORY", b"Tried to allocate", b"Memory not enough", b"memory isn't enough",
    b"TotalUsedMemStatistics", b"RESOURCE_EXHAUSTED", b"CUDA calloc", b"memory allocation", b"rtMalloc", b"oom-kill", b"oom_kill",
    b"oom kill", b"oomkill", b"DefaultCPUAllocator", b"bad_alloc", b"Cannot allocate memory", b"MemoryError",
    b"cudaErrorMemoryAllocation", b"hipErrorOutOfMemory", b"STATUS_ALLOC_FAILED", b"EL0004:", b"EL0004 ", b"EL0004]", b" 207001",
    b"=207001", b":207001", b"[207001", b"cudaMalloc", b"cuMemAlloc", b"cudaHostAlloc", b"cuMalloc", b"cuHostAlloc", b"malloc fail",
    b"calloc fail", b"Failed to calloc", b"failed to malloc",
)
"""One of them is on every line that is a message."""


def _one_per_rank(found: Sequence[OutOfMemory]) -> Iterator[OutOfMemory]:
    """Each rank's first message, or where it repeats itself the one with figures; what has no rank is told apart by its device."""
    groups: dict[object, OutOfMemory] = {}
    for each in found:
        key = (each.rank, each.stage, each.device if each.rank is None else None, each.speaker == "kernel")
        kept = groups.get(key)
        if kept is None:
            bare = (None, None, None, each.speaker == "kernel")
            key = bare if key != bare and each.rank is None and bare in groups and groups[bare].capacity_bytes is None else key
            kept = groups.get(key)
        if kept is None or (kept.capacity_bytes is None and each.capacity_bytes is not None):
            groups[key] = each if kept is None else replace(each, phase=each.phase or kept.phase, frame=each.frame or kept.frame)
    yield from groups.values()


FORMAT = Format(
    name="out_of_memory", says="messages of allocators, drivers and the kernel when memory ends",
    told=lambda sample: tells(sample, _ANCHORS, _ANY), read=_read,
)
