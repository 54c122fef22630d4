"""Local search: neighbours of a placement, the promising ones simulated together, until none is better."""

from __future__ import annotations

import time
from itertools import combinations, islice, permutations, product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from meshwright.search.balance.lower import lower_bounds
from meshwright.search.balance.memory import excess, stage_memory
from meshwright.search.balance.times import backward_table, chunk_times, simulated_times, slot_times
from meshwright.search.balance.treatments import as_lists_say, carried, kinds_at, leading, treated

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from meshwright.domain.balance import BalanceProblem

    Floats = NDArray[np.float64]
    Counts = NDArray[np.int64]
    Change = tuple[int, int, int, int, int]

BATCH = 256
"""Neighbours of one round that are simulated: those with the least lower bounds."""
MOST_CELLS = 8 * 2**20
"""Counts of all neighbours of a placement together; of larger pipelines layers are moved to nearby places alone."""
LEAST_GAIN = 1e-9
"""Relative improvement that counts as one."""


class Standing(NamedTuple):
    """A placement and how it compares: what exceeds the memory first, then simulated time, then recomputation, then memory."""

    excess: float
    simulated: float
    recomputed: float
    memory: float
    counts: Counts

    @property
    def key(self) -> tuple[float, float, float, float]:
        """Less is better."""
        return (self.excess, self.simulated, self.recomputed, self.memory)

    def beats(self, other: Standing) -> bool:
        """Better by more than rounding."""
        for mine, theirs in zip(self.key, other.key, strict=True):
            if abs(mine - theirs) > LEAST_GAIN * max(abs(mine), abs(theirs)):
                return mine < theirs
        return False


def standings(problem: BalanceProblem, columns: Counts, *, keep: int = BATCH, slot_limit: float | None = None) -> list[Standing]:
    """The best of many placements, best first: filtered by slot, memory and lower bounds, then simulated.

    Shapes:  ``[body, treatment, chunk, stage, placement]``.
    """
    if not columns.shape[-1]:
        return []
    times = chunk_times(problem, columns)
    slots = slot_times(times)
    if slot_limit is not None:
        short = np.flatnonzero(slots <= slot_limit)
        if not short.size:
            return []
        columns, slots, times = columns[..., short], slots[short], type(times)(*(each[..., short] for each in times))
    memory = stage_memory(problem, columns)
    over = excess(problem, memory)
    hopeful = np.lexsort((slots, lower_bounds(problem, times), over))[:keep]
    if over[hopeful[0]] == 0.0:
        hopeful = hopeful[over[hopeful] == 0.0]
    chosen = columns[..., hopeful]
    simulated = simulated_times(problem, type(times)(*(each[..., hopeful] for each in times)), short=True)
    longer = backward_table(problem)
    longer = np.where(np.isfinite(longer), longer - longer[:, :1], 0.0)
    recomputed = np.einsum("bt,bt...->...", longer, chosen.sum(axis=(2, 3)))
    found = [
        Standing(float(over[place]), float(simulated[i]), float(recomputed[i]), float(memory[:, place].max()), chosen[..., i])
        for i, place in enumerate(hopeful)
    ]
    return sorted(found, key=lambda each: each.key)


def climb(
    problem: BalanceProblem, start: Counts, *, deadline: float, rounds: int = 200, leading_of: tuple[int, int] | None = None,
    slot_limit: float | None = None,
) -> list[Standing]:
    """The placements met on the way from a start to a local optimum, best first; none where the start's slot exceeds the limit.

    ``leading_of``: treatment and number of leading layers where recomputation follows the split (rule ``first``).
    ``slot_limit``: placements with a longer slot are passed over.

    Holds:   stops at ``deadline`` (``time.perf_counter``) with the best so far.
    """
    begin = standings(problem, start[..., None], slot_limit=slot_limit)
    if not begin:
        return []
    here = begin[0]
    path = [here]
    for _ in range(rounds):
        if time.perf_counter() > deadline:
            break
        near = standings(problem, neighbours(problem, here.counts, leading_of), slot_limit=slot_limit)
        if not near or not near[0].beats(here):
            break
        here = near[0]
        path = [*near[:4], *path]
    return _different(path)


def kicked(problem: BalanceProblem, best: Counts, number: int) -> Counts:
    """A placement some moves away to climb from anew: layers moved at random, recomputation made to fit.

    Holds:   the same for the same number.
    """
    numbers = np.random.default_rng(number)
    totals = best.sum(axis=(0, 1))
    for _ in range(2 + number % 4):
        near = shifts(totals, MOST_CELLS // best.size)
        if not near.shape[-1]:
            break
        totals = near[..., int(numbers.integers(near.shape[-1]))]
    return treated(problem, carried(best[..., None], kinds_at(problem, totals)[..., None]))[..., 0]


def _different(found: Iterable[Standing]) -> list[Standing]:
    """Sorted, each placement once."""
    once = {each.counts.tobytes(): each for each in found}
    return sorted(once.values(), key=lambda each: each.key)


def neighbours(problem: BalanceProblem, counts: Counts, leading_of: tuple[int, int] | None) -> Counts:
    """Placements one move away: a layer elsewhere, another treatment of a layer, two treatments exchanged on a stage."""
    moved = [] if problem.fixed_layers is not None else [_shifted(problem, counts, leading_of)]
    if leading_of is None and problem.fixed_recompute is None:
        moved += [_retreated(problem, counts), _exchanged(counts)]
    if not moved:
        return counts[..., None][..., :0]
    columns = np.concatenate(moved, axis=-1)
    return columns if leading_of is not None else as_lists_say(problem, columns)


def shifts(totals: Counts, most: int) -> Counts:
    """Every split with one layer moved from a place to another; only the two ends of the model may become empty.

    ``most``: moves beyond which only those to nearby places are among them.

    Shapes:  ``[chunk, stage]`` -> ``[chunk, stage, move]``.
    """
    flat = totals.ravel()
    places = np.arange(flat.size)
    least = np.ones(flat.size, dtype=np.int64)
    least[[0, -1]] = 0
    source, target = (each.ravel() for each in np.meshgrid(places, places, indexing="ij"))
    reach = flat.size if flat.size**2 <= most else max(1, most // (2 * flat.size))
    able = (source != target) & (flat[source] > least[source]) & (np.abs(source - target) <= reach)
    source, target = source[able], target[able]
    result = np.repeat(flat[:, None], source.size, axis=1)
    moves = np.arange(source.size)
    result[source, moves] -= 1
    result[target, moves] += 1
    return result.reshape(*totals.shape, -1)


def _shifted(problem: BalanceProblem, counts: Counts, leading_of: tuple[int, int] | None) -> Counts:
    """A layer moved, and recomputation made to fit: as it was as far as it can be, and all anew."""
    kinds = kinds_at(problem, shifts(counts.sum(axis=(0, 1)), MOST_CELLS // counts.size))
    if leading_of is not None:
        return leading(problem, kinds, *leading_of)
    kept = carried(counts[..., None], kinds)
    if len(problem.treatments) == 1:
        return kept
    return np.concatenate([kept, treated(problem, kept)], axis=-1)


def _retreated(problem: BalanceProblem, counts: Counts) -> Counts:
    """One layer treated otherwise."""
    table = backward_table(problem)
    moves = [
        (body, before, after, chunk, stage)
        for body, before, chunk, stage in np.argwhere(counts > 0)
        for after in range(counts.shape[1]) if after != before and np.isfinite(table[body, after])
    ]
    return _changed(counts, moves, ())


def _exchanged(counts: Counts) -> Counts:
    """Two layers of one stage, in different chunks, exchange their treatments."""
    pairs = list(islice(_exchanges(counts), MOST_CELLS // counts.size))
    return _changed(counts, [one for one, _ in pairs], [other for _, other in pairs])


def _exchanges(counts: Counts) -> Iterator[tuple[Change, Change]]:
    bodies, treatments, chunks, stages = counts.shape
    for body, stage in product(range(bodies), range(stages)):
        for one, other in combinations(range(chunks), 2):
            for t, u in permutations(range(treatments), 2):
                if counts[body, t, one, stage] and counts[body, u, other, stage]:
                    yield (body, t, u, one, stage), (body, u, t, other, stage)


def _changed(counts: Counts, *several: Iterable[Change]) -> Counts:
    """Columns with changes (body, before, after, chunk, stage) applied: one of each list to a column."""
    lists = [list(moves) for moves in several if moves]
    size = len(lists[0]) if lists else 0
    result = np.repeat(counts[..., None], size, axis=-1)
    for moves in lists:
        body, before, after, chunk, stage = np.array(moves, dtype=np.int64).T
        column = np.arange(size)
        result[body, before, chunk, stage, column] -= 1
        result[body, after, chunk, stage, column] += 1
    return result
