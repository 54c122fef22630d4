"""A balance in a few hundredths of a second, for a search with many pipelines to fill: fixed budgets, so always the same answer.

Where ``balance`` simulates every neighbour, here a linear lower bound of the pipeline and its steps in lockstep lead, and only the
last few placements are simulated.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from itertools import product
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from meshwright.domain.balance import Placement
from meshwright.search.balance.climb import neighbours
from meshwright.search.balance.lower import lockstep_pairs, lower_bounds
from meshwright.search.balance.memory import activation_table, kept_memory, stage_memory, working_set
from meshwright.search.balance.starts import leading_choices
from meshwright.search.balance.times import ChunkTimes, chunk_times, positions, several_times, slot_times
from meshwright.search.balance.treatments import kinds_at, leading, treated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.domain.balance import BalanceProblem

    Bools = NDArray[np.bool_]
    Floats = NDArray[np.float64]
    Counts = NDArray[np.int64]
    Lead = tuple[int, int]

MOVES = 16
"""Moves of one layer at most from each start."""
MOST_PLACES = 12
"""Chunks of all stages together up to which layers are moved one by one where stages have several: there are too many moves beyond,
and nothing short of a simulation tells them apart."""
KEPT = 4
"""Placements kept of each start and each move."""
SIMULATED = 12
"""Placements that are simulated in the end."""
STARTS = 3
"""Starts that are followed: numbers of leading recomputed layers, where a framework has one for all chunks."""
FEWER_FIRST, FEWER_LAST = 3, 5
"""Up to so many layers less than elsewhere stand beside the embedding and the output layer."""
OFFSETS = 12
"""Places at most where the run of chunks with one layer more begins."""


class _Column(NamedTuple):
    """Placements side by side: about how long each takes, what exceeds its memory, its chunks' times, its stages' memory."""

    value: Floats
    excess: Floats
    times: ChunkTimes
    memory: Floats

    def order(self) -> Counts:
        """Best first."""
        return np.lexsort((self.value, self.excess))


def quick_placements(problem: BalanceProblem, *, keep: int = 1) -> tuple[Placement, ...]:
    """The best few placements that were met, by simulation; none where nothing fits.

    Units:   the problem's.
    Holds:   deterministic; no better than ``balance``; pipelines of more than ``times.ROUNDS`` rounds are continued from there.
    """
    return several_placements([problem], keep=keep)[0]


def several_placements(problems: Sequence[BalanceProblem], *, keep: int = 1) -> list[tuple[Placement, ...]]:
    """The best few placements of several problems, whose pipelines are simulated side by side.

    Units:   the problems'.
    Source:  ``quick_placements``.
    """
    met = [_met(problem) for problem in problems]
    asked = [(problem, each.times) for problem, each in zip(problems, met, strict=True) if each is not None]
    spans = iter(several_times(asked, short=True))
    return [() if each is None else _best(each, next(spans), keep) for each in met]


class _Met(NamedTuple):
    """Placements that fit and promise most, side by side."""

    columns: Counts
    times: ChunkTimes
    memory: Floats


def _met(problem: BalanceProblem) -> _Met | None:
    """Those that are worth a simulation; None where nothing fits."""
    starts = _starts(problem)
    follow = problem.chunks == 1 or problem.stages * problem.chunks <= MOST_PLACES
    columns = _once(np.concatenate([_descended(problem, start, lead) if follow else start for start, lead in starts], axis=-1))
    judged = _judged(problem, columns)
    able = np.flatnonzero(judged.excess == 0.0)
    if not able.size:
        return None
    able = able[np.argsort(judged.value[able], kind="stable")[:SIMULATED]]
    return _Met(columns[..., able], ChunkTimes(*(each[..., able] for each in judged.times)), judged.memory[:, able])


def _best(met: _Met, simulated: Floats, keep: int) -> tuple[Placement, ...]:
    """The first few by simulation."""
    slots = slot_times(met.times)
    return tuple(
        Placement(
            counts=met.columns[..., number], slot_time=float(slots[number]), simulated_time=float(simulated[number]),
            stage_memory=tuple(met.memory[:, number].tolist()),
        )
        for number in np.argsort(simulated, kind="stable")[:keep]
    )


def splits(problem: BalanceProblem) -> Counts:
    """Splits worth a look, ``[chunk, stage, split]``: as even as possible, with fewer layers at the ends.

    A run of chunks has one layer more than the others, anywhere in the model.
    """
    if problem.fixed_layers is not None:
        return np.array(problem.fixed_layers, dtype=np.int64)[..., None]
    places = positions(problem)
    rows = _rows(problem.layers, len(places))
    result = np.zeros((problem.chunks, problem.stages, rows.shape[1]), dtype=np.int64)
    result[[chunk for chunk, _ in places], [stage for _, stage in places]] = rows
    return result


@lru_cache(maxsize=64)
def _rows(layers: int, places: int) -> Counts:
    """Layers of every place of the model, ``[place, split]``: some fewer at its ends, and a run of places with one more."""
    if places < 3:
        first = np.arange(layers + 1) if places == 2 else np.array([layers])
        return np.stack([first, layers - first][:places])
    found = []
    for fewer_first, fewer_last in product(range(FEWER_FIRST + 1), range(FEWER_LAST + 1)):
        base, extra = divmod(layers + fewer_first + fewer_last, places)
        if base < max(fewer_first, fewer_last, 1):
            continue
        starts = places - extra + 1
        offsets, place = np.arange(starts)[:: -(-starts // OFFSETS)], np.arange(places)[:, None]
        rows = base + ((place >= offsets) & (place < offsets + extra)).astype(np.int64)
        rows[0] -= fewer_first
        rows[-1] -= fewer_last
        found.append(rows)
    return _once(np.concatenate(found, axis=1))


def _once(columns: Counts) -> Counts:
    """Each column once, in their order."""
    flat = columns.reshape(prod(columns.shape[:-1]), -1)
    flat = flat[:, np.lexsort(flat[::-1])]
    new = np.ones(flat.shape[1], dtype=np.bool_)
    new[1:] = (flat[:, 1:] != flat[:, :-1]).any(axis=0)
    return flat[:, new].reshape(*columns.shape[:-1], -1)


def _starts(problem: BalanceProblem) -> list[tuple[Counts, Lead | None]]:
    """Placements to start from, best first, each with the leading layers that keep their treatment on the way."""
    kinds = kinds_at(problem, splits(problem))
    if problem.recompute_rule == "any" and problem.fixed_recompute is None:
        columns = treated(problem, leading(problem, kinds, 0, 0))
        return [(columns[..., _judged(problem, columns).order()[:KEPT]], None)]
    found: list[tuple[float, float, int, Counts, Lead]] = []
    waiting = dict.fromkeys(range(len(problem.treatments)), kinds)
    tried = leading_choices(problem)
    floors: dict[int, _Floor] = {}
    skipped: list[int] = []

    def judge(place: int, columns: Counts) -> Bools:
        judged = _judged(problem, columns)
        fits, order = judged.excess == 0.0, judged.order()
        order = order[: max(1, min(KEPT, int(fits.sum())))]
        found.append((float(judged.excess[order[0]]), float(judged.value[order[0]]), place, columns[..., order], tried[place]))
        return np.asarray(fits)

    for place, (treatment, layers) in enumerate(tried):
        if not waiting[treatment].shape[-1]:
            continue
        if layers and treatment not in floors:
            numbers = [number for other, number in tried if other == treatment]
            floors[treatment] = _Floor.of(problem, waiting[treatment], treatment, numbers)
        if layers and layers < floors[treatment].fewest:
            skipped.append(place)
            continue
        fits = judge(place, leading(problem, waiting[treatment], treatment, layers))
        # What fits with fewer layers under a treatment is no better with more.
        rest = waiting[treatment][..., ~fits]
        waiting |= {treatment: rest} if layers else dict.fromkeys(waiting, rest)
    for place in reversed(skipped):
        floor, layers = floors[tried[place][0]], tried[place][1]
        others = sorted(excess for excess, *_ in found)[:STARTS]
        if len(others) < STARTS or (others[-1] > 0.0 and floor.excess(layers) <= others[-1]):
            judge(place, floor.columns(layers))
    found.sort(key=lambda each: each[:3])
    return [(columns, choice) for _, _, _, columns, choice in found[:STARTS]]


class _Floor(NamedTuple):
    """What placements with so many leading layers under a treatment hold at least, falling with each such layer."""

    problem: BalanceProblem
    kinds: Counts
    treatment: int
    fewest: int
    """With fewer leading layers no placement fits."""

    @classmethod
    def of(cls, problem: BalanceProblem, kinds: Counts, treatment: int, numbers: Sequence[int]) -> _Floor:
        """The floor of a treatment for rising numbers of layers; nothing is ruled out where layers keep more under it."""
        floor, kept = cls(problem, kinds, treatment, 0), activation_table(problem)
        if (kept[:, treatment] > kept[:, 0]).any():
            return floor
        place = bisect_left(numbers, True, key=lambda layers: floor.excess(layers) <= 0.0)
        return floor._replace(fewest=numbers[place] if place < len(numbers) else numbers[-1] + 1)

    def columns(self, layers: int) -> Counts:
        """The placements."""
        return leading(self.problem, self.kinds, self.treatment, layers)

    def excess(self, layers: int) -> float:
        """What the best of them exceeds the memory at least: with no working set but that of the layers ahead.

        Units:   the problem's.
        """
        counts, ahead = self.columns(layers), self.columns(1)
        ahead[:, 0] = 0
        needed = kept_memory(self.problem, counts) + working_set(self.problem, ahead)
        bounds = np.array(self.problem.memory_bounds)[:, None] * (1.0 + 1e-9)
        return float(np.maximum(needed - bounds, 0.0).sum(axis=0).min())


def _judged(problem: BalanceProblem, columns: Counts) -> _Column:
    """Every placement's figures."""
    times = chunk_times(problem, columns)
    value, memory = lower_bounds(problem, times), stage_memory(problem, columns)
    if problem.chunks > 1:
        value = np.maximum(value, _lockstep(problem, times))
    bounds = np.array(problem.memory_bounds)[:, None]
    return _Column(value, np.maximum(memory - bounds, 0.0).sum(axis=0), times, memory)


def _lockstep(problem: BalanceProblem, times: ChunkTimes) -> Floats:
    """The pipeline if all stages kept step with the one in the middle: its pairs of a forward and a backward, each as long as the
    slowest stage needs for it."""
    idle = np.zeros_like(times.forward[:, :1])
    forward, backward = (np.concatenate([each, idle], axis=1) for each in (times.forward, times.backward))
    total = np.zeros(forward.shape[2])
    for (ahead, behind), number in lockstep_pairs(problem).items():
        both = forward[:, -1 if ahead is None else ahead] + backward[:, -1 if behind is None else behind]
        total += number * both.max(axis=0)
    return total


def _descended(problem: BalanceProblem, starts: Counts, lead: Lead | None) -> Counts:
    """The placements on the way down from the first of some starts, with the best neighbours of each, as columns."""
    here, met = starts[..., :1], [starts]
    judged = _judged(problem, here)
    reached = (float(judged.excess[0]), float(judged.value[0]))
    for _ in range(MOVES):
        near = neighbours(problem, here[..., 0], lead)
        if not near.shape[-1]:
            break
        judged = _judged(problem, near)
        order = judged.order()
        met.append(near[..., order[:KEPT]])
        first = (float(judged.excess[order[0]]), float(judged.value[order[0]]))
        if first >= (reached[0], reached[1] * (1.0 - 1e-9)):
            break
        here, reached = near[..., order[:1]], first
    return np.concatenate(met, axis=-1)
