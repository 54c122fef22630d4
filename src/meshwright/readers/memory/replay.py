"""Allocations and releases replayed: the most that was live at once, who held it, and who never gives back."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from meshwright.domain.observed import MemoryHolder
from meshwright.value import Value

MAX_HOLDERS = 30
PARTS = 4
"""Of the recording; who keeps something new in each but the first, and never gives it back, grows."""
STEPS = 4
"""Turns between forward and backward pass that a recording needs before it tells growth from one pass that fills up."""


class Change(NamedTuple):
    """A block is taken (its size and holder) or given back (size 0)."""

    at: float
    block: object
    size: int
    holder: str = ""


class Replayed(Value, frozen=True):
    """What a replay shows; bytes are above what was live when the recording began."""

    peak_bytes: int
    peak_at: float | None
    end_bytes: int
    holders: tuple[MemoryHolder, ...]


def replayed(changes: Sequence[Change]) -> Replayed:
    """Changes in the order in which they happened; a block that is given back without having been taken was there before.

    >>> replayed([Change(0, 1, 10, "a"), Change(1, 2, 5, "b"), Change(2, 1, 0), Change(3, 3, 3, "b")]).peak_bytes
    15
    """
    live: dict[object, int] = {}
    now = peak = 0
    peak_index = -1
    for index, each in enumerate(changes):
        now -= live.pop(each.block, 0)
        if each.size > 0:
            live[each.block] = each.size
            now += each.size
            if now > peak:
                peak, peak_index = now, index
    return Replayed(peak_bytes=peak, peak_at=changes[peak_index].at if peak_index >= 0 else None, end_bytes=now,
                    holders=_holders(changes, peak_index))


def _holders(changes: Sequence[Change], peak_index: int) -> tuple[MemoryHolder, ...]:
    """Who held the peak, the largest first; behind them who grows and was not among them."""
    held: Counter[str] = Counter()
    blocks: Counter[str] = Counter()
    for _, change in _live(changes[: peak_index + 1]):
        held[change.holder] += change.size
        blocks[change.holder] += 1
    kept: dict[str, Counter[int]] = defaultdict(Counter)
    number: Counter[str] = Counter()
    for index, change in _live(changes):
        kept[change.holder][PARTS * index // len(changes)] += change.size
        number[change.holder] += 1
    grows = {holder for holder, parts in kept.items() if not _backward(holder) and all(parts[part] for part in range(1, PARTS))}
    if _turns(changes) < STEPS:
        grows = set()
    found = [MemoryHolder(name=holder, bytes=size, blocks=blocks[holder], never_freed=holder in grows)
             for holder, size in held.most_common(MAX_HOLDERS)]
    named = {each.name for each in found}
    rest = sorted(grows - named, key=lambda holder: (-kept[holder].total(), holder))
    found += [MemoryHolder(name=holder, bytes=kept[holder].total(), blocks=number[holder], never_freed=True)
              for holder in rest[:MAX_HOLDERS]]
    return tuple(found)


def _backward(holder: str) -> bool:
    """Whether a holder is of the backward pass, whose threads have no frames of the user's."""
    return not holder or "backward pass" in holder or holder.startswith("Gradients/")


def _turns(changes: Sequence[Change]) -> int:
    """How often a forward pass follows a backward pass."""
    passes = [_backward(each.holder) for each in changes if each.size > 0]
    return sum(before and not after for before, after in pairwise(passes))


def _live(changes: Sequence[Change]) -> list[tuple[int, Change]]:
    """What is live behind the last of the changes, with where it was taken."""
    live: dict[object, tuple[int, Change]] = {}
    for index, each in enumerate(changes):
        live.pop(each.block, None)
        if each.size > 0:
            live[each.block] = (index, each)
    return list(live.values())
