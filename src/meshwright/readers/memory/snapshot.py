"""PyTorch's memory snapshot (``torch.cuda.memory._dump_snapshot``): segments as they were, and what the allocator did before.

The pickle is read as plain values only. The recording may begin late: its peak is above what was live when it began.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from meshwright.domain.observed import MemorySnapshot
from meshwright.errors import fault
from meshwright.readers.formats import Format
from meshwright.readers.frames import Seen, user_frame
from meshwright.readers.json_so_far import content
from meshwright.readers.loose import mapping, sequence, text, whole
from meshwright.readers.memory.replay import Change, replayed
from meshwright.readers.plain_pickle import load_plain_pickle, looks_like_pickle

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.readers.source import Source

MAX_BYTES = 2**29
MAX_EVENTS = 10_000_000
MAX_DEVICES = 1024
MAX_SEGMENTS = 2_000_000
"""Segments and blocks of all devices together."""
MAX_SIZE = 2**60
WARM_UP = 0.25
"""Share of a recording in which segments come and go as a run warms up."""


def read(source: Source) -> tuple[MemorySnapshot, ...]:
    """Every device that has a segment or an event."""
    document, complete = load_plain_pickle(content(source, MAX_BYTES), source.shown)
    top = mapping(document)
    if "segments" not in top and "device_traces" not in top:
        raise fault("memory_snapshot.none", "is a pickle without the segments of a memory snapshot", path=source.shown)
    traces = sequence(top.get("device_traces"))[:MAX_DEVICES]
    if sum(len(sequence(each)) for each in traces) > MAX_EVENTS:
        raise fault("memory_snapshot.large", "records more than {limit:,} events", path=source.shown, limit=MAX_EVENTS)
    segments: dict[int, list[Mapping[object, object]]] = {}
    number = 0
    for each in sequence(top.get("segments")):
        segment = mapping(each)
        number += 1 + len(sequence(segment.get("blocks")))
        if number > MAX_SEGMENTS:
            raise fault("memory_snapshot.large", "holds more than {limit:,} segments and blocks", path=source.shown,
                        limit=MAX_SEGMENTS)
        segments.setdefault(whole(segment.get("device")) or 0, []).append(segment)
    notes = () if complete else ("the file breaks off; what stands whole is read",)
    devices = sorted({*segments, *(index for index, each in enumerate(traces) if sequence(each))})
    return tuple(_device(source.shown, device, segments.get(device, []),
                         [mapping(each) for each in sequence(traces[device])] if 0 <= device < len(traces) else [], notes)
                 for device in devices)


def _size(value: object) -> int:
    found = whole(value) or 0
    return found if 0 < found <= MAX_SIZE else 0


def _device(file: str, device: int, segments: list[Mapping[object, object]], events: list[Mapping[object, object]],
            notes: tuple[str, ...]) -> MemorySnapshot:
    free = [_size(block.get("size")) for segment in segments for each in sequence(segment.get("blocks"))
            if text((block := mapping(each)).get("state")) == "inactive"]
    seen: Seen = {}
    changes: list[Change] = []
    actions: Counter[str] = Counter()
    freed = 0
    failed: list[int] = []
    first = next((whole(each.get("time_us")) for each in events), None)
    times = any(whole(each.get("time_us")) for each in events)
    for index, event in enumerate(events):
        action = text(event.get("action"), 40)
        actions[action] += 1
        at = ((whole(event.get("time_us")) or 0) - (first or 0)) * 1e-6
        if action == "alloc":
            holder = user_frame(event.get("frames"), seen)
            changes.append(Change(at, whole(event.get("addr")), _size(event.get("size")), holder))
        elif action == "free_completed":
            changes.append(Change(at, whole(event.get("addr")), 0))
        elif action == "segment_free" and index >= WARM_UP * len(events):
            freed += 1
        elif action == "oom" and len(failed) < 1000:
            failed.append(_size(event.get("size")))
    replay = replayed(changes)
    return MemorySnapshot(
        file=file, format="cuda_memory_snapshot", device=device,
        reserved_bytes=sum(_size(each.get("total_size")) for each in segments),
        allocated_bytes=sum(_size(each.get("allocated_size")) for each in segments),
        active_bytes=sum(_size(each.get("active_size")) for each in segments), num_segments=len(segments),
        events=tuple(actions.items()), peak_bytes=replay.peak_bytes if changes else None,
        peak_at_s=replay.peak_at if times else None, largest_free_bytes=max(free, default=0) if segments else None,
        out_of_memory=tuple(failed), freed_segments=freed, holders=replay.holders, notes=notes)


def _told(sample: bytes) -> bool:
    return looks_like_pickle(sample) and b"segments" in sample and (b"total_size" in sample or b"device_traces" in sample)


FORMAT = Format(name="cuda_memory_snapshot", says="snapshots of PyTorch's allocator (pickle)", told=_told, read=read)
