"""Traces of several ranks beside each other: who waits for whom.

A collective lasts until the slowest rank has come. One rank alone cannot tell waiting from transfer; several can::

    waiting = latest start - own start        transfer = end - latest start

Each trace has a clock of its own. A collective that all ranks need ends on all of them at once, give or take microseconds: clocks
are laid so that these ends agree in the median.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import exp, lgamma, log, log1p
from statistics import median
from typing import TypeAlias

from msgspec import field

from meshwright.domain.observed.trace import Collective, RankTrace
from meshwright.value import Value

Group: TypeAlias = tuple[str, tuple[int, ...]]
"""Name and ranks, as far as traces say them: two groups of one name are told apart by their ranks."""
TOGETHER = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "barrier")
"""Operations that no rank can leave before all have come."""
LONGEST_MEETINGS = 100
MAX_SHIFT = 1000
"""Collectives by which one trace may begin before another one."""
LOOKED = 200
"""Collectives whose ends say by how many it does."""
ACCIDENT = 0.01
"""Probability of chance alone below which a rank that comes last so often is no accident."""
LEAST_LATE_S = 2e-6
"""What ends of one collective may differ by on ranks whose clocks agree."""


class Meeting(Value, frozen=True, kw_only=True):
    """One collective on the ranks whose traces are there."""

    group: str
    operation: str
    sequence: int | None
    starts_s: Mapping[int, float]
    """Rank -> start on the common clock."""
    end_s: float
    last: int
    """The rank that came last."""
    waiting_s: Mapping[int, float]
    transfer_s: float


class Together(Value, frozen=True, kw_only=True):
    """Several ranks' traces on one clock."""

    ranks: tuple[int, ...]
    """Those whose clocks could be laid onto that of the first one."""
    offsets_s: Mapping[int, float]
    """What is added to a rank's times."""
    error_s: float
    """Median difference of ends of one collective after that."""
    matched: int = 0
    """Collectives that were found on several ranks."""
    unmatched: int = 0
    """Collectives, a rank's each, that no other trace has."""
    waiting_s: Mapping[int, float] = field(default_factory=dict)
    transfer_s: Mapping[int, float] = field(default_factory=dict)
    waiting_by_group_s: Mapping[str, float] = field(default_factory=dict)
    """Mean over ranks, in sum over collectives."""
    transfer_by_group_s: Mapping[str, float] = field(default_factory=dict)
    last: Mapping[int, int] = field(default_factory=dict)
    """Rank -> collectives to which it came last, by more than clocks can be trusted."""
    caused_s: Mapping[int, float] = field(default_factory=dict)
    """Rank -> what the others waited for it, mean over them, in sum over collectives."""
    straggler: int | None = None
    """The rank that comes last more often than chance can explain, where there is one."""
    longest: tuple[Meeting, ...] = ()
    """Meetings with the longest waits."""
    notes: tuple[str, ...] = ()


def together(traces: Sequence[RankTrace]) -> Together:
    """Ranks on one clock, and what each waited for.

    ``traces``: of different ranks; a trace that does not name its rank is the one after those before it.
    """
    by_rank, notes = _by_rank(traces)
    found = _matched(by_rank)
    offsets, error = _offsets(by_rank, found)
    if left := [rank for rank in by_rank if rank not in offsets]:
        notes.append(f"no collective joins these ranks to the first one: {', '.join(map(str, left))}")
    late = max(LEAST_LATE_S, 3 * error)
    meetings = [meeting for each in found if (meeting := _meeting(each, offsets)) is not None]
    waiting, transfer, last, caused = (dict.fromkeys(offsets, 0.0) for _ in range(4))
    group_waiting: dict[str, float] = defaultdict(float)
    group_transfer: dict[str, float] = defaultdict(float)
    for meeting in meetings:
        for rank, value in meeting.waiting_s.items():
            waiting[rank] += value
            transfer[rank] += meeting.transfer_s
        group_waiting[meeting.group] += sum(meeting.waiting_s.values()) / len(meeting.waiting_s)
        group_transfer[meeting.group] += meeting.transfer_s
        others = [value for rank, value in meeting.waiting_s.items() if rank != meeting.last]
        if min(others) > late:
            last[meeting.last] += 1
            caused[meeting.last] += sum(others) / len(others)
    if found and not meetings:
        notes.append("collectives match by name, and no two ranks' clocks could be laid onto each other")
    unmatched = sum(len(trace.collectives) for trace in by_rank.values()) - sum(len(each) for each in found)
    return Together(
        ranks=tuple(offsets), offsets_s=offsets, error_s=error, matched=len(meetings), unmatched=unmatched,
        waiting_s=waiting, transfer_s=transfer, waiting_by_group_s=dict(group_waiting), transfer_by_group_s=dict(group_transfer),
        last={rank: int(count) for rank, count in last.items()}, caused_s=caused, straggler=_straggler(last),
        longest=tuple(sorted(meetings, key=lambda each: -max(each.waiting_s.values()))[:LONGEST_MEETINGS]), notes=tuple(notes),
    )


def _by_rank(traces: Sequence[RankTrace]) -> tuple[dict[int, RankTrace], list[str]]:
    found: dict[int, RankTrace] = {}
    notes = []
    for trace in traces:
        rank = max(found, default=-1) + 1 if trace.rank is None else trace.rank
        if rank in found:
            notes.append(f"two traces are of rank {rank}: the first one counts")
        found.setdefault(rank, trace)
    return found, notes


def _matched(by_rank: Mapping[int, RankTrace]) -> list[dict[int, Collective]]:
    """The same collective on several ranks: by group and sequence where traces number them, else by their order in the group."""
    groups: dict[Group, dict[int, list[Collective]]] = defaultdict(lambda: defaultdict(list))
    for rank, trace in by_rank.items():
        for each in trace.collectives:
            groups[each.group, each.ranks or trace.groups.get(each.group, ())][rank].append(each)
    found: list[dict[int, Collective]] = []
    for members in groups.values():
        if len(members) > 1:
            numbered = all(each.sequence is not None for rows in members.values() for each in rows)
            found += _by_sequence(members) if numbered else _by_order(members)
    return found


def _by_sequence(members: Mapping[int, Sequence[Collective]]) -> list[dict[int, Collective]]:
    found: dict[tuple[int | None, str], dict[int, Collective]] = defaultdict(dict)
    for rank, rows in members.items():
        for each in rows:
            found[each.sequence, each.operation].setdefault(rank, each)
    return [each for each in found.values() if len(each) > 1]


def _by_order(members: Mapping[int, Sequence[Collective]]) -> list[dict[int, Collective]]:
    """The shortest list is found in each other one, where operations agree and the ends' differences vary least."""
    base = min(members, key=lambda rank: len(members[rank]))
    rows = members[base]
    found = [{base: each} for each in rows]
    for rank, others in members.items():
        if rank == base:
            continue
        able = [others[shift:shift + len(rows)] for shift in range(min(len(others) - len(rows), MAX_SHIFT) + 1)]
        able = [some for some in able if all(one.operation == other.operation for one, other in zip(rows, some, strict=True))]
        if able:
            best = min(able, key=lambda some: _spread([
                other.end_s - one.end_s for one, other in zip(rows[:LOOKED], some, strict=False)]))
            for place, other in zip(found, best, strict=True):
                place[rank] = other
    return [each for each in found if len(each) > 1]


def _spread(values: Sequence[float]) -> float:
    middle = median(values)
    return median(abs(each - middle) for each in values)


def _offsets(by_rank: Mapping[int, RankTrace], found: Sequence[Mapping[int, Collective]]) -> tuple[dict[int, float], float]:
    """What is added to each rank's times: clocks are laid one onto another from the first rank on, along shared collectives."""
    ends: dict[tuple[int, int], list[float]] = defaultdict(list)
    for wanted in (True, False):
        for each in found:
            ranks = sorted(each)
            if (each[ranks[0]].operation in TOGETHER) == wanted:
                for pair in {*pairwise(ranks), *((ranks[0], rank) for rank in ranks[1:])}:
                    ends[pair].append(each[pair[0]].end_s - each[pair[1]].end_s)
        if ends:
            break
    offsets = {min(by_rank): 0.0} if by_rank else {}
    errors: list[float] = []
    grown = True
    while grown:
        grown = False
        for (one, other), values in sorted(ends.items(), key=lambda item: -len(item[1])):
            if (one in offsets) != (other in offsets):
                offset = median(values)
                if one in offsets:
                    offsets[other] = offsets[one] + offset
                else:
                    offsets[one] = offsets[other] - offset
                errors.append(median(abs(each - offset) for each in values))
                grown = True
    return dict(sorted(offsets.items())), max(errors, default=0.0)


def _meeting(rows: Mapping[int, Collective], offsets: Mapping[int, float]) -> Meeting | None:
    own = {rank: each for rank, each in rows.items() if rank in offsets}
    if len(own) < 2:
        return None
    starts = {rank: each.start_s + offsets[rank] for rank, each in own.items()}
    last = max(starts, key=lambda rank: starts[rank])
    end = max(each.end_s + offsets[rank] for rank, each in own.items())
    first = next(iter(own.values()))
    return Meeting(
        group=first.group, operation=first.operation, sequence=first.sequence, starts_s=starts, end_s=end, last=last,
        waiting_s={rank: starts[last] - start for rank, start in starts.items()}, transfer_s=max(0.0, end - starts[last]),
    )


def _straggler(last: Mapping[int, float]) -> int | None:
    """The rank that comes last more often than any would by chance if each came last as often as the others."""
    total, ranks = int(sum(last.values())), len(last)
    if ranks < 2 or not total:
        return None
    rank = max(last, key=lambda each: last[each])
    return rank if ranks * _at_least(int(last[rank]), total, 1 / ranks) < ACCIDENT else None


def _at_least(count: int, total: int, chance: float) -> float:
    """The probability of so many or more successes of ``total``, each of the same chance (binomial)."""
    def log_probability(each: int) -> float:
        ways = lgamma(total + 1) - lgamma(each + 1) - lgamma(total - each + 1)
        return ways + each * log(chance) + (total - each) * log1p(-chance)

    return min(1.0, sum(exp(log_probability(each)) for each in range(count, total + 1)))
