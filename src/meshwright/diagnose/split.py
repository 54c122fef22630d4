"""Where a step went: traces say it of the device, timers of a log say it of the rank that prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from meshwright.perf.schedules.even import even_bubble_ratio
from meshwright.readers.logs.parts import split as parts_of

if TYPE_CHECKING:
    from meshwright.domain.layout import Layout
    from meshwright.domain.observed import RankSplit, RankTrace
    from meshwright.domain.observed.steady import Steady

OVERLAP = 0.05
"""Of the step: how far timers may overlap."""
DIMENSIONS = ("tp", "cp", "ep", "pp", "dp", "unknown")
Source = Literal["timers", "trace", "table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Shares of the step, none inside another; None: not known. What is known sums to 1 together with ``other_ratio``."""

    about: str
    """What it is taken from, in words."""
    source: Source
    """Timers of a log, traces of the device, or a table that a profiler made of them."""
    step_s: float
    data_ratio: float | None = None
    host_ratio: float | None = None
    """The device waits for the host to launch or to let go of it."""
    compute_ratio: float | None = None
    communication_exposed_ratio: float | None = None
    idle_ratio: float | None = None
    """The device idles for another reason, or for none that is known."""
    bubble_ratio: float | None = None
    waiting_ratio: float | None = None
    """An exchange waits: the slowest rank, or another stage, is not there yet. Beside transfers, which are the communication."""
    optimizer_ratio: float | None = None
    """Of the compute; of the other where compute is not known."""
    other_ratio: float | None = None
    exposed: Mapping[str, float | None] = field(default_factory=dict)
    """Seconds in exchanges by dimension, waits in them: ``tp cp ep pp dp unknown``; None where it is not known."""
    every_exchange: bool = True
    """Whether an exchange that stands in no part would have been seen: timers hold those inside a layer as compute."""

    @property
    def collectives_ratio(self) -> float | None:
        """What collectives take that nothing hides: transfers and waits. Of timers transfers alone: stages wait elsewhere."""
        if self.communication_exposed_ratio is None or self.source == "timers":
            return self.communication_exposed_ratio
        return self.communication_exposed_ratio + (self.waiting_ratio or 0.0)

    def seconds(self, ratio: float | None) -> float | None:
        """A share in seconds."""
        return None if ratio is None else ratio * self.step_s


def of_log(steady: Steady, layout: Layout | None, about: str) -> Split | None:
    """The split that timers say; None where there are none.

    A stage that receives without sending fills or drains the pipeline, and so does one whose neighbour in the all-reduce of a tied
    embedding is still at work: that is bubble as far as the schedule makes one. What is beyond it, and waits in exchanges of the
    steady state, is waiting for a slower stage:

        bubble = min(receive + send + reduce of the tied embedding, step (p - 1) / (v m + p - 1))

    Source: docs/sources.md#timers-of-a-pipeline. Timers that add up to more than the step are not those of one step (some are
    sums over several): then nothing is said. Communication of which no timer tells is not known, and the whole of it only where a
    layout says that layers exchange nothing.
    """
    parts = parts_of(steady.parts)
    exchange = sum(seconds for name, seconds in steady.parts.items() if "send" in name and "recv" in name)
    work, together = parts.get("forward", 0.0) + parts.get("backward", 0.0), parts.get("forward_backward")
    reduce = sum(parts.get(name, 0.0) for name in ("gradient_reduce", "parameter_gather"))
    if not work and together is None and not reduce:
        return None
    step = steady.step_s
    pipelined = layout.pipeline_parallel > 1 if layout is not None else parts.get("receive", 0.0) > 0.0
    moved = parts.get("receive", 0.0) + parts.get("send", 0.0)
    fill = moved - exchange + parts.get("embedding_reduce", 0.0) if pipelined else 0.0
    bubble = min(fill, step * ideal_bubble(layout)) if layout is not None else fill
    waiting = fill - bubble + exchange
    data, optimizer = parts.get("data", 0.0), parts.get("optimizer", 0.0)
    reduce += 0.0 if pipelined else parts.get("embedding_reduce", 0.0)
    known = work + optimizer + data + reduce + bubble + waiting
    if known > step * (1.0 + OVERLAP):
        return None
    whole = max(step, known)
    timed = bool({"gradient_reduce", "parameter_gather"} & set(parts)) or (not pipelined and "embedding_reduce" in parts)
    told = {
        "data": data if "data" in parts else None,
        "compute": work + optimizer if work else None,
        "communication": reduce if timed else None,
        "bubble": bubble if pipelined and work else None,
        "waiting": waiting if pipelined and work else None,
    }
    ratios = {name: None if seconds is None else seconds / whole for name, seconds in told.items()}
    exposed: dict[str, float | None] = {**dict.fromkeys(DIMENSIONS), "dp": told["communication"], "pp": told["waiting"]}
    return Split(
        about=about,
        source="timers",
        step_s=step,
        data_ratio=ratios["data"],
        compute_ratio=ratios["compute"],
        optimizer_ratio=optimizer / whole if "optimizer" in parts else None,
        communication_exposed_ratio=ratios["communication"],
        bubble_ratio=ratios["bubble"],
        waiting_ratio=ratios["waiting"],
        other_ratio=max(0.0, 1.0 - sum(ratio for ratio in ratios.values() if ratio is not None)),
        exposed=exposed,
        every_exchange=layout is not None and layout.tensor_parallel * layout.context_parallel * layout.expert_parallel == 1,
    )


def ideal_bubble(layout: Layout) -> float:
    """Share of the step that stages of equal time idle under the layout's schedule."""
    if layout.pipeline_parallel == 1:
        return 0.0
    return float(
        even_bubble_ratio(
            layout.schedule,
            num_stages=layout.pipeline_parallel,
            num_microbatches=layout.num_microbatches,
            num_chunks=layout.virtual_stages,
        )
    )


def of_traces(
    traces: Sequence[RankTrace], groups: Mapping[str, str], waiting_s: float | None, step_s: float | None
) -> Split | None:
    """The split that traces of one or several ranks say: the mean of their shares.

    ``groups``: process group -> dimension of the layout. ``waiting_s``: of a step, inside communication, where several ranks tell.
    """
    splits = [each.split for each in traces if each.split.window_s > 0.0]
    if not splits:
        return None
    shares = [_shares(each) for each in traces if each.split.window_s > 0.0]
    mean = {name: _mean([each[name] for each in shares]) for name in shares[0]}
    step = step_s or sum(_step_of(each) for each in traces) / len(traces)
    exposed: dict[str, float | None] = dict.fromkeys(DIMENSIONS)
    for each in traces:
        for group, seconds in each.exposed_by_group.items():
            dimension = groups.get(group, "unknown")
            exposed[dimension] = (exposed[dimension] or 0.0) + seconds / each.split.window_s * step / len(traces)
    total = mean["communication"]
    waiting = None if waiting_s is None or total is None else min(waiting_s / step, total)
    return Split(
        about=f"{len(splits)} trace{'s' if len(splits) > 1 else ''}: {splits[0].window}",
        source="trace",
        step_s=step,
        data_ratio=mean["data"],
        host_ratio=mean["host"],
        compute_ratio=mean["compute"],
        communication_exposed_ratio=None if total is None else total - (waiting or 0.0),
        idle_ratio=mean["idle"],
        waiting_ratio=waiting,
        other_ratio=mean["copies"],
        exposed=exposed,
    )


def of_splits(splits: Sequence[RankSplit]) -> Split | None:
    """The split that a table of ranks says (a profiler's summary): means of shares over ranks.

    Its exposed communication holds the receiving that it calls bubble.
    """
    ranks = [each for each in splits if each.window_s > 0.0 and each.rank is not None] or [
        each for each in splits if each.window_s > 0.0
    ]
    if not ranks:
        return None
    window = sum(each.window_s for each in ranks) / len(ranks)
    communication = _mean(
        [
            None if each.exposed_communication_s is None else (each.exposed_communication_s - _bubble_s(each)) / _whole_s(each)
            for each in ranks
        ]
    )
    return Split(
        about=f"a table of {len(ranks)} ranks",
        source="table",
        step_s=window,
        compute_ratio=_mean([each.compute_s / _whole_s(each) for each in ranks]),
        communication_exposed_ratio=communication,
        idle_ratio=_mean([each.idle_s / _whole_s(each) for each in ranks]),
        bubble_ratio=_mean([None if each.bubble_s is None else _bubble_s(each) / _whole_s(each) for each in ranks]),
        other_ratio=_mean([each.exposed_copies_s / _whole_s(each) for each in ranks]),
        exposed={**dict.fromkeys(DIMENSIONS), "unknown": None if communication is None else communication * window},
    )


def _bubble_s(row: RankSplit) -> float:
    return min(row.bubble_s or 0.0, row.exposed_communication_s or 0.0)


def _whole_s(row: RankSplit) -> float:
    """The window, or the row's parts where they are longest ones of several ranks and sum to more."""
    return max(row.window_s, row.compute_s + (row.exposed_communication_s or 0.0) + row.exposed_copies_s + row.idle_s)


def _step_of(trace: RankTrace) -> float:
    """Seconds of one step of a trace: the window over the annotated steps, or all of it."""
    return trace.split.window_s / max(1, len(trace.by_step) or len(trace.steps))


def _shares(trace: RankTrace) -> dict[str, float | None]:
    """Shares of one rank's window; idle time is split by its causes where the trace tells them."""
    split, window = trace.split, trace.split.window_s
    data = trace.idle.get("data", 0.0)
    host = sum(trace.idle.get(name, 0.0) for name in ("host", "launch", "sync"))
    known = bool(trace.idle)
    return {
        "data": data / window if known else None,
        "host": host / window if known else None,
        "compute": split.compute_s / window,
        "communication": None if split.exposed_communication_s is None else split.exposed_communication_s / window,
        "idle": max(0.0, split.idle_s - data - host) / window,
        "copies": split.exposed_copies_s / window,
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return sum(known) / len(known) if known else None
