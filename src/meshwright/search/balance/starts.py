"""Placements to start from: even splits, with as much recomputation as each stage needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.estimate.split import even_split
from meshwright.search.balance.treatments import kinds_at, leading, treated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from meshwright.domain.balance import BalanceProblem

    Counts = NDArray[np.int64]

LESS_ON_ENDS = ((0, 1), (1, 1), (1, 2), (2, 1))
"""Layers taken from the first and the last place, which also hold the embedding and the output layer."""


def splits(problem: BalanceProblem) -> Iterator[Counts]:
    """Layers by chunk and stage to start from: the given ones, or even ones with a little less on the ends."""
    if problem.fixed_layers is not None:
        yield np.array(problem.fixed_layers, dtype=np.int64)
        return
    even = np.array(even_split(problem.layers, problem.stages, problem.chunks), dtype=np.int64)
    yield even
    for first, last in LESS_ON_ENDS:
        split = even.copy()
        flat = split.ravel()
        flat[0] -= first
        flat[-1] -= last
        middle = np.argsort(flat[1:-1], kind="stable")[: first + last] + 1
        if middle.size == first + last and min(flat[0], flat[-1]) >= 0:
            flat[middle] += 1
            yield split


def greedy(problem: BalanceProblem) -> Counts:
    """The splits to start from, each with the least recomputation that a step by step search finds for it.

    Shapes:  -> ``[body, treatment, chunk, stage, placement]``.
    """
    kinds = np.stack([kinds_at(problem, split) for split in splits(problem)], axis=-1)
    return treated(problem, leading(problem, kinds, 0, 0))


def led(problem: BalanceProblem, treatment: int, layers: int) -> Counts:
    """The splits to start from with so many leading layers of each chunk under a treatment."""
    kinds = np.stack([kinds_at(problem, split) for split in splits(problem)], axis=-1)
    return leading(problem, kinds, treatment, layers)


def leading_choices(problem: BalanceProblem) -> list[tuple[int, int]]:
    """Treatments and numbers of leading layers to try: from none to more than an even chunk has."""
    if problem.fixed_recompute is not None:
        name, layers = problem.fixed_recompute
        return [(problem.treatments.index(name), min(layers, problem.layers))]
    able = [t for t in range(1, len(problem.treatments)) if all(np.isfinite(body.backward_times[t]) for body in problem.bodies)]
    most = problem.layers if problem.fixed_layers is None else max(map(max, problem.fixed_layers))
    spread = min(most, 2 * -(-problem.layers // (problem.stages * problem.chunks)))
    return [(0, 0), *((t, k) for t in able for k in dict.fromkeys((*range(1, spread + 1), most)))]
