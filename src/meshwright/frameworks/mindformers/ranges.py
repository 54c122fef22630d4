"""Layer ids as MindFormers 2.1 writes them: ``['0-7', '9']`` and ``['0-3,16-19', ...]``, both ends included."""

from __future__ import annotations

import re
from collections.abc import Iterable

from meshwright.frameworks.ascend.stages import Split, layer_starts

_RANGE = re.compile(r"\s*([0-9]{1,7})\s*(?:-\s*([0-9]{1,7})\s*)?")
MAX_LAYERS = 100_000


def range_text(first: int, count: int) -> str:
    """``0-7`` or ``9``."""
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


def stage_ranges(split: Split) -> list[str]:
    """One text for each pipeline rank, its chunks separated by commas."""
    starts = layer_starts(split)
    return [
        ",".join(range_text(starts[chunk][stage], split[chunk][stage]) for chunk in range(len(split)))
        for stage in range(len(split[0]))
    ]


def ids_text(ids: Iterable[int]) -> list[str]:
    """Ids as ranges, adjacent ones merged."""
    found: list[list[int]] = []
    for each in sorted(set(ids)):
        if found and each == found[-1][1] + 1:
            found[-1][1] = each
        else:
            found.append([each, each])
    return [range_text(first, last - first + 1) for first, last in found]


def parse_range(text: object) -> tuple[int, int] | None:
    """First and last id of ``0-7`` or ``9``; None where it is neither."""
    found = _RANGE.fullmatch(str(text)) if isinstance(text, (str, int)) and not isinstance(text, bool) else None
    if found is None:
        return None
    first, last = int(found[1]), int(found[2] or found[1])
    return (first, last) if first <= last < MAX_LAYERS else None


def parse_ids(value: object) -> frozenset[int] | None:
    """The ids of a list of ranges; None where one of them is none."""
    if not isinstance(value, (list, tuple)):
        return None
    ranges = [parse_range(each) for each in value]
    if any(each is None for each in ranges) or sum(each[1] - each[0] for each in ranges if each) > MAX_LAYERS:
        return None
    return frozenset(layer for each in ranges if each for layer in range(each[0], each[1] + 1))


def parse_stages(value: object) -> tuple[tuple[tuple[int, int], ...], ...] | None:
    """First and last ids, ``[chunk][stage]``, of one text (or list of two ids) for each rank; None where it is no such thing."""
    if not isinstance(value, (list, tuple)) or not value:
        return None
    ranks = []
    for rank in value:
        if not isinstance(rank, (str, int)) or isinstance(rank, bool):
            return None
        chunks = [parse_range(each) for each in str(rank).split(",")]
        if any(each is None for each in chunks):
            return None
        ranks.append(tuple(each for each in chunks if each))
    if len({len(chunks) for chunks in ranks}) != 1:
        return None
    return tuple(zip(*ranks, strict=True))


def counts_of_ranges(ranges: tuple[tuple[tuple[int, int], ...], ...]) -> Split | None:
    """Layers by chunk and stage; None where ranges leave gaps, overlap, or do not follow the pipeline."""
    at = 0
    for row in ranges:
        for first, last in row:
            if first != at:
                return None
            at = last + 1
    return tuple(tuple(last - first + 1 for first, last in row) for row in ranges)


def recomputed_counts(ids: frozenset[int], split: Split) -> Split:
    """How many of the ids lie on each chunk and stage."""
    starts = layer_starts(split)
    return tuple(
        tuple(sum(start <= layer < start + count for layer in ids) for start, count in zip(begins, row, strict=True))
        for begins, row in zip(starts, split, strict=True)
    )


def first_ids(counts: Split, split: Split) -> list[int]:
    """The first so many ids of each chunk and stage."""
    starts = layer_starts(split)
    return [
        start + index
        for begins, row in zip(starts, counts, strict=True)
        for start, count in zip(begins, row, strict=True)
        for index in range(count)
    ]
