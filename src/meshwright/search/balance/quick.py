"""A balance in a few hundredths of a second, for a search with many pipelines to fill: fixed budgets, so always the same answer.

Where ``balance`` simulates every neighbour, here a linear lower bound of the pipeline and its steps in lockstep lead, and only the
last few placements are simulated.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import accumulate, groupby, product
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from msgspec.structs import replace

from meshwright.domain.balance import Placement
from meshwright.search.balance.climb import neighbours
from meshwright.search.balance.lower import lockstep_pairs, lower_bounds
from meshwright.search.balance.memory import stage_memory
from meshwright.search.balance.starts import leading_choices
from meshwright.search.balance.times import ChunkTimes, chunk_times, positions, several_times, slot_times
from meshwright.search.balance.treatments import kinds_at, leading, treated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.domain.balance import BalanceProblem

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


class _Judged(NamedTuple):
    """Placements side by side: about how long each takes, what exceeds its memory, its chunks' times, its stages' memory."""

    counts: Counts
    value: Floats
    excess: Floats
    times: ChunkTimes
    memory: Floats

    def order(self) -> Counts:
        """Best first."""
        return np.lexsort((self.value, self.excess))

    def of(self, chosen: Counts | slice) -> _Judged:
        """Some of them."""
        times = ChunkTimes(*(each[..., chosen] for each in self.times))
        return _Judged(self.counts[..., chosen], self.value[chosen], self.excess[chosen], times, self.memory[..., chosen])

    @classmethod
    def together(cls, several: Sequence[_Judged]) -> _Judged:
        """All of several."""
        if len(several) == 1:
            return several[0]
        counts, value, excess, times, memory = zip(*several, strict=True)
        joined = ChunkTimes(*(np.concatenate(each, axis=-1) for each in zip(*times, strict=True)))
        return cls(np.concatenate(counts, axis=-1), np.concatenate(value), np.concatenate(excess), joined,
                   np.concatenate(memory, axis=-1))


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


def _met(problem: BalanceProblem) -> _Judged | None:
    """Those that fit and promise most, which are worth a simulation; None where nothing fits."""
    follow = problem.chunks == 1 or problem.stages * problem.chunks <= MOST_PLACES
    met = _Judged.together([_descended(problem, start, lead) if follow else start for start, lead in _starts(problem)])
    met = met.of(_once(met.counts))
    able = np.flatnonzero(met.excess == 0.0)
    return met.of(able[np.argsort(met.value[able], kind="stable")[:SIMULATED]]) if able.size else None


def _best(met: _Judged, simulated: Floats, keep: int) -> tuple[Placement, ...]:
    """The first few by simulation."""
    slots = slot_times(met.times)
    return tuple(
        Placement(
            counts=met.counts[..., number], slot_time=float(slots[number]), simulated_time=float(simulated[number]),
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
    rows = np.concatenate(found, axis=1)
    return rows[:, _once(rows)]


def _once(columns: Counts) -> Counts:
    """The numbers of columns that are all different, in their order."""
    flat = columns.reshape(prod(columns.shape[:-1]), -1)
    order = np.lexsort(flat[::-1])
    flat = flat[:, order]
    new = np.ones(flat.shape[1], dtype=np.bool_)
    new[1:] = (flat[:, 1:] != flat[:, :-1]).any(axis=0)
    return order[new]


def _starts(problem: BalanceProblem) -> list[tuple[_Judged, Lead | None]]:
    """Placements to start from, best first, each with the leading layers that keep their treatment on the way."""
    kinds = kinds_at(problem, splits(problem))
    if problem.recompute_rule == "any" and problem.fixed_recompute is None:
        judged = _judged(problem, treated(problem, leading(problem, kinds, 0, 0)))
        return [(judged.of(judged.order()[:KEPT]), None)]
    led = _hopeful(_led(problem, kinds.shape[-1]))
    judged = _judged(problem, np.concatenate([leading(problem, kinds[..., each.splits], *each.lead) for each in led], axis=-1))
    found = []
    for each, end in zip(led, accumulate(each.splits.size for each in led), strict=True):
        own = judged.of(slice(end - each.splits.size, end))
        first = own.of(own.order()[: KEPT if each.excess == 0.0 else 1])
        found.append(((float(first.excess[0]), float(first.value[0]), each.place), first, each.lead))
    found.sort(key=lambda each: each[0])
    return [(first, lead) for _, first, lead in found[:STARTS]]


class _Led(NamedTuple):
    """The splits that hold least with so many leading layers under a treatment: all that fit, where one does."""

    excess: float
    place: int
    """Among the choices that are tried."""
    lead: Lead
    splits: Counts
    """Their numbers."""


def _led(problem: BalanceProblem, number_of_splits: int) -> list[_Led]:
    """Of each choice the splits that hold least; of a treatment all numbers of layers are looked at together.

    Holds:   what fits with fewer layers under a treatment is no better with more, nor under any where it fits without.
    """
    found: list[_Led] = []
    unbounded = replace(problem, memory_bounds=())
    waiting = np.ones((len(problem.treatments), number_of_splits), dtype=np.bool_)
    for treatment, group in groupby(enumerate(leading_choices(problem)), key=lambda each: each[1][0]):
        if not waiting[treatment].any():
            continue
        choices = list(group)
        over = _excess(problem, _memory_led(unbounded, treatment, tuple(layers for _, (_, layers) in choices)))
        for number, (place, lead) in enumerate(choices):
            left = np.flatnonzero(waiting[treatment])
            if not left.size:
                break
            least = over[left, number].min()
            first = left[over[left, number] == least]
            found.append(_Led(float(least), place, lead, first))
            if least == 0.0:
                waiting[treatment if lead[1] else ..., first] = False
    return found


@lru_cache(maxsize=32)
def _memory_led(problem: BalanceProblem, treatment: int, layers: tuple[int, ...]) -> Floats:
    """What stages hold under every split with so many leading layers under a treatment, ``[stage, split, number]``; a problem is
    asked about again under other bounds."""
    counts = leading(problem, kinds_at(problem, splits(problem))[..., None], treatment, np.array(layers))
    return stage_memory(problem, counts)


def _hopeful(led: list[_Led]) -> list[_Led]:
    """Those that can be among the first few, whatever time they take."""
    enough = sorted(each.excess for each in led)[:STARTS][-1]
    return [each for each in led if each.excess <= enough]


def _excess(problem: BalanceProblem, memory: Floats) -> Floats:
    """How much the stages exceed their bounds, summed over them."""
    bounds = np.array(problem.memory_bounds).reshape(-1, *(1,) * (memory.ndim - 1))
    return np.asarray(np.maximum(memory - bounds, 0.0).sum(axis=0))


def _judged(problem: BalanceProblem, counts: Counts) -> _Judged:
    """Every placement's figures."""
    times = chunk_times(problem, counts)
    value, memory = lower_bounds(problem, times), stage_memory(problem, counts)
    if problem.chunks > 1:
        value = np.maximum(value, _lockstep(problem, times))
    return _Judged(counts, value, _excess(problem, memory), times, memory)


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


def _descended(problem: BalanceProblem, starts: _Judged, lead: Lead | None) -> _Judged:
    """The placements on the way down from the first of some starts, with the best neighbours of each."""
    here, met = starts.of(slice(1)), [starts]
    for _ in range(MOVES):
        near = neighbours(problem, here.counts[..., 0], lead)
        if not near.shape[-1]:
            break
        judged = _judged(problem, near)
        best = judged.of(judged.order()[:KEPT])
        met.append(best)
        if (best.excess[0], best.value[0]) >= (here.excess[0], here.value[0] * (1.0 - 1e-9)):
            break
        here = best.of(slice(1))
    return _Judged.together(met)
