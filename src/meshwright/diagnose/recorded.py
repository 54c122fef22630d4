"""Runs of which every rank noted its steps and exchanges: what each rank did between exchanges, waited for, and transferred.

An exchange that several ranks noted, all on one clock, tells waiting from transfer::

    waiting  = min(blocked, latest start - own start)        transfer = blocked - waiting

Between two exchanges a rank works for itself. Ranks that call the same exchanges in the same order are alike, and a rank's work
before the k-th exchange of a step is compared with that of those like it: what it takes longer, they wait. All are medians.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.domain.observed import Collective, RankTrace

FORMAT = "meshwright_step"
Signature = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """What one rank does longer than those like it."""

    rank: int
    seconds: float
    """Of a step."""
    most: float
    """Of these, before the one exchange where it is most."""
    where: str
    """That exchange."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Several ranks' steps beside each other; seconds of a step."""

    step_s: float
    """Median."""
    mean_step_s: float
    """What stops now and then is a share of it."""
    waiting: Mapping[str, float]
    """Dimension -> mean over ranks."""
    transfer: Mapping[str, float]
    """Dimension -> mean over ranks; of a pipeline on the rank where it is most, for one side of a transfer may have all of it."""
    excess: tuple[Excess, ...]
    """By rank, those with the most first."""
    spent: Mapping[str, Mapping[int, float]]
    """``gc``, ``sync``, ``compile``, ``data`` -> rank -> mean seconds of a step."""


def recorded(traces: Sequence[RankTrace], dimensions: Mapping[str, str]) -> Recorded | None:
    """What records of ranks say together; None where not every trace is one, or none has a step.

    ``dimensions``: process group -> dimension of the layout.
    """
    ranks = {each.rank: each for each in traces if each.rank is not None and each.steps}
    if not ranks or any(each.format != FORMAT for each in traces):
        return None
    latest: dict[tuple[str, int | None], float] = {}
    for trace in ranks.values():
        for each in trace.collectives:
            key = (each.group, each.sequence)
            latest[key] = max(latest.get(key, each.start_s), each.start_s)
    waiting: dict[str, list[float]] = defaultdict(list)
    transfer: dict[str, list[float]] = defaultdict(list)
    for trace in ranks.values():
        sums: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for calls in _by_step(trace):
            spent: dict[str, tuple[float, float]] = dict.fromkeys(dimensions.values(), (0.0, 0.0))
            for each in calls:
                waited = min(each.exposed_s, max(0.0, latest[each.group, each.sequence] - each.start_s))
                name = dimensions.get(each.group, "unknown")
                before = spent.get(name, (0.0, 0.0))
                spent[name] = (before[0] + waited, before[1] + each.exposed_s - waited)
            for name, pair in spent.items():
                sums[name].append(pair)
        for name, pairs in sums.items():
            waiting[name].append(median(pair[0] for pair in pairs))
            transfer[name].append(median(pair[1] for pair in pairs))
    count = len(ranks)
    return Recorded(
        step_s=median(step.end_s - step.start_s for trace in ranks.values() for step in trace.steps),
        mean_step_s=sum(each.split.window_s / len(each.steps) for each in ranks.values()) / count,
        waiting={name: sum(each) / count for name, each in waiting.items()},
        transfer={name: max(each) if name == "pp" else sum(each) / count for name, each in transfer.items()},
        excess=_excesses(ranks),
        spent={
            name: {rank: trace.idle.get(name, 0.0) / len(trace.steps) for rank, trace in ranks.items()}
            for name in ("gc", "sync", "compile", "data")
        },
    )


def _by_step(trace: RankTrace) -> list[list[Collective]]:
    """Exchanges of each step, as they were called."""
    starts = [each.start_s for each in trace.steps]
    found: list[list[Collective]] = [[] for _ in starts]
    for each in sorted(trace.collectives, key=lambda each: each.start_s):
        if (place := bisect_right(starts, each.start_s) - 1) >= 0:
            found[place].append(each)
    return found


def _excesses(ranks: Mapping[int, RankTrace]) -> tuple[Excess, ...]:
    """Of ranks that are alike, what each works longer than the others; of one that is like no other, in all."""
    steps = {rank: _by_step(trace) for rank, trace in ranks.items()}
    kinds = {rank: _signature(rows, rank) for rank, rows in steps.items()}
    work = {rank: median(each.compute_s for each in trace.by_step) for rank, trace in ranks.items()}
    found = []
    for rank, kind in kinds.items():
        like = [other for other in ranks if other != rank and kinds[other] == kind]
        if like:
            own, others = _gaps(ranks[rank], steps[rank]), [_gaps(ranks[other], steps[other]) for other in like]
            more = [mine - median(theirs) for mine, *theirs in zip(own, *others, strict=True)]
            place = max(range(len(more)), key=lambda each: more[each])
            where = f"{kind[place][1]} {place + 1} of a step" if place < len(kind) else "the end of a step"
            found.append(Excess(rank=rank, seconds=sum(more), most=more[place], where=where))
        elif others_work := [work[other] for other in ranks if other != rank]:
            more_in_all = work[rank] - median(others_work)
            found.append(Excess(rank=rank, seconds=more_in_all, most=0.0, where=""))
    return tuple(sorted(found, key=lambda each: -each.seconds))


def _signature(rows: Sequence[Sequence[Collective]], rank: int) -> Signature:
    """What most steps call, in order: of transfers with the direction, by which stages differ."""
    kinds = [tuple((each.group.split(" ")[0], _called(each, rank)) for each in calls) for calls in rows]
    return max(kinds, key=kinds.count)


def _called(call: Collective, rank: int) -> str:
    if call.operation != "send-recv":
        return call.operation
    return "send" if f" {call.group}".rsplit(" ", 1)[1].startswith(f"{rank}>") else "receive"


def _gaps(trace: RankTrace, rows: Sequence[Sequence[Collective]]) -> list[float]:
    """Median seconds in which the rank works for itself before each exchange of a step, and behind the last one."""
    kind = _signature(rows, trace.rank or 0)
    found: list[list[float]] = [[] for _ in range(len(kind) + 1)]
    for step, calls in zip(trace.steps, rows, strict=True):
        if len(calls) != len(kind):
            continue
        before = step.start_s
        for place, each in enumerate(calls):
            found[place].append(each.start_s - before)
            before = each.start_s + each.exposed_s if each.exposed_s < each.end_s - each.start_s else each.end_s
        found[-1].append(step.end_s - before)
    return [median(each) if each else 0.0 for each in found]
