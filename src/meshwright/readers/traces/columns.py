"""Events of a trace as columns: numbers only, a name once however often it comes: millions of kernels are a few megabytes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from meshwright.readers.loose import MOST
from meshwright.readers.traces.event import Args, Event, microseconds
from meshwright.readers.traces.names import (
    ANNOTATION_ON_DEVICE,
    CLASSES,
    COMMUNICATES,
    COMMUNICATION,
    COMPUTE,
    DEVICE_CATEGORIES,
    KNOWN_CATEGORIES,
    LAUNCH_CATEGORIES,
    OPERATIONS,
    STEP,
    host_class,
    operation,
)

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

MAX_NAMES = 200_000
"""Different names of kernels that are kept; further ones share one entry."""
MAX_CLASSED = 500_000
"""Names of host events whose class is remembered at a time."""
MAX_COLLECTIVES = 100_000
"""Collectives whose arguments are kept."""
OTHER_NAMES = ("(further kernels)", "nccl (further communication kernels)")
MAX_STRANGE = 20
"""Unknown categories that are named."""
NO_ARGS = Args()


class Names(dict[str, int]):
    """Name -> its number, in the order of first sight; and of each number whether the name is one of communication."""

    def __init__(self) -> None:
        super().__init__({OTHER_NAMES[0]: 0, OTHER_NAMES[1]: 1})
        self.communicates = [False, True]

    def __missing__(self, name: str) -> int:
        communicates = bool(COMMUNICATES.search(name))
        if len(self) >= MAX_NAMES:
            return int(communicates)
        self[name] = number = len(self)
        self.communicates.append(communicates)
        return number


class _Classes(dict[str, int]):
    def __missing__(self, name: str) -> int:
        if len(self) >= MAX_CLASSED:
            self.clear()
        self[name] = found = host_class(name)
        return found


@dataclass(frozen=True, eq=False)
class Device:
    """What ran on devices, a row for each; microseconds."""

    start: Floats
    duration: Floats
    kind: Integers
    """Place in ``names.KINDS``."""
    name: Integers
    correlation: Integers
    device: Integers

    @property
    def end(self) -> Floats:
        """When each ended."""
        return self.start + self.duration

    def rows(self, which: NDArray[Any]) -> Device:
        """Some of the rows."""
        return Device(*(each[which] for each in (self.start, self.duration, self.kind, self.name, self.correlation, self.device)))


@dataclass(frozen=True, eq=False)
class Host:
    """Marked events of the host, and every call that may have launched something; microseconds."""

    start: Floats
    duration: Floats
    what: Integers
    """Place in ``names.CLASSES``."""
    number: Integers
    """Of a step; of a collective that the host runs the place of its operation in ``names.OPERATIONS``; otherwise -1."""
    launched: Floats
    """When each call with a correlation began."""
    correlation: Integers
    external: Integers


@dataclass
class Columns:
    """Takes lists of events and gives columns."""

    names: Names = field(default_factory=Names)
    comms: dict[int, Args] = field(default_factory=dict)
    """Arguments of kernels that communicate, by correlation."""
    operators: dict[int, Args] = field(default_factory=dict)
    """Arguments of the operators that asked for collectives, by external id."""
    strange: set[str] = field(default_factory=set)
    """Categories that nobody here knows."""
    _classes: _Classes = field(default_factory=_Classes)
    _device: list[tuple[Any, ...]] = field(default_factory=list)
    _host: list[tuple[Any, ...]] = field(default_factory=list)
    _launches: list[tuple[Any, ...]] = field(default_factory=list)
    _annotated: list[tuple[int, float, float]] = field(default_factory=list)
    timed: int = 0
    """Events that take time."""

    def take(self, events: Sequence[Event]) -> None:
        """Keep of a list of events what is asked later."""
        by_category: dict[str, list[Event]] = defaultdict(list)
        for each in events:
            if each.ph == "X":
                by_category[each.cat].append(each)
        classes = self._classes
        for category, timed in by_category.items():
            self.timed += len(timed)
            if category in DEVICE_CATEGORIES:
                self._device_rows(timed, DEVICE_CATEGORIES[category])
                continue
            if category in LAUNCH_CATEGORIES:
                self._launch_rows([each for each in timed if each.args and each.args.correlation >= 0])
            elif category not in KNOWN_CATEGORIES and len(self.strange) < MAX_STRANGE:
                self.strange.add(category)
            self._host_rows([each for each in timed if classes[each.name] >= 0], category)

    def _device_rows(self, events: list[Event], kind: int) -> None:
        args = [each.args or NO_ARGS for each in events]
        names = self.names
        name = [names[each.name] for each in events]
        correlation, device = _integers([each.correlation for each in args]), _integers([each.device for each in args])
        said = np.array([each.collective != "" for each in args])
        kinds = np.where(said & (kind == COMPUTE), COMMUNICATION, kind)
        self._device.append((*_times(events), kinds, np.array(name, dtype=np.int64), correlation, device))
        communicates = names.communicates
        for number, each in zip(name, args, strict=True):
            if (communicates[number] or each.collective) and each.correlation >= 0 and len(self.comms) < MAX_COLLECTIVES:
                self.comms[each.correlation] = each

    def _launch_rows(self, events: list[Event]) -> None:
        args = [each.args or NO_ARGS for each in events]
        external = _integers([each.external if each.external >= 0 else each.external_old for each in args])
        self._launches.append((_numbers([each.ts for each in events]), _integers([each.correlation for each in args]), external))

    def _host_rows(self, events: list[Event], category: str) -> None:
        kept: list[Event] = []
        for event in events:
            what = CLASSES[self._classes[event.name]]
            if what == "collective":
                if event.args is not None and event.args.collective and len(self.operators) < MAX_COLLECTIVES:
                    self.operators[max(event.args.external, event.args.external_old)] = event.args
            elif category == ANNOTATION_ON_DEVICE:
                if (step := STEP.search(event.name)) and len(self._annotated) < MAX_COLLECTIVES:
                    start, length = microseconds(event.ts), microseconds(event.dur)
                    if math.isfinite(start + length):
                        self._annotated.append((int(step[1]), start, start + max(0.0, length)))
            else:
                kept.append(event)
        number = _integers([_number(each.name) for each in kept])
        self._host.append((*_times(kept), _integers([self._classes[each.name] for each in kept]), number))

    @property
    def device(self) -> Device:
        """Everything that ran on devices, in order of start."""
        start, duration, kind, name, correlation, device = _joined(self._device, 6)
        kind = np.where((kind == COMPUTE) & np.array(self.names.communicates)[name], COMMUNICATION, kind)
        rows = Device(start, duration, kind, name, correlation, device)
        return rows.rows(np.lexsort((rows.end, start)))

    @property
    def host(self) -> Host:
        """What the host did; launches in order of correlation, so that each is found by it."""
        launched, correlation, external = _joined(self._launches, 3)
        order = np.lexsort((launched, correlation))
        start, duration, what, number = _joined(self._host, 4)
        return Host(start, duration, what, number, launched[order], correlation[order], external[order])

    @property
    def annotated(self) -> dict[int, tuple[float, float]]:
        """Steps that were annotated on the device: from the first stream's begin to the last one's end."""
        found: dict[int, tuple[float, float]] = {}
        for number, start, end in self._annotated:
            first, last = found.get(number, (start, end))
            found[number] = (min(first, start), max(last, end))
        return found


def _number(name: str) -> int:
    if found := STEP.search(name):
        return int(found[1])
    what = operation(name) if name.startswith("gloo:") else ""
    return OPERATIONS.index(what) if what else -1


def _times(events: Sequence[Event]) -> tuple[Floats, Floats]:
    """Starts and durations; what is no time is none, what lasts less than nothing lasts nothing."""
    return _numbers([each.ts for each in events]), np.maximum(_numbers([each.dur for each in events]), 0.0)


def _numbers(values: list[float | str]) -> Floats:
    try:
        return np.array(values, dtype=np.float64)
    except ValueError:
        return np.array([microseconds(each) for each in values])


def _integers(values: list[int]) -> Integers:
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        return np.array([each if abs(each) < 2**62 else -1 for each in values], dtype=np.int64)


def _joined(pieces: list[tuple[Any, ...]], width: int) -> list[Any]:
    """Columns of all pieces, without rows whose times are no numbers; the first two may be times."""
    empty = tuple(np.zeros(0) for _ in range(2)) + tuple(np.zeros(0, dtype=np.int64) for _ in range(width - 2))
    columns = [np.concatenate(each) for each in zip(*pieces, strict=True)] if pieces else list(empty)
    sound = (np.abs(columns[0]) <= MOST) & (np.abs(columns[1]) <= MOST)
    return columns if sound.all() else [each[sound] for each in columns]
