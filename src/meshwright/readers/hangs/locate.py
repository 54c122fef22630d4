"""Which rank and which collective a hang waits for, from what each rank recorded of its own collectives.

In each process group collectives are numbered in the order in which a rank asks for them, and none ends before every rank of
the group has begun it. So the first number that nobody completed (the front) tells who keeps the others waiting:

    a rank that has not asked for it             missing
    ranks that asked for something else there    mismatch (or at an earlier number that is not completed)
    a rank whose device has not begun it         late
    none of these                                stalled: network or device (unknown where the group's ranks are)

A dump may be taken of a run that goes on: where nothing has waited for long when it was written (``UNDER_WAY_S``), what ranks are
in is under way, and no hang unless they ask for different things.

A rank that is missing in one group often waits in another: such a hang is explained by the other one, and what is left without
an explanation is the cause. Where two wait for each other (a collective left out, or two in the wrong order), the cause is the one
that fewer ranks are missing in.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from meshwright.domain.observed import CollectiveEntry, Hang, Hanging, Place, RankProgress

SIZED = ("allreduce", "allgather", "allgatherintotensor", "reducescatter", "reducescattertensor", "reduce", "broadcast")
"""Operations whose message must be of one size on all ranks."""
DEFAULT = frozenset({"", "0", "default_pg", "0(default_pg)"})
"""What the group of all ranks is called."""
MAX_WORLD = 1_000_000
UNDER_WAY_S = 30.0
"""What ranks have waited for for less is what a running job is in; no collective of a step takes as long."""
_PEER = re.compile(r"\b(send|recv)\b.*?(\d{1,7})\s*(->|<-)\s*(\d{1,7})", re.IGNORECASE)
_SEND = re.compile(r"send|recv", re.IGNORECASE)

Name = tuple[str, tuple[int, ...]]
"""A group's name and its ranks, where they are said: names alone may be those of several groups."""


@dataclass(slots=True)
class _Rank:
    """How far one rank got in one group."""

    enqueued: int = -1
    started: int | None = None
    completed: int = -1
    entries: dict[int, CollectiveEntry] = field(default_factory=dict)
    place: Place | None = None

    @property
    def waits(self) -> bool:
        """Whether it asked for something that did not complete, and, as far as it is known, its device has begun it."""
        return self.enqueued > self.completed and (self.started is None or self.started > self.completed)


    @property
    def under_way(self) -> bool:
        """Whether it is known of all that it waits in that it has not waited for long."""
        waits = [each for number, each in self.entries.items() if number > self.completed]
        return bool(waits) and all(_under_way(each) for each in waits)


_Group = dict[int, _Rank]


def _under_way(entry: CollectiveEntry) -> bool:
    return entry.state != "timed out" and entry.waited_s is not None and entry.waited_s < UNDER_WAY_S


def located(hangings: Sequence[Hanging], world: int | None = None) -> Hang | None:
    """What the hang waits for in the end; None where no rank waits. ``world``: ranks of the run, where they are known.

    >>> from meshwright.domain.observed import RankProgress
    >>> progress = [RankProgress(rank=rank, group="0", last_enqueued=9 - (rank == 2), last_completed=8) for rank in range(4)]
    >>> hang = located([Hanging(file="", format="", progress=tuple(progress))])
    >>> hang.kind, hang.ranks, hang.sequence
    ('missing', (2,), 9)
    """
    return next(iter(hangs(hangings, world)), None)


def hangs(hangings: Sequence[Hanging], world: int | None = None) -> tuple[Hang, ...]:
    """Every group in which ranks wait: causes first, then what they explain."""
    groups = _groups([_named(each) for each in hangings], tuple(range(min(world or 0, MAX_WORLD))))
    found = [_elsewhere(each, groups) for name, ranks in groups.items() if (each := _hang(name, ranks))]
    found += list(_pairs(hangings))
    return _causes_first(found)


def _named(hanging: Hanging) -> Hanging:
    """The same, with the group of a rank's entries that do not say it where the rank is known in one group alone."""
    known: dict[int | None, set[str]] = defaultdict(set)
    everything: list[RankProgress | CollectiveEntry] = [*hanging.progress, *hanging.entries]
    for each in everything:
        if each.group:
            known[each.rank].add(each.group)
    if all(each.group or len(known[each.rank]) != 1 for each in everything):
        return hanging

    def group(rank: int | None, said: str) -> str:
        return said or (next(iter(known[rank])) if len(known[rank]) == 1 else "")

    return replace(hanging, entries=tuple(replace(each, group=group(each.rank, each.group)) for each in hanging.entries),
                   progress=tuple(replace(each, group=group(each.rank, each.group)) for each in hanging.progress))


def _groups(hangings: Sequence[Hanging], world: tuple[int, ...]) -> dict[Name, _Group]:
    """What is known of each rank of each group, over all files."""
    said: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for each in hangings:
        for group, ranks in each.groups.items():
            if ranks:
                said[group].add(tuple(sorted(set(ranks))))

    names: dict[tuple[int, str, int], Name] = {}

    def name_of(index: int, group: str, rank: int) -> Name:
        if (index, group, rank) not in names:
            names[index, group, rank] = named(hangings[index], group, rank)
        return names[index, group, rank]

    def named(hanging: Hanging, group: str, rank: int) -> Name:
        own = tuple(sorted(set(hanging.groups.get(group, ()))))
        if not own:
            own = next((each for each in sorted(said.get(group, ())) if rank in each), world if group in DEFAULT else ())
        return group, own if not own or rank in own else ()

    groups: dict[Name, _Group] = defaultdict(dict)
    telling: set[int] = set()
    for index, hanging in enumerate(hangings):
        for entry in hanging.entries:
            if entry.rank is None or entry.sequence is None or entry.sequence < 0:
                continue
            if entry.point_to_point or _SEND.search(entry.operation):
                continue
            rank = groups[name_of(index, entry.group, entry.rank)].setdefault(entry.rank, _Rank())
            rank.enqueued = max(rank.enqueued, entry.sequence)
            rank.entries.setdefault(entry.sequence, entry)
            rank.place = rank.place or entry.place
            if entry.state == "completed":
                rank.completed = max(rank.completed, entry.sequence)
            if entry.state == "started":
                rank.started = max(rank.started or 0, entry.sequence)
                telling.add(entry.rank)
        for progress in hanging.progress:
            if progress.rank is None:
                continue
            rank = groups[name_of(index, progress.group, progress.rank)].setdefault(progress.rank, _Rank())
            completed = -1 if progress.last_completed is None else progress.last_completed
            rank.enqueued = max(rank.enqueued, -1 if progress.last_enqueued is None else progress.last_enqueued, completed)
            rank.completed = max(rank.completed, completed)
            if progress.last_started is not None and progress.last_started >= 0:
                rank.started = max(rank.started or 0, progress.last_started)
                telling.add(progress.rank)
            rank.place = rank.place or progress.place
    for each_group in groups.values():
        for number, rank in each_group.items():
            if number in telling:
                rank.started = max(rank.completed, -1 if rank.started is None else rank.started)
            if rank.completed < 0 and rank.entries and min(rank.entries) > 0:  # the watchdog names the first that did not complete
                rank.completed = min(rank.entries) - 1
    return groups


def _hang(name: Name, ranks: _Group) -> Hang | None:
    """What one group waits for; None where none of its ranks waits in it."""
    if not any(each.waits for each in ranks.values()):
        return None
    group, members = name
    if not group and any(sum(entry.state == "timed out" for entry in each.entries.values()) > 1 for each in ranks.values()):
        return _mixed(ranks)
    silent = tuple(each for each in members if each not in ranks)
    front = max(each.completed for each in ranks.values()) + 1
    waiting = tuple(sorted(rank for rank, each in ranks.items() if each.waits))

    def hang(kind: str, culprits: Iterable[int], sequence: int) -> Hang:
        chosen = tuple(sorted(culprits))
        others = [rank for rank in ranks if rank not in chosen] or list(ranks)
        known = [ranks[rank].entries[sequence] for rank in (*others, *chosen) if rank in ranks and sequence in ranks[rank].entries]
        instead = [ranks[rank].entries[sequence] for rank in chosen if rank in ranks and sequence in ranks[rank].entries]
        place = known[0].place if known else next((ranks[rank].place for rank in waiting), None)
        return Hang(kind=kind, ranks=chosen, group=group, collective=_common(each.operation for each in known), sequence=sequence,
                    waiting=waiting, silent=silent, instead=tuple(instead) if kind == "mismatch" else (), place=place)

    if odd := _mismatch(ranks, front):
        return hang("mismatch", *odd)
    if all(ranks[rank].under_way for rank in waiting):
        return None
    missing = [rank for rank, each in ranks.items() if each.enqueued < front]
    if any(each.enqueued >= front for each in ranks.values()):
        absent = [rank for rank in missing if ranks[rank].enqueued <= ranks[rank].completed]
        if absent:
            return hang("missing", absent, min(ranks[rank].enqueued for rank in absent) + 1)
        if missing:  # they wait in what others have completed
            return hang("late", missing, min(ranks[rank].completed for rank in missing) + 1)
        behind = [rank for rank, each in ranks.items() if each.completed < front - 1 and each.started is not None
                  and each.started < front - 1]
        if behind:
            return hang("late", behind, min(ranks[rank].completed for rank in behind) + 1)
        if silent:
            return hang("missing", silent, front)
        unbegun = [rank for rank, each in ranks.items() if each.started is not None and each.started < front]
        if 0 < len(unbegun) < len(ranks):
            return hang("late", unbegun, front)
        return hang("stalled" if members else "unknown", ranks, front)
    slow = [rank for rank, each in ranks.items() if each.waits]
    return hang("late", slow, min(ranks[rank].completed for rank in slow) + 1)


def _elsewhere(hang: Hang, groups: dict[Name, _Group]) -> Hang:
    """The same, with what ranks that are missing wait in elsewhere."""
    if hang.kind != "missing":
        return hang
    waits = [each.entries[each.completed + 1] for (group, _), ranks in groups.items() if group != hang.group
             for rank, each in ranks.items() if rank in hang.ranks and each.waits and each.completed + 1 in each.entries]
    return replace(hang, instead=tuple(waits))


def _mixed(ranks: _Group) -> Hang:
    """What is left to say where several groups' numbers stand together without the groups' names."""
    entries = [entry for each in ranks.values() for entry in each.entries.values() if entry.state == "timed out"]
    return Hang(kind="unknown", ranks=tuple(sorted(ranks)), group="", collective=_common(each.operation for each in entries),
                sequence=None, waiting=tuple(sorted(ranks)), place=entries[0].place)


def _common(names: Iterable[str]) -> str:
    counted = Counter(each for each in names if each)
    return counted.most_common(1)[0][0] if counted else ""


def _signature(entry: CollectiveEntry) -> tuple[str, int | None, str]:
    """What must be the same on all ranks."""
    name = "".join(each for each in entry.operation.lower().rsplit(":", 1)[-1] if each.isalpha()).lstrip("_").removesuffix("base")
    sized = name in SIZED
    return name, entry.elements_in if sized else None, entry.dtype if sized else ""


def _mismatch(ranks: _Group, front: int) -> tuple[list[int], int] | None:
    """Ranks that asked for something else than most, and at which number; the first that somebody has not completed."""
    numbers = sorted({number for each in ranks.values() for number in each.entries if each.completed < number <= front})
    for number in numbers:
        asked: dict[tuple[str, int | None, str], list[int]] = defaultdict(list)
        for rank, each in ranks.items():
            if number in each.entries:
                asked[_signature(each.entries[number])].append(rank)
        if len(asked) > 1:
            most = max(len(each) for each in asked.values())
            common = [key for key, each in asked.items() if len(each) == most]
            return [rank for key, each in asked.items() if len(common) > 1 or key != common[0] for rank in each], number
    return None


def _pairs(hangings: Sequence[Hanging]) -> Iterator[Hang]:
    """Sends and receives that wait for a peer that has not asked for its side."""
    waits: dict[tuple[str, int, int, str], CollectiveEntry] = {}
    seen: set[int] = set()
    for hanging in hangings:
        for entry in hanging.entries:
            if entry.rank is None:
                continue
            seen.add(entry.rank)
            found = _PEER.search(entry.operation)
            if found is None or entry.state == "completed" or _under_way(entry):
                continue
            ranks = sorted(hanging.groups.get(entry.group, ()))
            peer = int(found[4])
            peer = ranks[peer] if peer < len(ranks) else peer
            waits.setdefault((entry.group, entry.rank, peer, found[1].lower()), entry)
    for (group, rank, peer, kind), entry in waits.items():
        other = "recv" if kind == "send" else "send"
        if peer in seen and (group, peer, rank, other) not in waits:
            yield Hang(kind="missing", ranks=(peer,), group=group, collective=entry.operation, sequence=entry.sequence,
                       waiting=(rank,), place=entry.place)


def _causes_first(found: Sequence[Hang]) -> tuple[Hang, ...]:
    """Hangs whose culprits wait nowhere else, then the rest; of a circle the one with the fewest culprits stands for its cause."""
    waiting: dict[int, set[int]] = defaultdict(set)
    for index, hang in enumerate(found):
        for rank in hang.waiting:
            waiting[rank].add(index)
    explained = [set().union(*(waiting[rank] for rank in hang.ranks)) - {index} if hang.kind in {"missing", "late"} else set()
                 for index, hang in enumerate(found)]

    def order(index: int) -> tuple[bool, int, int, int]:
        hang = found[index]
        return (hang.kind in {"stalled", "unknown"}, len(hang.ranks), -len(hang.waiting), hang.sequence or 0)

    causes = [index for index, others in enumerate(explained) if not others] or _circle(explained)
    rest = set(range(len(found))) - set(causes)
    return tuple(found[index] for index in sorted(causes, key=order) + sorted(rest, key=order))


def _circle(explained: Sequence[set[int]]) -> list[int]:
    """Hangs that explain each other: from the first, what its explanations lead to again and again."""
    reached: list[int] = []
    at = 0
    while explained and at not in reached:
        reached.append(at)
        at = min(explained[at])
    return reached[reached.index(at):] if reached else []
