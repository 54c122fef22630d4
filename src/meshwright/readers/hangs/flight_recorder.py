"""PyTorch's flight recorder: the last collectives of one rank, as JSON, or as a pickle of which nothing is ever built.

Names and versions: ``torch/csrc/distributed/c10d/FlightRecorder*.hpp`` (2.1 to 2.10). Numbers may be texts, tuples may be lists,
the rank stands in the file's name alone.
"""

from __future__ import annotations

import re
from math import prod
from pathlib import PurePath
from typing import TYPE_CHECKING

from meshwright.domain.observed import CollectiveEntry, Hanging, Place, RankProgress
from meshwright.readers.formats import Format
from meshwright.readers.frames import user_frame
from meshwright.readers.json_so_far import content, load_json_so_far
from meshwright.readers.loose import amount, flag, mapping, sequence, text, whole
from meshwright.readers.plain_pickle import load_plain_pickle, looks_like_pickle
from meshwright.units import MICRO, MILLI

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.readers.source import Source

MAX_ENTRIES = 100_000
MAX_GROUPS = 100_000
MAX_RANK = 10**7
NANO = MICRO * MILLI
_RANK = re.compile(r"(\d{1,7})(?:\.(?:json|pkl|pickle|gz|bin|txt))*$")
_RANKS = re.compile(r"\d{1,7}")


def rank_of(name: str) -> int | None:
    """The rank that a file's name ends in: ``comm_lib_trace_rank_3``, ``nccl_trace_rank_3.json``, ``trace_17``."""
    found = _RANK.search(PurePath(name).name)
    return int(found[1]) if found else None


def read(source: Source) -> tuple[Hanging, ...]:
    """One rank's dump."""
    data = content(source)
    if looks_like_pickle(data):
        document, complete = load_plain_pickle(data, source.shown)
    else:
        document, complete = load_json_so_far(data.decode("utf-8", "replace"), source.shown)
    top = mapping(document)
    if "entries" not in top and "pg_status" not in top:
        return ()
    rank = rank_of(source.shown)
    groups = {}
    for name, each in list(mapping(top.get("pg_config")).items())[:MAX_GROUPS]:
        config = mapping(each)
        groups[_group(config.get("name", name), config.get("desc"))] = _ranks(config.get("ranks"))
    names = {group.split("(")[0]: group for group in groups}
    entries, ids, written_s = [], {}, source.written_s
    for each in sequence(top.get("entries"))[:MAX_ENTRIES]:
        record = mapping(each)
        entry = _entry(record, rank, source.shown, written_s)
        entries.append(entry)
        ids[text(record.get("pg_id"))] = entry.group
    progress = []
    for id, each in list(mapping(top.get("pg_status")).items())[:MAX_GROUPS]:
        status = mapping(each)
        known = text(id)
        progress.append(RankProgress(
            rank=rank, group=ids.get(known, names.get(known, known)), place=Place(file=source.shown),
            last_enqueued=whole(status.get("last_enqueued_collective")), last_started=whole(status.get("last_started_collective")),
            last_completed=whole(status.get("last_completed_collective"))))
    notes = [] if complete else ["the file breaks off; what stands whole is read"]
    if rank is None:
        notes.append("the file's name ends in no rank")
    return (Hanging(file=source.shown, format="flight_recorder", entries=tuple(entries), progress=tuple(progress), groups=groups,
                    notes=tuple(notes)),)


def _group(name: object, description: object) -> str:
    return f"{text(name)}({text(description)})" if text(description) else text(name)


def _ranks(value: object) -> tuple[int, ...]:
    """Ranks of a group, said as a list or as the text of one."""
    if isinstance(value, str):
        return tuple(int(each) for each in _RANKS.findall(value[:10_000_000]))
    return tuple(each for item in sequence(value) if (each := whole(item)) is not None and 0 <= each <= MAX_RANK)


def _elements(sizes: object) -> int | None:
    """Elements of all tensors; None where none is said."""
    shapes = [[whole(each) or 0 for each in sequence(shape)[:16]] for shape in sequence(sizes)[:10_000]]
    return sum(min(prod(each), 2**63) for each in shapes) if shapes else None


def _waited_s(record: Mapping[object, object], written_s: float | None) -> float | None:
    """From when a collective was asked for until it was done, or until the dump was written; None where clocks say nothing."""
    created, completed = amount(record.get("time_created_ns")), amount(record.get("time_discovered_completed_ns"))
    if created is None or (completed is None and written_s is None):
        return None
    until_s = completed * NANO if completed is not None else written_s or 0.0
    return until_s - created * NANO if until_s >= created * NANO else None


def _entry(record: Mapping[object, object], rank: int | None, file: str, written_s: float | None) -> CollectiveEntry:
    pair = sequence(record.get("process_group"))
    group = _group(pair[0], pair[1] if len(pair) > 1 else "") if pair else text(record.get("pg_id"))
    peer_to_peer = flag(record.get("is_p2p"))
    state = text(record.get("state")) or "scheduled"
    if flag(record.get("retired")) and state != "completed":
        state = "timed out"
    timeout = amount(record.get("timeout_ms"))
    dtypes = sequence(record.get("input_dtypes"))
    return CollectiveEntry(
        rank=rank, group=group, sequence=whole(record.get("p2p_seq_id" if peer_to_peer else "collective_seq_id")),
        operation=text(record.get("profiling_name")), state=state, elements_in=_elements(record.get("input_sizes")),
        elements_out=_elements(record.get("output_sizes")), dtype=text(dtypes[0]) if dtypes else "",
        sizes=tuple(tuple(whole(each) or 0 for each in sequence(shape)[:16]) for shape in sequence(record.get("input_sizes"))[:64]),
        waited_s=_waited_s(record, written_s), timeout_s=None if timeout is None else timeout * MILLI,
        place=Place(file=file), frame=user_frame(record.get("frames")), point_to_point=peer_to_peer)


def _told(sample: bytes) -> bool:
    if looks_like_pickle(sample):
        return b"pg_status" in sample or b"profiling_name" in sample or b"pg_config" in sample
    named = b'"pg_status"' in sample or b'"profiling_name"' in sample
    return named and sample.lstrip()[:1] == b"{" and b'"traceEvents"' not in sample


FORMAT = Format(name="flight_recorder", says="dumps of PyTorch's flight recorder, one a rank", told=_told, read=read)
