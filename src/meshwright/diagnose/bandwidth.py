"""Bandwidths, judged: against smaller messages of the same table, against the link, and ranks against each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from meshwright.diagnose.finding import Finding, seen_at
from meshwright.diagnose.network import UNKNOWN, Surroundings
from meshwright.domain.observed import Bandwidth, Bandwidths, Place

CLIFF = 0.5
"""Share of the best rate of smaller messages below which a larger one has fallen off a cliff (NCCL #1453: 29.5 to 5.3 GB/s)."""
FAR, BELOW = 0.5, 0.8
"""Share of a link's rate below which a plateau is far under it, or under it."""
LARGE_BYTES = 64 * 2**20
"""A message that fills a link; a table of smaller ones shows no plateau."""
EARLY = 0.05
"""Share of time in collectives by which a rank that is waited for lies below the others (Ascend's advisor: 5 %)."""
MANY = 5
"""Tries of one size from which their median is taken."""


def judge_table(table: Bandwidths, known: Surroundings = UNKNOWN) -> tuple[Finding, ...]:
    """What is wrong with what a benchmark, or a running job, reached."""
    found: dict[str, Finding] = {}
    for sign in table.signs:
        if sign.id == "bandwidth.wrong":
            found["wrong"] = seen_at(
                sign.place, "error", "bandwidth.wrong", "{rows:,} rows have wrong results: data are corrupted on the way",
                rows=sign.times,
            )
    for (operation, _, group), rows in _series(table.rows):
        if (fall := cliff(rows)) and f"cliff {operation} {group}" not in found:
            before, after = fall
            found[f"cliff {operation} {group}"] = seen_at(
                Place(file=table.file, line=after.line), "warning", "bandwidth.cliff",
                "{operation}: {before:.3g} GB/s at {small:,.0f} bytes fall to {after:.3g} at {large:,.0f}",
                operation=operation or "collective", before=before.bus_bytes_per_s / 1e9, small=before.message_bytes,
                after=after.bus_bytes_per_s / 1e9, large=after.message_bytes,
            )
    if (reach := _reach(table, known)) and (best := _best(table)) and best.bus_bytes_per_s < BELOW * reach:
        found["plateau"] = seen_at(
            Place(file=table.file, line=best.line), "warning" if best.bus_bytes_per_s < FAR * reach else "advice",
            "bandwidth.plateau", "{operation} reaches {best:.1f} GB/s at most where the links of a node have {reach:.1f}",
            operation=best.operation or "the collective", best=best.bus_bytes_per_s / 1e9, reach=reach / 1e9,
        )
    return tuple(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """The fastest size of an operation in one file: its bus rate, and the messages that had it."""

    file: str
    operation: str
    ranks: int | None
    message_bytes: float
    bus_bytes_per_s: float


def reached(tables: Iterable[Bandwidths]) -> tuple[Reached, ...]:
    """What each operation of each table reached at most, in the order of the files."""
    found = []
    for table in tables:
        best: dict[str, Bandwidth] = {}
        for (operation, _, _), rows in _series(table.rows):
            first = max(rows, key=lambda each: each.bus_bytes_per_s)
            if operation not in best or first.bus_bytes_per_s > best[operation].bus_bytes_per_s:
                best[operation] = first
        found += [
            Reached(file=table.file, operation=operation or "collective", ranks=each.ranks or table.ranks,
                    message_bytes=each.message_bytes, bus_bytes_per_s=each.bus_bytes_per_s)
            for operation, each in best.items()
        ]
    return tuple(found)


def _best(table: Bandwidths) -> Bandwidth | None:
    """The fastest size of a table that has messages large enough to fill a link."""
    rows = [each for _, rows in _series(table.rows) for each in rows]
    if max((each.message_bytes for each in rows), default=0.0) < LARGE_BYTES:
        return None
    return max(rows, key=lambda each: each.bus_bytes_per_s)


def _reach(table: Bandwidths, known: Surroundings) -> float | None:
    """Bus rate that the links between nodes allow, of all devices of a node together; None within a node or where it is not known.

    A ring of all ranks enters and leaves each node once, over as many links as the node has ranks in it (nccl-tests,
    doc/PERFORMANCE.md): the bus rate of one rank is that of all links of its node.
    """
    if known.link_bytes_per_s is None:
        return None
    nodes = table.nodes
    if nodes is None and table.ranks and known.devices_per_node:
        nodes = -(-table.ranks // known.devices_per_node)
    nodes = nodes or known.nodes or 1
    each = max(1, table.ranks // nodes) if table.ranks else known.devices_per_node or 1
    return known.link_bytes_per_s * each if nodes > 1 else None


def judge_ranks(tables: Sequence[Bandwidths]) -> tuple[Finding, ...]:
    """The rank that arrives last: where each rank times its own collectives, the one that is late waits least.

    Of each operation, size and communicator that three ranks or more measured, a rank's time is compared with the median; the rank
    whose time lies below it by most, weighted by time, is named where it is more than a share ``EARLY`` below.
    """
    measured: dict[tuple[str, float, str], dict[int, tuple[float, int, Place]]] = defaultdict(dict)
    for table in tables:
        for each in table.rows:
            if each.rank is not None and each.time_s and each.group:
                measured[each.operation, each.message_bytes, each.group][each.rank] = (
                    each.time_s, each.count, Place(file=table.file, line=each.line))
    usual: dict[int, float] = defaultdict(float)
    own: dict[int, float] = defaultdict(float)
    places: dict[int, Place] = {}
    for ranks in measured.values():
        if len(ranks) < 3:
            continue
        middle = median(time for time, _, _ in ranks.values())
        for rank, (time, count, place) in ranks.items():
            usual[rank] += middle * count
            own[rank] += time * count
            places.setdefault(rank, place)
    if not own:
        return ()
    last = min(own, key=lambda rank: own[rank] / usual[rank])
    share = 1 - own[last] / usual[last]
    if share < EARLY:
        return ()
    return (seen_at(
        places[last], "warning", "network.last_to_arrive",
        "rank {rank} spends {share:.0%} less in collectives than its peers: they wait for it", rank=last, share=share,
    ),)


def cliff(rows: Sequence[Bandwidth]) -> tuple[Bandwidth, Bandwidth] | None:
    """The best row below a cliff and the first behind it, of rows by growing size; None where the rates do not fall off."""
    best: Bandwidth | None = None
    for each in rows:
        if best is not None and each.bus_bytes_per_s < CLIFF * best.bus_bytes_per_s:
            return best, each
        if best is None or each.bus_bytes_per_s > best.bus_bytes_per_s:
            best = each
    return None


def plateau_bytes_per_s(table: Bandwidths) -> float:
    """The best bus rate of any size, each size taken by the mean of its rows: never the mean over sizes."""
    return max((each.bus_bytes_per_s for _, rows in _series(table.rows) for each in rows), default=0.0)


def _series(rows: Iterable[Bandwidth]) -> Iterator[tuple[tuple[str, bool | None, str], list[Bandwidth]]]:
    """Rows of one operation, form and group by growing size; those of one size become one with their mean rate."""
    series: dict[tuple[str, bool | None, str], dict[float, list[Bandwidth]]] = defaultdict(lambda: defaultdict(list))
    for each in rows:
        series[each.operation, each.in_place, each.group][each.message_bytes].append(each)
    for key, sizes in series.items():
        yield key, [_mean(sizes[size]) for size in sorted(sizes)]


def _mean(rows: Sequence[Bandwidth]) -> Bandwidth:
    """Rows of one size as one: the median of many tries, whose first are those of warming up; of a few the mean."""
    if len(rows) == 1:
        return rows[0]
    if len(rows) >= MANY:
        return sorted(rows, key=lambda each: each.bus_bytes_per_s)[len(rows) // 2]
    total = sum(each.count for each in rows)
    return replace(
        rows[0],
        time_s=None,
        count=total,
        algorithm_bytes_per_s=sum(each.algorithm_bytes_per_s * each.count for each in rows) / total,
        bus_bytes_per_s=sum(each.bus_bytes_per_s * each.count for each in rows) / total,
    )
