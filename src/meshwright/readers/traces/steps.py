"""Annotated steps of a trace, on the host and on the device, and the windows that they make."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from meshwright.domain.observed import RankSplit, TraceStep
from meshwright.readers.traces.intervals import Floats, union
from meshwright.readers.traces.names import CLASSES
from meshwright.readers.traces.timeline import Timeline, timeline

if TYPE_CHECKING:
    from meshwright.readers.traces.columns import Device, Host

Spans: TypeAlias = Mapping[int, tuple[float, float]]
"""Number of a step -> begin and end, in microseconds."""
MAX_STEPS = 10_000
LEAST_LINKED = 0.5
"""Share of kernels whose launch is known from which steps on the device are told by launches."""
LEAST_ANNOTATED = 0.5
"""Share of the device's busy time that annotated steps must hold to be a window: on ROCm they may last microseconds."""
_US = 1e-6


def launches(device: Device, host: Host) -> Floats:
    """When each row was launched; not a number where the trace does not say."""
    if not len(host.correlation):
        return np.full(len(device.start), np.nan)
    index = np.minimum(np.searchsorted(host.correlation, device.correlation), len(host.correlation) - 1)
    linked = (host.correlation[index] == device.correlation) & (device.correlation > 0)
    return np.where(linked, host.launched[index], np.nan)


def steps(host: Host, annotated: Spans, device: Device, launched: Floats, line: Timeline) -> list[TraceStep]:
    """Steps in order, in microseconds of the trace's own clock.

    On the device a step lasts from the first thing it launched to the first that the next one launched, the last step to the end of
    what it launched; where launches are not known, as it is annotated there.
    """
    trusted = annotated if trustworthy(annotated, line) else {}
    rows = host.what == CLASSES.index("step")
    number, start, end = host.number[rows], host.start[rows], (host.start + host.duration)[rows]
    order = np.argsort(start, kind="stable")[:MAX_STEPS]
    number, start, end = number[order], start[order], end[order]
    if not len(number):
        return [TraceStep(number=each, start_s=first, end_s=last, device_start_s=first, device_end_s=last)
                for each, (first, last) in sorted(trusted.items(), key=lambda item: item[1])[:MAX_STEPS]]
    linked = len(launched) and np.isfinite(launched).mean() >= LEAST_LINKED
    spans: Spans = _launched(start, end, device, launched) if linked else {
        index: trusted[int(each)] for index, each in enumerate(number) if int(each) in trusted}
    found = [TraceStep(number=int(each), start_s=float(start[index]), end_s=float(end[index])) for index, each in enumerate(number)]
    return [replace(each, device_start_s=spans[index][0], device_end_s=spans[index][1]) if index in spans else each
            for index, each in enumerate(found)]


def _launched(start: Floats, end: Floats, device: Device, launched: Floats) -> Spans:
    index = np.searchsorted(start, launched, side="right") - 1
    known = np.isfinite(launched) & (index >= 0) & (launched <= end[-1])
    index, rows = index[known], device.rows(known)
    first, last = np.full(len(start), np.inf), np.full(len(start), -np.inf)
    np.minimum.at(first, index, rows.start)
    np.maximum.at(last, index, rows.end)
    found = np.flatnonzero(np.isfinite(first))
    if not len(found):
        return {}
    begin = np.maximum.accumulate(first[found])
    until = np.append(begin[1:], max(last[found[-1]], begin[-1]))
    return {int(each): (float(begin[place]), float(until[place])) for place, each in enumerate(found)}


def trustworthy(annotated: Spans, line: Timeline) -> bool:
    """Whether steps annotated on the device hold most of what it did."""
    if not annotated:
        return False
    times = np.array(list(annotated.values()))
    cover = union(times[:, 0], times[:, 1])
    return float(line.busy.within(cover.starts, cover.ends).sum()) >= LEAST_ANNOTATED * line.busy.total


def moved(step: TraceStep, origin: float) -> TraceStep:
    """A step in seconds from the file's beginning."""
    def on_device(value: float | None) -> float | None:
        return None if value is None else (value - origin) * _US

    return TraceStep(number=step.number, start_s=(step.start_s - origin) * _US, end_s=(step.end_s - origin) * _US,
                     device_start_s=on_device(step.device_start_s), device_end_s=on_device(step.device_end_s))


def by_step(found: Sequence[TraceStep], line: Timeline) -> Iterator[RankSplit]:
    """The split of each step on the device."""
    for each in found:
        if each.device_start_s is not None and each.device_end_s is not None:
            yield line.split(each.device_start_s, each.device_end_s, f"step {each.number} on the device", step=each.number)


def windows(found: Sequence[TraceStep], annotated: Spans, device: Device, launched: Floats, line: Timeline) -> Iterator[RankSplit]:
    """The windows of others: TraceLens's, all steps on the device; HTA's, what was launched before the last step."""
    placed = [(each.device_start_s, each.device_end_s) for each in found
              if each.device_start_s is not None and each.device_end_s is not None]
    if placed and np.isfinite(launched).any():
        yield line.split(placed[0][0], placed[-1][1], f"{_count(len(placed))} on the device, by what they launched")
    if trustworthy(annotated, line):
        start, end = min(each[0] for each in annotated.values()), max(each[1] for each in annotated.values())
        yield line.split(start, end, f"{_count(len(annotated))} annotated on the device")
    if len(found) > 1:
        rows = device.rows(launched < found[-1].start_s)
        if len(rows.start):
            earlier = timeline(rows, line.recognised, file=line.file, rank=line.rank, origin=line.origin)
            what = f"what was launched before the last of {len(found)} steps"
            yield earlier.split(float(rows.start[0]), float(rows.end.max()), what)


def _count(number: int) -> str:
    return "1 step" if number == 1 else f"{number:,} steps"
