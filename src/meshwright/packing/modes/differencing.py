"""The largest differencing method of Karmarkar and Karp, with the order of ties that verl and slime have."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from meshwright.errors import fault

if TYPE_CHECKING:
    from collections.abc import Sequence

Part = tuple[int, int, list[tuple[int, int]]]
"""Sum, number of items, and the items as (index, value) in the order in which they came."""


class _Split:
    """Parts of some of the items, the largest first."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[Part]) -> None:
        self.parts = sorted(parts, reverse=True)

    def __lt__(self, other: _Split) -> bool:
        mine, others = self.parts[0][0] - self.parts[-1][0], other.parts[0][0] - other.parts[-1][0]
        return mine > others if mine != others else self.parts[0] > other.parts[0]


def differenced(values: Sequence[int], count: int, *, equal_size: bool) -> list[list[int]]:
    """Indices in so many parts of even sums; ``equal_size``: of as many items.

    Errors:  ``InputError`` where there are too few items, or no multiple of the parts where these are to be equal.
    Source:  Karmarkar and Karp 1982; ``verl/utils/seqlen_balancing.py`` (verl b178a3c), which slime has copied.

    >>> differenced([4, 5, 6, 7, 8], 2, equal_size=False)
    [[0, 1, 3], [2, 4]]
    """
    if len(values) < count or (equal_size and len(values) % count):
        raise fault("pack.parts", "{items:,} samples do not make {count:,} parts{alike}", items=len(values), count=count,
                    alike=" of as many each" if equal_size else "")
    nothing: Part = (0, 0, [])
    rising = sorted((value, index) for index, value in enumerate(values))
    ranked: list[Part] = [(value, 1, [(index, value)]) for value, index in rising]
    step = count if equal_size else 1
    splits = [_Split([*ranked[place : place + step], *[nothing] * (count - step)]) for place in range(0, len(ranked), step)]
    heapq.heapify(splits)
    while len(splits) > 1:
        one, other = heapq.heappop(splits), heapq.heappop(splits)
        heapq.heappush(splits, _Split([
            (mine[0] + theirs[0], mine[1] + theirs[1], mine[2] + theirs[2])
            for mine, theirs in zip(one.parts, reversed(other.parts), strict=True)
        ]))
    return [sorted(index for index, _ in items) for _, _, items in splits[0].parts]
