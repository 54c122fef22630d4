"""The most layers of one body that a stage can hold within a slot: every way that matters, without a solver.

A stage is within T if for some cap Fc of its forwards every chunk's forward is under Fc and every backward under T - Fc. Given both
caps, a chunk of n layers has one best filling: the least activation whose backward fits. So the ways are the caps (as many as
layers of a chunk), the working sets that are allowed, and the numbers of layers of each chunk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from meshwright.search.balance.memory import activation_table, fixed_memory, held, transient_table
from meshwright.search.balance.times import backward_table, ends

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.domain.balance import BalanceProblem

    Counts = NDArray[np.int64]
    Floats = NDArray[np.float64]

ROUNDING = 1e-9
"""Relative: times and memory within it of a limit are under it."""


class _Allowed(NamedTuple):
    """Treatments whose working set is at most ``size``."""

    size: float
    treatments: Counts
    backward: Floats
    activation: Floats


class _Ways(NamedTuple):
    """Ways to treat n layers, by rising backward: the least activation up to each, and the counts that have it."""

    backward: Floats
    activation: Floats
    counts: Counts


class Fullest:
    """The fullest fillings of the stages of one problem (one body, every chunk free to recompute)."""

    def __init__(self, problem: BalanceProblem, *, alone: bool = False) -> None:
        body = problem.bodies[0]
        self.problem, self.layer_forward, self.layer_static = problem, body.forward_time, body.static_memory
        shape = (problem.stages, problem.chunks)
        self.forward, self.backward, self.activation = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        self.working = np.zeros(problem.stages)
        self.least = np.full(shape, 0 if alone else 1, dtype=np.int64)
        for (stage, chunk), end in zip(ends(problem), (problem.first, problem.last), strict=True):
            self.forward[stage, chunk] += end.forward_time
            self.backward[stage, chunk] += end.backward_time
            self.activation[stage, chunk] += end.activation_memory
            self.working[stage] = max(self.working[stage], end.transient_memory)
            self.least[stage, chunk] = 0
        self.held, self.fixed = held(problem), fixed_memory(problem)
        self.allowed = _allowed(problem)
        self._known: dict[tuple[int, int], _Ways] = {}

    def most(self, stage: int, slot: float) -> tuple[int, Counts | None]:
        """Most layers within a slot, and their counts ``[treatment, chunk]``; (-1, None) where not even the least fits."""
        best, counts, limit = -1, None, slot * (1.0 + ROUNDING)
        for cap in self._caps(stage, limit):
            for number in range(len(self.allowed)):
                found = self._within(stage, number, cap, limit - cap, best)
                if found is not None:
                    best, counts = found
        return best, counts

    def _caps(self, stage: int, limit: float) -> list[float]:
        """Forwards that the longest chunk can have, those first that leave room for most layers."""
        shortest = min(each.backward.min() for each in self.allowed)
        most = self.problem.layers
        if self.layer_forward + shortest > 0.0:
            most = min(most, int(limit / (self.layer_forward + shortest)) + 1)
        caps = {layers * self.layer_forward + float(each) for each in self.forward[stage] for layers in range(most + 1)}
        return sorted((cap for cap in caps if cap <= limit), reverse=True)

    def _within(self, stage: int, number: int, forward: float, backward: float, best: int) -> tuple[int, Counts] | None:
        """More layers than ``best`` under caps of forward and backward, with so large a working set; None where there are none."""
        rows: list[Floats] = []
        for chunk in range(self.problem.chunks):
            row = self._least_activations(stage, number, chunk, forward, backward)
            if len(row) <= self.least[stage, chunk]:
                return None
            rows.append(np.array(row))
        if sum(len(row) - 1 for row in rows) <= best:
            return None
        grid = np.meshgrid(*(np.arange(low, len(row)) for low, row in zip(self.least[stage], rows, strict=True)), indexing="ij")
        layers = np.stack([each.ravel() for each in grid])
        total = layers.sum(axis=0)
        layers, total = layers[:, total > best], total[total > best]
        kept = np.stack([row[each] for row, each in zip(rows, layers, strict=True)])
        problem = self.problem
        memory = (self.held[stage] @ kept).max(axis=0) + total * self.layer_static
        memory += self.fixed[stage] + np.maximum(np.where(total > 0, self.allowed[number].size, 0.0), self.working[stage])
        bound = problem.memory_bounds[stage]
        fits = memory <= bound + ROUNDING * max(abs(bound), 1.0)
        if not fits.any():
            return None
        chosen = int(np.argmax(np.where(fits, total, -1)))
        counts = np.zeros((len(problem.treatments), problem.chunks), dtype=np.int64)
        for chunk, count in enumerate(layers[:, chosen]):
            ways = self._ways(number, int(count))
            place = self._place(ways, stage, chunk, backward)
            counts[self.allowed[number].treatments, chunk] = ways.counts[place]
        return int(total[chosen]), counts

    def _least_activations(self, stage: int, number: int, chunk: int, forward: float, backward: float) -> list[float]:
        """What a chunk keeps at least with 0, 1, 2, .. layers, as far as they fit under the caps."""
        row: list[float] = []
        end = float(self.forward[stage, chunk])
        while len(row) <= self.problem.layers and len(row) * self.layer_forward + end <= forward * (1.0 + ROUNDING):
            ways = self._ways(number, len(row))
            place = self._place(ways, stage, chunk, backward)
            if place < 0:
                break
            row.append(float(ways.activation[place] + self.activation[stage, chunk]))
        return row

    def _place(self, ways: _Ways, stage: int, chunk: int, backward: float) -> int:
        room = backward - self.backward[stage, chunk]
        return int(np.searchsorted(ways.backward, room + ROUNDING * abs(backward), side="right")) - 1

    def _ways(self, number: int, layers: int) -> _Ways:
        if (number, layers) not in self._known:
            allowed = self.allowed[number]
            counts = _shares(layers, allowed.backward.size)
            backward, activation = counts @ allowed.backward, counts @ allowed.activation
            order = np.lexsort((activation, backward))
            backward, activation, counts = backward[order], activation[order], counts[order]
            better = np.concatenate(([True], activation[1:] < np.minimum.accumulate(activation)[:-1]))
            self._known[number, layers] = _Ways(backward[better], activation[better], counts[better])
        return self._known[number, layers]


def _allowed(problem: BalanceProblem) -> list[_Allowed]:
    """Treatments by the working set that they need at most: for every size of it, those that stay under it."""
    backward, activation, transient = (table(problem)[0] for table in (backward_table, activation_table, transient_table))
    possible = np.isfinite(backward)
    found = []
    for size in sorted(set(transient[possible].tolist())):
        chosen = np.flatnonzero(possible & (transient <= size))
        found.append(_Allowed(size, chosen, backward[chosen], activation[chosen]))
    return found


def _shares(total: int, kinds: int) -> Counts:
    """Every way to share a number among kinds, ``[way, kind]``."""
    if kinds == 1:
        return np.array([[total]], dtype=np.int64)
    return np.concatenate([np.insert(_shares(total - head, kinds - 1), 0, head, axis=1) for head in range(total + 1)])
