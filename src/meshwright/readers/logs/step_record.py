"""What one rank of the reference step notes of itself: ``meshwright step --record DIR``, JSON lines as they came (docs/engine.md).

A header first. Then for each step a line where it begins and one where it is over; between them each exchange when it is called and
when it is done; groups where they are first met; the run's end last. A file without its end is that of a run that was ended.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from meshwright.domain.observed import (
    Collective,
    CollectiveEntry,
    Hanging,
    Observation,
    Place,
    RankMemory,
    RankProgress,
    RankSplit,
    RankTrace,
    RunLog,
    Step,
    TraceStep,
)
from meshwright.readers.formats import Format
from meshwright.readers.loose import amount, counted, mapping, number, sequence, text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.readers.source import Source

BEGINS = b'"meshwright step record'
MAX_LINE_BYTES = 1 << 16
MAX_CALLS, MAX_STEPS, MAX_GROUPS = 1_000_000, 1_000_000, 10_000
FIELDS = (
    "layout", "model", "device", "torch", "global_batch_sequences", "sequence_tokens", "warmup_steps", "asked_threads",
    "cores", "ranks_here",
)
WORK = ("forward", "backward", "optimizer")
SILENT_S, SILENT_STEPS = 1.0, 3.0
"""A rank that has noted nothing for longer than this, and than so many of its median steps, has come to a stop."""
FAILED = ("error", "peer")
"""Ends that a rank may come to in an exchange that the others do not take part in."""
PAIRED = {"send": "send-recv", "receive": "send-recv"}
"""What the two ranks of a transfer call it -> what it is."""
HOST = {"gc": "gc", "synchronise": "sync", "compile": "compile"}
"""Names of the record -> those of ``RankTrace.host``."""


@dataclass(slots=True)
class _Call:
    operation: str
    group: str
    sequence: int
    payload_bytes: int | None
    start_s: float
    line: int
    end_s: float | None = None
    blocked_s: float = 0.0


@dataclass(slots=True)
class _Taken:
    """One step as the file has it."""

    number: int
    line: int
    start_s: float
    step_s: float
    parts: dict[str, float]
    host: dict[str, float]
    memory: Mapping[object, object]
    tokens: int | None
    padded: int | None
    threads: int | None
    loss: float | None

    @property
    def end_s(self) -> float:
        return self.start_s + self.step_s


@dataclass(slots=True)
class _Record:
    """A file so far."""

    header: Mapping[object, object] = field(default_factory=dict)
    steps: list[_Taken] = field(default_factory=list)
    calls: dict[tuple[str, int], _Call] = field(default_factory=dict)
    dimensions: dict[str, str] = field(default_factory=dict)
    ranks: dict[str, tuple[int, ...]] = field(default_factory=dict)
    end: str = ""
    lines: int = 0
    left: int = 0
    """Lines that are none of the record's."""
    offset_s: float = 0.0
    last_s: float = 0.0
    """When something other than the time was noted last, on the rank's own clock."""
    alive_s: float = 0.0
    """When the time was."""

    def take(self, line: Mapping[object, object]) -> bool:
        """One line; False where it is none of a record's."""
        ends = number(line.get("start_s")) or 0.0
        self.last_s = max(self.last_s, ends + (amount(line.get("duration_s")) or 0.0), number(line.get("end_s")) or 0.0)
        self.alive_s = max(self.alive_s, number(line.get("at_s")) or 0.0)
        if "called" in line:
            return self._called(line)
        if "done" in line:
            return self._done(line)
        if "step" in line:
            return self._step(line)
        if "group" in line and len(self.ranks) < MAX_GROUPS:
            name = text(line["group"])
            self.ranks[name] = tuple(each for item in sequence(line.get("ranks")) if (each := counted(item)) is not None)
            self.dimensions[name] = text(line.get("dimension")) or "world"
        elif "end" in line:
            self.end = text(line["end"])
        elif "format" in line:
            self.header = line
            self.offset_s = number(mapping(line.get("clock")).get("offset_s")) or 0.0
        return bool(line)

    def group(self, name: str) -> str:
        """A group as findings call it, with the pair of ranks of a transfer."""
        base, _, pair = name.partition(":")
        return f"{self.dimensions.get(base, 'world')}_group {base}" + f" {pair}" * bool(pair)

    def _called(self, line: Mapping[object, object]) -> bool:
        count, start = counted(line.get("sequence")), number(line.get("start_s"))
        if count is None or start is None or start < self.offset_s or len(self.calls) >= MAX_CALLS:
            return False
        group = text(line.get("of"))
        self.calls[group, count] = _Call(
            text(line["called"]), group, count, counted(line.get("payload_bytes")), start - self.offset_s, self.lines
        )
        return True

    def _done(self, line: Mapping[object, object]) -> bool:
        call = self.calls.get((text(line.get("of")), counted(line["done"]) or 0))
        end = number(line.get("end_s"))
        if call is None or end is None or end - self.offset_s < call.start_s:
            return False
        call.end_s, call.blocked_s = end - self.offset_s, amount(line.get("blocked_s")) or 0.0
        return True

    def _step(self, line: Mapping[object, object]) -> bool:
        count, start, took = counted(line["step"]), number(line.get("start_s")), amount(line.get("duration_s"))
        if count is None or start is None or start < self.offset_s or took is None or len(self.steps) >= MAX_STEPS:
            return False
        host = {new: amount(pair[1]) or 0.0 for old, new in HOST.items()
                if len(pair := sequence(mapping(line.get("host")).get(old))) == 2}
        self.steps.append(_Taken(
            count, self.lines, start - self.offset_s, took,
            {str(name)[:40]: amount(spent) or 0.0 for name, spent in list(mapping(line.get("parts")).items())[:20]}, host,
            mapping(line.get("memory")), counted(line.get("tokens")), counted(line.get("padded_tokens")),
            counted(line.get("threads")), number(line.get("loss")),
        ))
        return True


def read(source: Source) -> tuple[Observation, ...]:
    """One rank's log, its trace, and where it stands in what it never finished."""
    record = _parsed(source)
    if not record.header:
        return ()
    rank, world = counted(record.header.get("rank")), counted(record.header.get("world"))
    notes = [f"{record.left} lines are none of a record's"] if record.left else []
    if not record.end:
        notes.append("the record breaks off: the run was ended from outside")
    found: list[Observation] = [_log(record, source.shown, rank, world, tuple(notes))]
    if (trace := _trace(record, source.shown, rank, world)) is not None:
        found.append(trace)
    if rank is not None and _stopped(record):
        found.append(_hanging(record, source.shown, rank))
    return tuple(found)


def _parsed(source: Source) -> _Record:
    record = _Record()
    with source.open() as stream:
        while line := stream.readline(MAX_LINE_BYTES):
            record.lines += 1
            try:
                document = json.loads(line)
            except (ValueError, RecursionError):
                document = None
            if not isinstance(document, dict) or not record.take(document):
                record.left += 1
    return record


def _steady(record: _Record) -> list[_Taken]:
    """Steps behind those of warming up; all where there are no others."""
    warm = counted(record.header.get("warmup_steps")) or 0
    return [each for each in record.steps if each.number >= warm] or record.steps


def _log(record: _Record, file: str, rank: int | None, world: int | None, notes: tuple[str, ...]) -> RunLog:
    header, steps = record.header, _steady(record)
    sequences = counted(header.get("global_batch_sequences"))
    settings = {name: text(header[name]) for name in FIELDS if text(header.get(name))}
    threads = {each.threads for each in steps if each.threads is not None}
    if threads:
        settings["threads"] = str(max(threads))
    return RunLog(
        file=file, format=FORMAT.name, framework="", world=world, sequence_tokens=counted(header.get("sequence_tokens")),
        settings=settings | ({} if rank is None else {"rank": str(rank)}), notes=notes, lines=record.lines,
        steps=tuple(
            Step(
                number=each.number, step_s=each.step_s, line=each.line, at_s=each.end_s, sequences=sequences, loss=each.loss,
                parts=each.parts | each.host, rank_tokens=each.tokens, padded_tokens=each.padded,
                memory_bytes=amount(each.memory.get("peak_reserved_bytes")),
            )
            for each in steps
        ),
        memory=() if rank is None else tuple(
            RankMemory(
                rank=rank, step=each.number, line=each.line, allocated_bytes=amount(each.memory.get("live_bytes")),
                max_allocated_bytes=amount(each.memory.get("peak_bytes")),
                max_reserved_bytes=amount(each.memory.get("peak_reserved_bytes")),
            )
            for each in steps if each.memory
        ),
    )


def _trace(record: _Record, file: str, rank: int | None, world: int | None) -> RankTrace | None:
    """The steady steps as a trace has them, on the clock of rank 0."""
    steps = _steady(record)
    if not steps:
        return None
    begin, end = steps[0].start_s, steps[-1].end_s
    calls = [each for each in record.calls.values() if each.end_s is not None and begin <= each.start_s <= end]
    by_group: dict[str, float] = {}
    for call in calls:
        by_group[record.group(call.group)] = by_group.get(record.group(call.group), 0.0) + call.blocked_s
    host = {name: sum(each.host.get(name, 0.0) for each in steps) for name in HOST.values()}
    data = sum(each.parts.get("data", 0.0) for each in steps)
    idle = {"data": data} | host | {"other": sum(each.parts.get("other", 0.0) for each in steps)}
    whole_split = _split(steps, file, rank, world, f"{len(steps)} steps on the host")
    return RankTrace(
        file=file, format=FORMAT.name, rank=rank, world=world, device=text(record.header.get("device")), split=whole_split,
        steps=tuple(TraceStep(number=each.number, start_s=each.start_s, end_s=each.end_s) for each in steps),
        by_step=tuple(_split([each], file, rank, world, "one step on the host") for each in steps),
        idle=idle, host={"dataloader": data} | host, exposed_by_group=by_group,
        collectives=tuple(
            Collective(
                operation=PAIRED.get(each.operation, each.operation), start_s=each.start_s,
                end_s=each.end_s or each.start_s, exposed_s=each.blocked_s,
                group=record.group(each.group), ranks=record.ranks.get(each.group.partition(":")[0], ()), sequence=each.sequence,
                message_bytes=each.payload_bytes,
            )
            for each in calls
        ),
        num_communication_kernels=len(calls), groups={record.group(name): ranks for name, ranks in record.ranks.items()},
        complete=bool(record.end),
    )


def _split(steps: list[_Taken], file: str, rank: int | None, world: int | None, window: str) -> RankSplit:
    """Where the time of steps went; what a rank does between its parts counts as idle."""
    window_s = sum(each.step_s for each in steps)
    compute = sum(each.parts.get(name, 0.0) for each in steps for name in WORK)
    talk = sum(each.parts.get("communication", 0.0) for each in steps)
    return RankSplit(
        file=file, rank=rank, step=steps[0].number if len(steps) == 1 else None, window=window, window_s=window_s,
        compute_s=compute, communication_s=talk if world != 1 else 0.0, exposed_communication_s=talk if world != 1 else 0.0,
        idle_s=max(0.0, window_s - compute - talk),
    )


def _stopped(record: _Record) -> bool:
    """Whether the rank came to a stop before it was done, or failed in an exchange."""
    if record.end in FAILED and any(call.end_s is None for call in record.calls.values()):
        return True
    usual = median(each.step_s for each in record.steps) if record.steps else 0.0
    return record.end != "done" and record.alive_s - record.last_s > max(SILENT_S, SILENT_STEPS * usual)


def _hanging(record: _Record, file: str, rank: int) -> Hanging:
    """How far the rank got in each group."""
    last: dict[str, list[_Call]] = {}
    for call in record.calls.values():
        last.setdefault(call.group, []).append(call)
    entries, progress = [], []
    for name, calls in last.items():
        pair = ":" in name
        calls.sort(key=lambda each: each.sequence)
        done = [each.sequence for each in calls if each.end_s is not None]
        if not pair:
            progress.append(RankProgress(
                rank=rank, group=record.group(name), last_enqueued=calls[-1].sequence, last_completed=max(done, default=0),
                place=Place(file=file, line=calls[-1].line),
            ))
        entries += [
            CollectiveEntry(
                rank=rank, group=record.group(name), sequence=each.sequence, operation=_asked(each), point_to_point=pair,
                elements_in=each.payload_bytes, dtype="byte",
                state="scheduled" if each.end_s is None else "completed", place=Place(file=file, line=each.line),
            )
            for each in calls[-8:]
        ]
    groups = {record.group(name): ranks for name, ranks in record.ranks.items()}
    return Hanging(file=file, format=FORMAT.name, entries=tuple(entries), progress=tuple(progress), groups=groups)


def _asked(call: _Call) -> str:
    """An exchange as watchdogs spell it: of a transfer with whose and to whom."""
    here, _, there = call.group.partition(":")[2].partition(">")
    return {"send": f"send {here}->{there}", "receive": f"recv {there}<-{here}"}.get(call.operation, call.operation)


def _told(sample: bytes) -> bool:
    return BEGINS in sample[:4096]


FORMAT = Format(
    name="meshwright_step", says="records of the reference step (meshwright step --record), one a rank", told=_told, read=read
)
