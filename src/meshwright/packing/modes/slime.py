"""slime: first fit of a step's samples as they come, micro-batches split until ranks share them, then dealt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.errors import fault
from meshwright.packing.modes.differencing import differenced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.packing.balance import Ranks
    from meshwright.packing.bins import Bins


def slime(
    lengths: NDArray[np.int64], max_tokens: int, ranks: int, *, multiple: int = 1, workloads: NDArray[np.floating] | None = None,
    balance_data: bool = False, balance_by_flops: bool = False,
) -> Ranks:
    """``multiple``: micro-batches of a rank come in multiples (virtual stages); workloads are asked for by either balance.

    ``balance_by_flops`` may exceed the limit, as slime says itself.

    Units:   tokens; the limit is that of a GPU times the context-parallel size.
    Errors:  ``InputError`` for fewer samples than micro-batches are needed.
    Source:  ``slime/utils/dp_schedule.py``, ``slime/utils/seqlen_balancing.py`` (slime 624b824).
    """
    loads = lengths if workloads is None else workloads
    if balance_by_flops:
        count = max(1, -(-int(lengths.sum()) // max_tokens))
        few = count >= len(lengths)
        bins = [[item] for item in range(len(lengths))] if few else differenced(loads.tolist(), count, equal_size=False)
    else:
        bins = first_fit(lengths, max_tokens)
    step = ranks * multiple
    bins = _split_to(bins, max(-(-len(bins) // step), 1) * step, lengths)
    if not balance_data:
        return [bins[rank::ranks] for rank in range(ranks)]
    shares = differenced([sum(loads[item] for item in each) for each in bins], ranks, equal_size=True)
    return [[bins[index] for index in share] for share in shares]


def first_fit(lengths: NDArray[np.int64], max_tokens: int) -> Bins:
    """Each sample as it comes into the first micro-batch with room.

    >>> first_fit(np.array([6, 5, 4, 3, 2]), 10)
    [[0, 2], [1, 3, 4]]
    """
    bins: Bins = []
    rooms = np.zeros(len(lengths), dtype=np.int64)
    for item, length in enumerate(lengths.tolist()):
        place = int((rooms[: len(bins)] >= length).argmax()) if bins else 0
        if place == len(bins) or rooms[place] < length:
            place = len(bins)
            bins.append([])
            rooms[place] = max_tokens
        bins[place].append(item)
        rooms[place] -= length
    return bins


def _split_to(bins: Bins, count: int, lengths: NDArray[np.int64]) -> Bins:
    """The micro-batch of several samples with most tokens is halved, until there are so many."""
    found = [list(each) for each in bins]
    while len(found) < count:
        several = [(int(lengths[each].sum()), index) for index, each in enumerate(found) if len(each) > 1]
        if not several:
            raise fault("pack.slime", "slime cannot make {count:,} micro-batches of {samples:,} samples", count=count,
                        samples=len(lengths))
        _, index = max(several)
        found[index : index + 1], added = _halves(found[index], lengths)
        found += added
    return found


def _halves(samples: Sequence[int], lengths: NDArray[np.int64]) -> tuple[Bins, Bins]:
    """The longest first to the half with fewer tokens."""
    halves: Bins = [[], []]
    filled = [0, 0]
    for item in sorted(samples, key=lambda item: -int(lengths[item])):
        side = 0 if filled[0] <= filled[1] else 1
        halves[side].append(item)
        filled[side] += int(lengths[item])
    return halves[:1], halves[1:]
