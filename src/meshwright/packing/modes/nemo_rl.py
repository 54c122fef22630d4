"""NeMo-RL: modified first fit decreasing, samples moved until ranks share the micro-batches, dealt in turn."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

import numpy as np

from meshwright.errors import fault

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.packing.balance import Ranks
    from meshwright.packing.bins import Bins


def nemo_rl(lengths: NDArray[np.int64], max_tokens: int, ranks: int, *, multiple: int = 1) -> Ranks:
    """``multiple``: each length is padded to it before it is packed (``sequence_length_pad_multiple``).

    Errors:  ``InputError`` for a sample above the limit, and for fewer samples than ranks.
    Source:  ``nemo_rl/distributed/batched_data_dict.py`` (NeMo-RL 7ea279a): the packer's micro-batches are dealt in turn.
    """
    padded = -(-lengths // multiple) * multiple
    bins = with_count(modified_first_fit(padded, max_tokens), ranks)
    return [bins[rank::ranks] for rank in range(ranks)]


def modified_first_fit(lengths: NDArray[np.int64], max_tokens: int) -> Bins:
    """The default packer: long samples alone, one of medium length beside each, two short ones, then whatever fits.

    Source:  Johnson and Garey 1985; ``nemo_rl/data/packing/algorithms.py`` (NeMo-RL 7ea279a), ties and last phase as there.

    >>> modified_first_fit(np.array([6, 5, 4, 3, 2]), 10)
    [[0, 2], [1, 3, 4]]
    """
    sizes: list[int] = lengths.tolist()
    if max(sizes) > max_tokens:
        raise fault("pack.nemo-rl", "NeMo-RL refuses a sample of {most:,} tokens under a limit of {limit:,}", most=max(sizes),
                    limit=max_tokens)
    falling = sorted(range(len(sizes)), key=lambda item: -sizes[item])
    bins: Bins = [[item] for item in falling if 2 * sizes[item] > max_tokens]
    rooms = [max_tokens - sizes[each[0]] for each in bins]
    medium = [item for item in falling if 2 * sizes[item] <= max_tokens < 3 * sizes[item]]
    small = sorted((item for item in range(len(sizes)) if 3 * sizes[item] <= max_tokens < 6 * sizes[item]), key=sizes.__getitem__)
    tiny = sorted((item for item in range(len(sizes)) if 6 * sizes[item] <= max_tokens), key=sizes.__getitem__)

    def put(index: int, item: int) -> None:
        bins[index].append(item)
        rooms[index] -= sizes[item]

    paired = set()
    for index, room in enumerate(rooms):
        if (place := next((place for place, item in enumerate(medium) if sizes[item] <= room), None)) is not None:
            put(index, medium.pop(place))
            paired.add(index)
    for index in reversed(range(len(bins))):
        if index in paired or len(small) < 2 or sizes[small[0]] + sizes[small[1]] > rooms[index]:
            continue
        put(index, small.pop(0))
        place = bisect_right(small, rooms[index], key=sizes.__getitem__) - 1
        if place >= 0:
            put(index, small.pop(place))
    rest = sorted(medium + small + tiny, key=lambda item: -sizes[item])
    for index in range(len(bins)):
        while rest and (place := next((place for place, item in enumerate(rest) if sizes[item] <= rooms[index]), None)) is not None:
            put(index, rest.pop(place))
    return [*bins, *_emptiest_first(rest, sizes, max_tokens)]


def _emptiest_first(rest: list[int], sizes: list[int], max_tokens: int) -> Bins:
    """What is left over: longest first, each into the emptiest of the further micro-batches, or a new one."""
    further: Bins = []
    filled: list[int] = []
    for item in rest:
        room_there = bool(filled) and sizes[item] <= max_tokens - filled[0]
        held, tokens = (further.pop(0), filled.pop(0)) if room_there else ([], 0)
        tokens += sizes[item]
        place = bisect_right(filled, tokens)
        filled.insert(place, tokens)
        further.insert(place, [*held, item])
    return further


def with_count(bins: Bins, ranks: int) -> Bins:
    """At least one for each rank and a multiple of the ranks: one sample each of those that have most goes into a new one."""
    count = -(-max(len(bins), ranks) // ranks) * ranks
    found = [list(each) for each in bins]
    if sum(map(len, found)) < count:
        raise fault("pack.nemo-rl-few", "NeMo-RL cannot make {count:,} micro-batches of {samples:,} samples", count=count,
                    samples=sum(map(len, found)))
    source = sorted(range(len(found)), key=lambda index: (len(found[index]), index), reverse=True)
    while len(found) < count:
        while len(found[source[0]]) < 2:
            source.pop(0)
        found.append([found[source[0]].pop()])
    return found
