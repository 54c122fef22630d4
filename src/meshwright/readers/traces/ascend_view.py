"""``trace_view.json`` of Ascend's profiler: a Chrome trace whose events are told by their process, with times of many digits."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.observed import Observation, RankTrace
from meshwright.readers.formats import Format
from meshwright.readers.traces.ascend_names import COPIES, WAITS, collectives
from meshwright.readers.traces.columns import Device, Floats, Integers, Names
from meshwright.readers.traces.event import PlacedEvent, microseconds
from meshwright.readers.traces.intervals import Cover, union
from meshwright.readers.traces.kernels import SMALL_KERNEL_US, kernel_sums, median_s
from meshwright.readers.traces.names import CLASSES, COMMUNICATION, COMPUTE, MEMCPY, host_class
from meshwright.readers.traces.pieces import PIECE, Pieces
from meshwright.readers.traces.timeline import idle_causes, timeline

if TYPE_CHECKING:
    from meshwright.readers.source import Source

HOSTS = ("Python", "CANN")
HARDWARE, ANALYSIS, COLLECTIVES = "Ascend Hardware", "Overlap Analysis", ("HCCL", "Communication")
"""Names of processes: what ran, how Ascend's own tools sum it up, and collectives as a whole."""
_SUMMED = {"Computing": COMPUTE, "Communication": COMMUNICATION}
_US = 1e-6


def told(sample: bytes) -> bool:
    """Whether events are of Ascend's hardware."""
    own = b'"Ascend Hardware"' in sample or b'"HostToDevice' in sample
    return own and sample.lstrip()[:1] in (b"[", b"{") and b'"ph"' in sample


def read(source: Source, size: int = PIECE) -> tuple[Observation, ...]:
    """The trace of one rank; nothing where no event is of a device.

    Its split is that of the profiler's own overlap analysis where it has one.

    Errors:  ``InputError`` where it holds no list of events.
    """
    taken, pieces = _Taken(), Pieces(source, PlacedEvent, size)
    for events in pieces:
        taken.take(events)
    hardware, comm, summed = taken.hardware(), taken.of(*COLLECTIVES), taken.analysis()
    comm = replace(comm, kind=np.full(len(comm.start), COMMUNICATION))
    everything = _merged(hardware, comm)
    whole = summed if len(summed.start) else everything
    if not len(whole.start):
        return ()
    origin = min(float(each.start[0]) for each in (whole, everything) if len(each.start))
    line = timeline(whole, file=source.shown, origin=origin)
    start, end = float(whole.start[0]), float(whole.end.max())
    compute = hardware.duration[hardware.kind == COMPUTE]
    durations = everything.duration[everything.kind <= COMMUNICATION]
    names, launched = list(taken.names), taken.launched(whole.start)
    notes = [] if pieces.complete else [
        f"the file ends before its end: what stands before the break was read, {pieces.events:,} events"]
    own = "from the first to the last of the profiler's own overlap analysis"
    host = taken.host()
    return (RankTrace(
        file=source.shown, format=FORMAT.name,
        split=line.split(start, end, own if whole is summed else "from the device's first event to its last"),
        idle=idle_causes(whole, line.busy, launched, host), host={name: cover.total * _US for name, cover in host.items()},
        collectives=collectives(comm, names, line), kernels=kernel_sums(everything, names),
        num_kernels=len(durations), num_communication_kernels=len(comm.start), kernels_s=float(durations.sum()) * _US,
        small_kernels_s=float(compute[compute < SMALL_KERNEL_US].sum()) * _US, median_kernel_s=median_s(durations),
        events=pieces.events, complete=pieces.complete, notes=tuple(notes),
    ),)


FORMAT = Format(name="ascend_trace", says="traces of Ascend's profiler (trace_view.json)", told=told, read=read)


@dataclass
class _Rows:
    """Times of one thread as columns."""

    start: array[float] = field(default_factory=lambda: array("d"))
    duration: array[float] = field(default_factory=lambda: array("d"))
    name: array[int] = field(default_factory=lambda: array("q"))


@dataclass
class _Taken:
    """What is kept of events: names of processes, times by thread, what the host did, when things were launched."""

    names: Names = field(default_factory=Names)
    base: int | None = None
    processes: dict[int | str, str] = field(default_factory=dict)
    threads: dict[tuple[int | str, int | str], str] = field(default_factory=dict)
    timed: dict[tuple[int | str, int | str], _Rows] = field(default_factory=dict)
    did: _Rows = field(default_factory=_Rows)
    sent: _Rows = field(default_factory=_Rows)
    arrived: _Rows = field(default_factory=_Rows)

    def take(self, events: Sequence[PlacedEvent]) -> None:
        """Keep of a list of events what is asked later."""
        for each in events:
            if each.ph == "X":
                self._timed(each)
            elif each.ph == "M":
                if each.name == "process_name" and each.args:
                    self.processes[each.pid] = each.args.name
                elif each.name == "thread_name" and each.args:
                    self.threads[each.pid, each.tid] = each.args.name
            elif each.cat == "HostToDevice":
                _keep(self.sent if each.ph == "s" else self.arrived, self._since(each.ts), 0.0, hash(str(each.id)))

    def _timed(self, event: PlacedEvent) -> None:
        start, duration = self._since(event.ts), microseconds(event.dur)
        if self.processes.get(event.pid) in HOSTS:
            if (what := host_class(event.name)) >= 0:
                _keep(self.did, start, duration, what)
        else:
            _keep(self.timed.setdefault((event.pid, event.tid), _Rows()), start, duration, self.names[event.name])

    def _since(self, value: float | str) -> float:
        """Microseconds since the first event: the whole ones are taken off before what stands behind the point is lost."""
        whole, _, rest = value.partition(".") if isinstance(value, str) else ("", "", "")
        try:
            number = int(whole) if whole else int(value)
            behind = float(f"0.{rest or 0}") if whole else float(value) - number
        except (ValueError, OverflowError):
            return math.nan
        self.base = number if self.base is None else self.base
        return float(number - self.base) + behind

    def of(self, *processes: str) -> Device:
        """Rows of processes, in order of start, as computing."""
        return _device([rows for (pid, _), rows in self.timed.items() if self.processes.get(pid) in processes], COMPUTE)

    def hardware(self) -> Device:
        """What ran on the hardware; what waits there does nothing."""
        names, rows = list(self.names), self.of(HARDWARE)
        copies, waits = (np.array([bool(pattern.search(each)) for each in names], dtype=bool) for pattern in (COPIES, WAITS))
        rows = rows.rows(~waits[rows.name])
        return replace(rows, kind=np.where(copies[rows.name], MEMCPY, COMPUTE))

    def analysis(self) -> Device:
        """What the profiler's own analysis calls computing and communication."""
        found = [_device([rows for key, rows in self.timed.items()
                          if self.threads.get(key) == thread and self.processes.get(key[0]) == ANALYSIS], kind)
                 for thread, kind in _SUMMED.items()]
        return _merged(*found)

    def launched(self, starts: Floats) -> Floats:
        """When each of what begins at these times was launched; not a number where the trace does not say."""
        if not len(self.sent.start) or not len(self.arrived.start):
            return np.full(len(starts), np.nan)
        flow, sent = np.array(self.sent.name), np.array(self.sent.start)
        order = np.argsort(flow, kind="stable")
        at = np.array(self.arrived.start)
        by_time = np.argsort(at, kind="stable")
        place = np.minimum(np.searchsorted(at[by_time], starts), len(at) - 1)
        wanted = np.array(self.arrived.name)[by_time][place]
        index = np.minimum(np.searchsorted(flow[order], wanted), len(flow) - 1)
        known = (at[by_time][place] == starts) & (flow[order][index] == wanted)
        return np.where(known, sent[order][index], np.nan)

    def host(self) -> dict[str, Cover]:
        """What the host did, by class."""
        rows = _device([self.did], COMPUTE)
        return {name: union(rows.start[which], rows.end[which]) for index, name in enumerate(CLASSES)
                if name not in ("step", "collective") and (which := rows.name == index).any()}


def _keep(rows: _Rows, start: float, duration: float, name: int) -> None:
    if math.isfinite(start) and math.isfinite(duration):
        rows.start.append(start)
        rows.duration.append(max(0.0, duration))
        rows.name.append(name)


def _device(found: Sequence[_Rows], kind: int) -> Device:
    """Rows of threads in order of start, all of one kind."""
    start = np.concatenate([np.zeros(0), *(np.array(each.start) for each in found)])
    duration = np.concatenate([np.zeros(0), *(np.array(each.duration) for each in found)])
    name: Integers = np.concatenate([np.zeros(0, dtype=np.int64), *(np.array(each.name) for each in found)])
    zeros = np.zeros(len(start), dtype=np.int64)
    return Device(start, duration, zeros + kind, name, zeros, zeros).rows(np.argsort(start, kind="stable"))


def _merged(first: Device, second: Device) -> Device:
    found = Device(
        np.concatenate((first.start, second.start)), np.concatenate((first.duration, second.duration)),
        np.concatenate((first.kind, second.kind)), np.concatenate((first.name, second.name)),
        np.concatenate((first.correlation, second.correlation)), np.concatenate((first.device, second.device)))
    return found.rows(np.argsort(found.start, kind="stable"))
