"""A simulated pipeline as a trace for ui.perfetto.dev or chrome://tracing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.perf.schedules import KIND_NAMES
from meshwright.report.pipeline_view import memory_steps, pipeline_view
from meshwright.units import GIB, MICRO, MILLI

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.api.views.balance import BalanceShown
    from meshwright.report.pipeline_view import PipelineView

Event = dict[str, Any]

PIPELINE, MEMORY = 1, 2
"""Process numbers: stages as threads, and their memories as counters."""
DIGITS = 3
"""Of a microsecond."""
LETTERS = "FBBW"
MOST_ARROWS = 8_000
"""More transfers than that would hide the operations."""
MOST_EVENTS = 40_000
"""Operations of a trace; of more, those that begin first."""


def perfetto(view: PipelineView) -> str:
    """The trace: a thread for each stage, an event for each operation, a counter for each stage's memory, arrows for transfers.

    Times without a unit stand as milliseconds for one unit, and ``otherData`` says so. What begins too late for a file of
    reasonable size is left out; ``shown_until`` is when.
    """
    starts = view.timeline.start_s
    until = float(np.partition(starts, MOST_EVENTS)[MOST_EVENTS]) if starts.size > MOST_EVENTS else np.inf
    scale, unit = _memory_unit(view)
    bounds = [round(bound / scale, DIGITS) if np.isfinite(bound) else None for bound in view.bounds.tolist()]
    events = [*_names(view), *_operations(view, until), *_arrows(view, until), *_memories(view, until)]
    document = {
        "displayTimeUnit": "ms",
        "otherData": {
            "name": view.name, "schedule": view.schedule,
            "time_unit": "s" if view.units.time == "s" else "1 ms is one unit as given",
            "microbatches": view.microbatches, "shown_microbatches": view.shown_microbatches,
            "shown_until": until if np.isfinite(until) else None, "memory_unit": unit, "memory_bounds": bounds,
        },
    }
    head = json.dumps(document, indent=1)[:-2]
    lines = ",\n".join(json.dumps(event, separators=(",", ":"), allow_nan=False) for event in events)
    return f'{head},\n "traceEvents": [\n{lines}\n ]\n}}\n'


def _names(view: PipelineView) -> Iterator[Event]:
    """What processes and threads are called."""
    for process, words in ((PIPELINE, f"{view.name}: {view.schedule}"), (MEMORY, "memory of the stages")):
        yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": words}}
        yield {"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}}
    for stage in range(view.stages):
        yield {"ph": "M", "name": "thread_name", "pid": PIPELINE, "tid": stage + 1, "args": {"name": f"stage {stage}"}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": PIPELINE, "tid": stage + 1, "args": {"sort_index": stage}}


def _operations(view: PipelineView, until: float) -> Iterator[Event]:
    """Complete events; ends are rounded as starts are, so that one never reaches into the next."""
    line = view.timeline
    seen = np.flatnonzero(line.start_s < until)
    begin, end = _micro(view, line.start_s[seen]), _micro(view, line.end_s[seen])
    what = (each[seen].tolist() for each in (line.stage, line.kind, line.microbatch, line.chunk))
    columns = zip(*what, begin, end, strict=True)
    for stage, kind, microbatch, chunk, start, stop in columns:
        args: Event = {"microbatch": microbatch // view.splits, "chunk": chunk, "layers": view.layers[chunk][stage]}
        if view.splits > 1:
            args["piece"] = microbatch % view.splits
        args |= {f"{word} layers": grid[chunk][stage] for word, grid in view.treated.items() if grid[chunk][stage]}
        yield {
            "ph": "X", "name": f"{LETTERS[kind]}{microbatch}", "cat": KIND_NAMES[kind], "pid": PIPELINE, "tid": stage + 1,
            "ts": start, "dur": round(stop - start, DIGITS), "args": args,
        }


def _arrows(view: PipelineView, until: float) -> Iterator[Event]:
    """A flow from the end of an operation to the beginning of the one on another stage that takes its result."""
    line = view.timeline
    takers = np.flatnonzero((view.awaits >= 0) & (line.start_s < until))
    if takers.size > MOST_ARROWS:
        return
    begin, end = _micro(view, line.start_s), _micro(view, line.end_s)
    for number, taker in enumerate(takers.tolist()):
        giver = int(view.awaits[taker])
        flow: Event = {"cat": "transfer", "name": "transfer", "id": number, "pid": PIPELINE}
        yield {"ph": "s", **flow, "tid": int(line.stage[giver]) + 1, "ts": end[giver]}
        yield {"ph": "f", "bp": "e", **flow, "tid": int(line.stage[taker]) + 1, "ts": begin[taker]}


def _memories(view: PipelineView, until: float) -> Iterator[Event]:
    """Counters, in GiB or as given, wherever a memory changes."""
    scale, unit = _memory_unit(view)
    for stage in range(view.stages):
        times, values = memory_steps(view, stage)
        changed = np.flatnonzero((np.diff(values, prepend=np.nan) != 0.0) & (times < until))
        counter: Event = {"ph": "C", "name": f"stage {stage}", "pid": MEMORY}
        for at, value in zip(_micro(view, times[changed]), values[changed].tolist(), strict=True):
            yield {**counter, "ts": at, "args": {unit: round(value / scale, DIGITS)}}


def _memory_unit(view: PipelineView) -> tuple[float, str]:
    return (GIB, "GiB") if view.units.memory == "bytes" else (1.0, "MB")


def _micro(view: PipelineView, times: np.ndarray[Any, np.dtype[np.float64]]) -> list[float]:
    """Times in microseconds."""
    unit = MICRO if view.units.time == "s" else MILLI
    return [round(value, DIGITS) for value in (times / unit).tolist()]


def trace_of(name: str, answer: BalanceShown) -> str:
    """The simulated pipeline of a balance's answer, under its name."""
    return perfetto(pipeline_view(name, answer.problem, answer.balance.best, answer.units))
