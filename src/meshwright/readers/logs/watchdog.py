"""Lines of the watchdog of PyTorch's process groups: which collective waited in vain, and how far each rank had come.

They locate a hang without any dump. Releases since 2.0 spell them in several ways; NPU's group says ``WorkHCCL``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from meshwright.domain.observed import CollectiveEntry, Hanging, Place, RankProgress
from meshwright.readers.formats import Format
from meshwright.readers.lines import Hit, Search, tells
from meshwright.readers.needles import Needles
from meshwright.readers.source import Source
from meshwright.units import MILLI

_WORK = re.compile(
    r"Work[NHRX]CCL\((?:SeqNum=(?P<sequence>\d{1,18}), ?)?OpType=(?P<operation>\w{1,60})"
    r"(?:, ?TensorShape=\[(?P<shape>[\d, ]{0,200})\])?"
    r"(?:, ?NumelIn=(?P<elements_in>\d{1,18}), ?NumelOut=(?P<elements_out>\d{1,18}))?, ?Timeout\(ms\)=(?P<timeout>\d{1,18})\)"
    r" ran for (?P<ran>\d{1,18}) m(?:illi)?s")
_PROGRESS = re.compile(
    r"last enqueued (?:NCCL |HCCL |XCCL )?work: (?P<enqueued>-?\d{1,20})"
    r"(?:, ?last started (?:NCCL )?work: (?P<started>-?\d{1,20}))?"
    r",? ?last completed (?:NCCL |HCCL |XCCL )?work: (?P<completed>-?\d{1,20})", re.IGNORECASE)
_AT = re.compile(r"(?:at work|at NCCL work|work sequence id): (\d{1,18})")
_GROUP = re.compile(
    r"\[PG(?: ID)? (?P<id>\w{1,40})(?: PG GUID (?P<unique>[\w.\-]{1,80}))? ?(?:\((?P<name>[^)]{0,80})\))? Rank (?P<rank>\d{1,9})\]")
_TELLS = re.compile(r"Work[NHRX]CCL\((?:SeqNum|OpType)=|last enqueued .{0,6}work: -?\d", re.IGNORECASE)
_RANK = re.compile(r"\[Rank (\d{1,9})\]|\[rank(\d{1,9})\]")
_HINTS = (b"WorkNCCL(", b"WorkHCCL(", b"WorkXCCL(", b"WorkRCCL(", b"last enqueued ")
MOST = 20_000
WRAPPED = 2
"""Lines over which a message may be wrapped beyond its first."""
IMPOSSIBLE = 10**15
"""Some releases print a counter that was never set."""

Key = tuple[int, str]


def _read(source: Source) -> tuple[Hanging, ...]:
    entries: dict[tuple[int | None, int | None, str], CollectiveEntry] = {}
    progress: dict[Key, RankProgress] = {}
    works: dict[tuple[int, int], str] = {}
    for hit in Search(Needles(_HINTS, source.excerpt)).hits(source):
        text = _whole(hit)
        place, rank, group = Place(file=source.shown, line=hit.line.number), _rank(hit, text), _group(text)
        for entry in _entries(text, rank, group, place):
            if len(entries) < MOST:
                entries.setdefault((entry.rank, entry.sequence, entry.operation), entry)
        found = _PROGRESS.search(text)
        if found is None or rank is None:
            continue
        if (at := _AT.search(text)) is not None and group:
            works[(rank, int(at[1]))] = group
        if len(progress) < MOST:
            progress[(rank, group)] = _further(progress.get((rank, group)), _progress(rank, group, found, place))
    if not entries and not progress:
        return ()
    named = (replace(each, group=each.group or works.get((each.rank or 0, each.sequence or -1), "")) for each in entries.values())
    return (Hanging(file=source.shown, format=FORMAT.name, entries=tuple(named), progress=tuple(progress.values())),)


def _whole(hit: Hit) -> str:
    """The line, with what it is wrapped over where it breaks off in the middle."""
    text = hit.line.text
    pattern = _WORK if "CCL(" in text else _PROGRESS
    if pattern.search(text) is None:
        for line in hit.following(WRAPPED):
            text = f"{text} {line.text.strip()}"
            if pattern.search(text) is not None:
                break
    return text


def _entries(text: str, rank: int | None, group: str, place: Place) -> Iterator[CollectiveEntry]:
    for found in _WORK.finditer(text):
        shape = tuple(int(each) for each in (found["shape"] or "").replace(" ", "").split(",") if each)
        yield CollectiveEntry(
            rank=rank, group=group, sequence=_int(found["sequence"]), operation=found["operation"], state="timed out",
            elements_in=_int(found["elements_in"]), elements_out=_int(found["elements_out"]), sizes=(shape,) if shape else (),
            waited_s=int(found["ran"]) * MILLI, timeout_s=int(found["timeout"]) * MILLI, place=place,
        )


def _progress(rank: int, group: str, found: re.Match[str], place: Place) -> RankProgress:
    """A completed work beyond the last enqueued one is no count."""
    enqueued, started, completed = (_count(found[name]) for name in ("enqueued", "started", "completed"))
    if enqueued is not None and completed is not None and completed > enqueued:
        completed = None
    return RankProgress(rank=rank, group=group, last_enqueued=enqueued, last_started=started, last_completed=completed, place=place)


def _further(kept: RankProgress | None, now: RankProgress) -> RankProgress:
    """Of two reports of one rank the one that says more: the watchdog may speak before the last is enqueued."""
    if kept is None or (now.last_enqueued or -1) > (kept.last_enqueued or -1):
        return now
    if kept.last_completed is None and now.last_completed is not None:
        return replace(kept, last_completed=now.last_completed)
    return kept


def _rank(hit: Hit, text: str) -> int | None:
    """The launcher's and the logger's prefix names the rank of the world; a group's own line only that within the group."""
    if hit.line.rank is not None:
        return hit.line.rank
    found, group = _RANK.search(text) or _RANK.search(hit.around(1, 0)[0][0]), _GROUP.search(text)
    if found is not None:
        return int(found[1] or found[2])
    return int(group["rank"]) if group is not None else None


def _group(text: str) -> str:
    found = _GROUP.search(text)
    if found is None:
        return ""
    own = found["unique"] or found["id"]
    return f"{own}({found['name']})" if found["name"] else own


def _int(text: str | None) -> int | None:
    return int(text) if text else None


def _count(text: str | None) -> int | None:
    value = _int(text)
    return None if value is None or value < 0 or value > IMPOSSIBLE else value


FORMAT = Format(
    name="watchdog_log", says="the watchdog's lines of a run that hangs",
    told=lambda sample: tells(sample, _HINTS, _TELLS), read=_read,
)
