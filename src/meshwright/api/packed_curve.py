"""Tokens a second and memory against the limit of a micro-batch: the one cost model, asked at each limit."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from meshwright.api.packs import least_packs
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from meshwright.api.cases import Setup
    from meshwright.api.packed_steps import Rules
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout

TIMES = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
"""Limits that are looked at, in longest samples."""
ROUND = 128
"""They are multiples of so many tokens, where the alignment allows."""
TIE = 0.005
"""Limits whose expected steps differ by less are equal: the smaller one leaves more memory."""
FILLED, EVEN = 0.99, 1.02
"""Without a model: the smallest limit whose micro-batches are filled and whose ranks are even to these shares."""


class Point(Value, frozen=True, kw_only=True):
    """One limit, predicted."""

    max_tokens: int
    slot_tokens: int
    """What a micro-batch is laid out for: the limit, or the fullest where a rank has no more micro-batches than it must have."""
    packs: int
    """Micro-batches of an optimizer step."""
    estimate: Estimate
    trained_tokens_per_s: float
    """Without the padding behind the samples."""


def limits(longest: int, align: int, most: int, asked: int | None) -> list[int]:
    """Limits to look at, the smallest first: some times the longest sample, none above ``most`` but the first, and what is asked.

    >>> limits(8000, 16, 20_000, 8192)
    [8000, 8192, 10112, 12032, 16000, 20096]
    """
    step = _unit(align)
    first = -(-longest // align) * align
    found = {first, *(-(-int(times * longest) // step) * step for times in TIMES[1:] if times * longest <= most)}
    return sorted(found | ({asked} if asked is not None and asked >= longest else set()))


def _unit(align: int) -> int:
    """Limits are multiples of it."""
    return align if align % ROUND == 0 or ROUND % align else ROUND


def curve(given: Setup, layout: Layout, step: NDArray[np.int64], rules: Rules, caps: Sequence[int]) -> tuple[Point, ...]:
    """Each limit with its micro-batches and what the cost model says of them; limits that cannot be shared are left out."""
    from meshwright.errors import InputError

    found = []
    for cap in caps:
        try:
            found.append(point(given, layout, step, replace(rules, max_tokens=cap)))
        except InputError:
            continue
    return tuple(found)


def point(given: Setup, layout: Layout, step: NDArray[np.int64], rules: Rules) -> Point:
    """One limit, predicted with as many micro-batches as the samples are packed into.

    Errors:  ``InputError`` where ranks cannot share the samples.
    """
    from meshwright.estimate import estimate

    assert given.samples is not None, "samples are packed"
    ranks, shared, unit = layout.data_parallel, layout.data_parallel * rules.multiple, _unit(rules.align)
    figures = rules.figures(step)
    slot = rules.max_tokens
    if figures.most_of_a_rank <= rules.multiple:
        slot = min(slot, -(-max(figures.most_tokens, given.samples.longest_tokens) // unit) * unit)
    needed = max(figures.microbatches, least_packs(given.samples, given.request["global_batch"], slot))
    packs = -(-needed // shared) * shared
    packed = given.packed(slot, packs)
    predicted = estimate(packed.case, replace(layout, num_microbatches=packs // ranks))
    return Point(
        max_tokens=rules.max_tokens, slot_tokens=slot, packs=packs, estimate=predicted,
        trained_tokens_per_s=packed.case.batch.trained_tokens / predicted.step_s,
    )


def best(points: Sequence[Point]) -> Point | None:
    """The smallest limit whose expected step is as short as that of any that fits; None where none fits."""
    fitting = [each for each in points if each.estimate.fits]
    least = min((each.estimate.expected_step_s for each in fitting), default=inf)
    return next((each for each in fitting if each.estimate.expected_step_s <= least * (1 + TIE)), None)


def filling(step: NDArray[np.int64], rules: Rules, caps: Sequence[int]) -> int:
    """Without a model: the smallest limit that fills micro-batches and keeps ranks even, or that which fills them most."""
    from meshwright.errors import InputError

    found: list[tuple[float, int]] = []
    for cap in caps:
        try:
            figures = replace(rules, max_tokens=cap).figures(step)
        except InputError:
            continue
        filled = figures.tokens / (figures.microbatches * cap) / max(1.0, figures.imbalance_ratio / EVEN)
        if filled >= FILLED:
            return cap
        found.append((filled, cap))
    return max(found, key=lambda each: each[0])[1] if found else caps[0]

