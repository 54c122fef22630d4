"""The shortest slot of a model of one body: stages are filled one by one, for alike layers may stand anywhere."""

from __future__ import annotations

import time
from dataclasses import replace
from math import comb
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from meshwright.search.balance.fullest import Fullest
from meshwright.search.balance.times import chunk_times, positions, slot_times

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.domain.balance import BalanceProblem, Body

    Counts = NDArray[np.int64]

STEP = 5e-6
"""What a slot must be shorter by to count as shorter: more than the rounding of the solver."""
NEAR = 0.01
"""A range this narrow is no longer halved: the next shorter slot is asked for."""


MOST_WAYS = 60_000
"""Ways to treat the layers of a chunk, or to share layers among chunks, beyond which the whole programme is solved instead."""


class Shortest(NamedTuple):
    """The shortest slot: a placement that has it, and what is proved."""

    counts: Counts
    found: float
    bound: float


def applies(problem: BalanceProblem) -> bool:
    """Whether stages can be filled one by one: nothing binds layers to places, and there are not too many ways to treat a chunk."""
    free = problem.recompute_rule == "any" and problem.fixed_recompute is None and problem.fixed_layers is None
    longest = 2 * -(-problem.layers // (problem.stages * problem.chunks)) + 4
    ways = comb(longest + len(problem.treatments) - 1, len(problem.treatments) - 1)
    return free and max(ways, longest**problem.chunks) <= MOST_WAYS


def least_slot_of_heaviest(problem: BalanceProblem, *, least: float, start: Counts, deadline: float) -> float:
    """A slot that no placement of several bodies beats: that of the one with most work, as if the others took no room.

    ``start``: a placement of the whole problem that fits.

    Holds:   a bound; the order of the bodies binds layers to places.
    """
    number = max(range(len(problem.bodies)), key=lambda b: _work(problem.bodies[b]))
    alone = replace(problem, bodies=(problem.bodies[number],))
    return shortest_slot(alone, least=least, start=start[number : number + 1], deadline=deadline, alone=True).bound


def _work(body: Body) -> float:
    return body.layers * (body.forward_time + min(body.backward_times))


def shortest_slot(
    problem: BalanceProblem, *, least: float, start: Counts, deadline: float, alone: bool = False
) -> Shortest:
    """Narrow the slot from both sides: a slot T is possible if, and only if, all stages together can hold the layers within T.

        T possible  <=>  sum over s of most_s(T) >= L;   most_s(T) most layers of stage s with slot <= T under its memory

    ``start``: a placement that fits. ``alone``: of several bodies, this one without the others: chunks may be empty.

    Units:   the problem's.
    Holds:   one body; taking a layer off a stage never makes it slower or fuller.
    Source:  the slot couples stages by the number of layers alone.
    """
    low, counts, stages = least, start, Fullest(problem, alone=alone)
    high = float(slot_times(chunk_times(problem, start)))
    while low < high * (1.0 - STEP) and time.perf_counter() < deadline:
        slot = high * (1.0 - STEP) if high - low <= NEAR * high else 0.5 * (low + high)
        filled = _filled(problem, stages, slot)
        if filled is None:
            low = slot
            continue
        counts = _reduced(problem, filled, alone=alone)
        high = float(slot_times(chunk_times(problem, counts)))
    return Shortest(counts, high, min(low, high) if low < high * (1.0 - STEP) else high)


def _filled(problem: BalanceProblem, stages: Fullest, slot: float) -> Counts | None:
    """All stages as full as they can be within a slot; None where they cannot hold all layers, or one not even its least."""
    total = np.zeros((1, len(problem.treatments), problem.chunks, problem.stages), dtype=np.int64)
    for stage in range(problem.stages):
        counts = stages.most(stage, slot)[1]
        if counts is None:
            return None
        total[0, :, :, stage] = counts
    return total if total.sum() >= problem.layers else None


def _reduced(problem: BalanceProblem, counts: Counts, *, alone: bool) -> Counts:
    """A filling of all stages with what is too much taken away, the most expensive layers first."""
    counts = counts.copy()
    model = positions(problem)
    bound = set() if alone else set(model[1:-1])
    surplus = int(counts.sum()) - problem.layers
    order = np.argsort([-each for each in problem.bodies[0].backward_times], kind="stable")
    for _ in range(surplus):
        chunk, stage = max(
            (place for place in model if counts[..., place[0], place[1]].sum() > (place in bound)),
            key=lambda place: int(counts[..., place[0], place[1]].sum()),
        )
        treatment = next(int(t) for t in order if counts[0, t, chunk, stage])
        counts[0, treatment, chunk, stage] -= 1
    return counts
