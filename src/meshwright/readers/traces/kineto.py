"""Chrome traces of PyTorch's profiler (Kineto), of every age: one rank's device and host."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.domain.observed import Observation, RankSplit, RankTrace
from meshwright.readers.formats import Format
from meshwright.readers.loose import MOST_RANKS, counted, mapping, sequence
from meshwright.readers.traces.collectives import Communication, communication, group_name, on_host
from meshwright.readers.traces.columns import MAX_COLLECTIVES, Columns, Device, Host
from meshwright.readers.traces.event import Event
from meshwright.readers.traces.intervals import Cover, union
from meshwright.readers.traces.kernels import LONGEST_NAME, SMALL_KERNEL_US, kernel_sums, median_s
from meshwright.readers.traces.names import CLASSES, COMMUNICATION, COMPUTE
from meshwright.readers.traces.pieces import PIECE, Pieces
from meshwright.readers.traces.steps import by_step, launches, moved, steps, windows
from meshwright.readers.traces.timeline import Timeline, idle_causes, timeline
from meshwright.text import visible

if TYPE_CHECKING:
    from meshwright.readers.source import Source

_LIST = re.compile(rb"^\s*(?:\xef\xbb\xbf)?[\[{]")
_US = 1e-6


def told(sample: bytes) -> bool:
    """Whether it is JSON with events of a trace, and not one of Ascend's."""
    if not _LIST.match(sample):
        return False
    listed = b'"traceEvents"' in sample or (b'"ph"' in sample and b'"ts"' in sample)
    return listed and not (b'"Ascend Hardware"' in sample or b'"HostToDevice' in sample)


def read(source: Source, size: int = PIECE) -> tuple[Observation, ...]:
    """The trace of one rank; nothing where no event takes time.

    ``size``: bytes that are read at a time; the answer does not depend on it.

    Errors:  ``InputError`` where it holds no list of events.
    """
    columns, pieces = Columns(), Pieces(source, Event, size)
    for events in pieces:
        columns.take(events)
    if not columns.timed:
        return ()
    return (_trace(source.shown, columns, pieces),)


FORMAT = Format(name="chrome_trace", says="Chrome traces of PyTorch's profiler (Kineto)", told=told, read=read)


@dataclass(frozen=True)
class _World:
    """Who wrote the trace, as it says."""

    rank: int | None
    world: int | None
    device: str
    groups: dict[str, tuple[int, ...]]


def _trace(file: str, columns: Columns, pieces: Pieces) -> RankTrace:
    everything, host = columns.device, columns.host
    device, others = _busiest(everything)
    world = _world(pieces.beside, int(device.device[0]) if len(device.start) else 0)
    covers = _covers(host)
    origin = _origin(everything, host)
    comm = communication(device, columns, host, origin)
    num_communication = int((device.kind == COMMUNICATION).sum())
    ranks = world.world or _largest(world.groups, comm)
    recognised = num_communication > 0 or ranks <= 1
    line = timeline(device, recognised, file=file, rank=world.rank, origin=origin)
    launched = launches(device, host)
    found = steps(host, columns.annotated, device, launched, line)
    durations, compute = device.duration[device.kind <= COMMUNICATION], device.duration[device.kind == COMPUTE]
    return RankTrace(
        file=file, format=FORMAT.name, rank=world.rank, world=ranks or None, device=world.device, split=_whole(device, line),
        windows=tuple(windows(found, columns.annotated, device, launched, line)),
        steps=tuple(moved(each, origin) for each in found), by_step=tuple(by_step(found, line)),
        idle=idle_causes(device, line.busy, launched, covers),
        host={name: covers[name].total * _US for name in covers if name not in ("step", "collective")},
        exposed_by_group=comm.exposed(line), collectives=comm.collectives(line) if len(device.start) else on_host(host, origin),
        kernels=kernel_sums(device, list(columns.names)),
        num_kernels=len(durations), num_communication_kernels=num_communication, kernels_s=float(durations.sum()) * _US,
        small_kernels_s=float(compute[compute < SMALL_KERNEL_US].sum()) * _US,
        median_kernel_s=median_s(durations),
        groups={**comm.groups, **world.groups}, events=pieces.events, complete=pieces.complete,
        notes=tuple(_notes(pieces, columns, device, others, comm, recognised, ranks)),
    )


def _largest(groups: Mapping[str, tuple[int, ...]], comm: Communication) -> int:
    """Ranks of the largest group that is named; 0 where none is."""
    return max((comm.largest_group, *(len(each) for each in (*groups.values(), *comm.groups.values()))))


def _busiest(everything: Device) -> tuple[Device, int]:
    """The rows of the device that works longest, and how many rows other devices have."""
    names, index = np.unique(everything.device, return_inverse=True)
    if len(names) < 2:
        return everything, 0
    chosen = index == int(np.argmax(np.bincount(index, weights=everything.duration)))
    return everything.rows(chosen), int((~chosen).sum())


def _origin(everything: Device, host: Host) -> float:
    firsts = [float(each.min()) for each in (everything.start, host.start, host.launched) if len(each)]
    return min(firsts, default=0.0)


def _covers(host: Host) -> dict[str, Cover]:
    """What the host did, by class."""
    ends = host.start + host.duration
    return {name: union(host.start[rows], ends[rows]) for index, name in enumerate(CLASSES) if (rows := host.what == index).any()}


def _whole(device: Device, line: Timeline) -> RankSplit:
    if not len(device.start):
        return line.split(line.origin, line.origin, "nothing ran on a device")
    return line.split(float(device.start[0]), float(device.end.max()), "from the device's first event to its last")


def _world(beside: dict[str, Any], device: int) -> _World:
    said = beside.get("distributedInfo")
    info: dict[str, Any] = said if isinstance(said, dict) else {}
    groups: dict[str, tuple[int, ...]] = {}
    listed = info.get("pg_config")
    for each in listed if isinstance(listed, list) else ():
        ranks = [counted(rank, MOST_RANKS) for rank in sequence(mapping(each).get("ranks"))]
        if ranks and None not in ranks:
            name = group_name(str(each.get("pg_name", "")), str(each.get("pg_desc", "")))
            groups[name] = tuple(rank for rank in ranks if rank is not None)
    properties = beside.get("deviceProperties")
    named = [each for each in properties if isinstance(each, dict)] if isinstance(properties, list) else []
    own = next((each for each in named if each.get("id") == device), named[0] if named else {})
    name = visible(str(own.get("name", "")))[:LONGEST_NAME]
    return _World(counted(info.get("rank"), MOST_RANKS), counted(info.get("world_size"), MOST_RANKS), name, groups)


def _notes(
    pieces: Pieces, columns: Columns, device: Device, others: int, comm: Communication, recognised: bool, ranks: int
) -> list[str]:
    wrong, notes = pieces.decoder.wrong, []
    if not pieces.complete:
        why = f" ({pieces.source.broken[0]})" if pieces.source.broken else ""
        notes.append(f"the file ends before its end{why}: what stands before the break was read, {pieces.events:,} events")
    if wrong.mended:
        notes.append("control characters, bytes that are no UTF-8, wrong escapes or numbers that JSON does not have were mended")
    if wrong.skipped:
        notes.append(f"{wrong.skipped:,} events could not be understood and were left out")
    if not len(device.start):
        notes.append("nothing ran on a device: only the host was recorded")
    elif recognised and ranks == 0 and not len(comm.args):
        notes.append("no communication kernels were recognised; the trace does not say how many ranks there were, one is assumed")
    elif not recognised:
        notes.append(f"no communication kernels were recognised although there are {ranks:,} ranks: what communicates counts as "
                     "computing; the longest kernels are listed")
    if others:
        notes.append(f"{others:,} events of other devices were left out: the device that works longest is the rank's")
    if len(comm.args) > MAX_COLLECTIVES:
        notes.append(f"of {len(comm.args):,} communication kernels the first {MAX_COLLECTIVES:,} are given one by one")
    if comm.unnamed:
        notes.append(f"of {comm.unnamed:,} communication kernels the trace does not say which collective they are")
    if columns.strange:
        strange = ", ".join(sorted(visible(each)[:60] for each in columns.strange))
        notes.append(f"events of unknown categories were left out: {strange}")
    return notes
