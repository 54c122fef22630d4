"""The mixed-integer programme of a balance: counts of layers, never single ones, so that alike layers are no symmetry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from msgspec import Struct

from meshwright.search.balance.lower import lockstep_pairs, pipeline_rows
from meshwright.search.balance.memory import activation_table, fixed_memory, held, static_table, transient_table
from meshwright.search.balance.rows import Expression, Rows
from meshwright.search.balance.times import backward_table, ends, positions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.domain.balance import BalanceProblem

    Counts = NDArray[np.int64]

Goal = Literal["slot", "pipeline", "lockstep", "memory"]
"""What is minimised: the steady slot; the lower bound of the whole pipeline; its time if all stages changed operations together;
what every bound of memory must grow by."""


class Solved(Struct, frozen=True, kw_only=True, eq=False):
    """An answer of the solver."""

    counts: Counts | None
    """None where it found none."""
    objective: float
    bound: float
    """No placement is better (proved)."""
    infeasible: bool
    """Proved that there is no placement."""


class Programme:
    """Variables and rows of one problem; objectives and limits are set when it is solved.

    Variables: x[body, treatment, place] layers; per stage the longest forward and backward of its chunks; the slot T; the pipeline
    Z; by how much the bounds must grow where the goal is memory. Times and memories are scaled to about one: the solver's
    tolerances are absolute.

    ``leading``: a treatment and how many leading layers of every chunk have it; all others keep everything.
    """

    def __init__(
        self, problem: BalanceProblem, *, goal: Goal, slot_limit: float | None = None, leading: tuple[int, int] | None = None
    ) -> None:
        self.problem, self.goal = problem, goal
        self.time_unit = _time_unit(problem)
        self.memory_unit = max(abs(bound) for bound in problem.memory_bounds)
        self.places = positions(problem)
        self.rows = Rows()
        treatments = len(problem.treatments)
        table = backward_table(problem)
        self.x = np.array([
            [[self.rows.variable(0.0, float(body.layers) if np.isfinite(table[b, t]) else 0.0, integer=True)
              for _ in self.places] for t in range(treatments)]
            for b, body in enumerate(problem.bodies)
        ])
        self._layers()
        if leading is not None:
            self._leading(*leading)
        self._order()
        self._first_layers()
        self._memory()
        if goal != "memory":
            self._times(slot_limit)

    def _chunk(self, place: int, values: NDArray[np.float64]) -> Expression:
        """Sum over bodies and treatments of x times a value, at one place."""
        return {
            int(self.x[b, t, place]): float(values[b, t])
            for b in range(self.x.shape[0]) for t in range(self.x.shape[1]) if np.isfinite(values[b, t]) and values[b, t]
        }

    def _layers(self) -> None:
        """Every layer stands somewhere; only the two ends of the model may be empty; what is fixed stays."""
        problem, ones = self.problem, np.ones(self.x.shape[:2])
        for b, body in enumerate(problem.bodies):
            self.rows.add({int(column): 1.0 for column in self.x[b].ravel()}, float(body.layers), float(body.layers))
        for place, (chunk, stage) in enumerate(self.places):
            if problem.fixed_layers is not None:
                count = float(problem.fixed_layers[chunk][stage])
                self.rows.add(self._chunk(place, ones), count, count)
            elif 0 < place < len(self.places) - 1:
                self.rows.add(self._chunk(place, ones), 1.0, None)

    def _leading(self, treatment: int, layers: int) -> None:
        """r = min(k, n) layers of every chunk under the treatment, where n stand on it, and none under any other.

        w = 1 where n >= k: r >= k w and r >= n - N (1 - w') with w' = w.
        """
        everything = float(self.problem.layers)
        for place in range(len(self.places)):
            for other in range(1, self.x.shape[1]):
                if other != treatment:
                    self.rows.add({int(column): 1.0 for column in self.x[:, other, place]}, 0.0, 0.0)
            if treatment == 0:
                continue
            recomputed = {int(column): 1.0 for column in self.x[:, treatment, place]}
            kept = {int(column): 1.0 for column in self.x[:, 0, place]}
            whole = self.rows.variable(0.0, 1.0, integer=True)
            self.rows.add(recomputed, None, float(layers))
            self.rows.add({**recomputed, whole: -float(layers)}, 0.0, None)
            self.rows.add({**kept, whole: -everything}, None, 0.0)

    def _order(self) -> None:
        """Bodies stand in their order: behind the place where one begins there is nothing of those before it.

        g[l, q] = 1 from the place on where body l begins: bodies l and later only where g = 1, earlier ones only where g was 0
        before.
        """
        bodies = self.problem.bodies
        for later in range(1, len(bodies)):
            begun = [self.rows.variable(0.0, 1.0, integer=True) for _ in self.places]
            after, before = (float(sum(body.layers for body in part)) for part in (bodies[later:], bodies[:later]))
            for place, flag in enumerate(begun):
                behind = {int(column): 1.0 for column in self.x[later:, :, place].ravel()}
                self.rows.add({**behind, flag: -after}, None, 0.0)
                if place:
                    self.rows.add({begun[place - 1]: 1.0, flag: -1.0}, None, 0.0)
                    ahead = {int(column): 1.0 for column in self.x[:later, :, place].ravel()}
                    self.rows.add({**ahead, begun[place - 1]: before}, None, before)

    def _first_layers(self) -> None:
        """Where bodies meet in a chunk, no layer is treated more heavily than one of a body before it (``as_lists_say``).

        z[l, t, q] = 1 where bodies from l on have treatment t or a heavier one: those before l then have no lighter one.
        """
        bodies = self.problem.bodies
        for later in range(1, len(bodies)):
            after, before = (float(sum(body.layers for body in part)) for part in (bodies[later:], bodies[:later]))
            for treatment in range(1, self.x.shape[1]):
                for place in range(len(self.places)):
                    heavy = self.rows.variable(0.0, 1.0, integer=True)
                    behind = {int(column): 1.0 for column in self.x[later:, treatment:, place].ravel()}
                    ahead = {int(column): 1.0 for column in self.x[:later, :treatment, place].ravel()}
                    self.rows.add({**behind, heavy: -after}, None, 0.0)
                    self.rows.add({**ahead, heavy: before}, None, before)

    def _memory(self) -> None:
        """Every stage stays under its bound at every moment of its order."""
        problem = self.problem
        activation, static, transient = activation_table(problem), static_table(problem), transient_table(problem)
        fixed, first_last = fixed_memory(problem), ends(problem)
        place_of = {place: index for index, place in enumerate(self.places)}
        over = self.rows.variable(0.0, None) if self.goal == "memory" else None
        if over is not None:
            self.rows.cost[over] = 1.0
        for stage, vectors in enumerate(held(problem)):
            working = self._working_set(stage, transient, [
                end.transient_memory
                for (home, _), end in zip(first_last, (problem.first, problem.last), strict=True) if home == stage
            ])
            for vector in vectors:
                row: Expression = dict(working)
                constant = float(fixed[stage])
                for chunk, flying in enumerate(vector):
                    row |= self._chunk(place_of[chunk, stage], static[:, None] + flying * activation)
                    for (home, own), end in zip(first_last, (problem.first, problem.last), strict=True):
                        constant += flying * end.activation_memory if (home, own) == (stage, chunk) else 0.0
                row = {column: value / self.memory_unit for column, value in row.items()}
                if over is not None:
                    row[over] = -1.0
                self.rows.add(row, None, (problem.memory_bounds[stage] - constant) / self.memory_unit)

    def _working_set(self, stage: int, transient: NDArray[np.float64], least: list[float]) -> Expression:
        """A variable above the working set of everything that stands on a stage."""
        floor = max(least, default=0.0)
        if not transient.any() and not floor:
            return {}
        size = self.rows.variable(floor / self.memory_unit, None)
        for (b, t), own in np.ndenumerate(transient):
            if own <= floor:
                continue
            layers = self.problem.bodies[b].layers
            there = self.rows.variable(0.0, 1.0, integer=True)
            standing = {int(self.x[b, t, q]): 1.0 for q, (_, home) in enumerate(self.places) if home == stage}
            self.rows.add({**standing, there: -float(layers)}, None, 0.0)
            self.rows.add({size: 1.0, there: -float(own) / self.memory_unit}, 0.0, None)
        return {size: self.memory_unit}

    def _times(self, slot_limit: float | None) -> None:
        """The slot above every pair of chunks of every stage, and the pipeline above its lower bounds."""
        problem, rows, unit = self.problem, self.rows, self.time_unit
        forward = np.repeat(np.array([[body.forward_time / unit] for body in problem.bodies]), self.x.shape[1], axis=1)
        backward = backward_table(problem) / unit
        weight = np.repeat(np.array([[body.weight_time / unit] for body in problem.bodies]), self.x.shape[1], axis=1)
        constant = np.zeros((3, len(self.places)))
        for place, where in enumerate(self.places):
            for key, end in zip(ends(problem), (problem.first, problem.last), strict=True):
                if (where[1], where[0]) == key:
                    constant[:, place] += end.forward_time, end.backward_time - end.weight_time, end.weight_time
        constant /= unit
        slot = rows.variable(0.0, None if slot_limit is None else slot_limit / unit)
        ahead = {stage: rows.variable(0.0, None) for stage in range(problem.stages)}
        behind = {stage: rows.variable(0.0, None) for stage in range(problem.stages)}
        for place, (_, stage) in enumerate(self.places):
            rows.add({**self._chunk(place, forward), ahead[stage]: -1.0}, None, -float(constant[0, place]))
            rows.add({**self._chunk(place, backward), behind[stage]: -1.0}, None, -float(constant[1:, place].sum()))
        for stage in range(problem.stages):
            rows.add({ahead[stage]: 1.0, behind[stage]: 1.0, slot: -1.0}, None, 0.0)
        if self.goal == "slot":
            rows.cost[slot] = 1.0
            return
        if self.goal == "lockstep":
            self._lockstep(forward, backward, constant)
            return
        pipeline = rows.variable(0.0, None)
        rows.cost[pipeline] = 1.0
        tables = (forward, backward - weight, weight)
        for amounts, hops in zip(*pipeline_rows(problem), strict=True):
            row: Expression = {pipeline: -1.0}
            for table, amount in zip(tables, amounts, strict=True):
                for place in np.flatnonzero(amount).tolist():
                    for column, value in self._chunk(place, table).items():
                        row[column] = row.get(column, 0.0) + float(amount[place]) * value
            rows.add(row, None, -float((amounts * constant).sum()) - hops * problem.hop_time / unit)

    def _lockstep(self, forward: NDArray[np.float64], backward: NDArray[np.float64], constant: NDArray[np.float64]) -> None:
        """The longest of each kind of step over all stages, as often as the middle stage takes it."""
        sizes = {"forward": (forward, constant[0]), "backward": (backward, constant[1] + constant[2])}
        place_of = {place: index for index, place in enumerate(self.places)}
        for (ahead, behind), number in lockstep_pairs(self.problem).items():
            step = self.rows.variable(0.0, None)
            self.rows.cost[step] = number
            for stage in range(self.problem.stages):
                row: Expression = {step: -1.0}
                least = 0.0
                for chunk, (table, ends_) in ((ahead, sizes["forward"]), (behind, sizes["backward"])):
                    if chunk is not None:
                        row |= {k: row.get(k, 0.0) + v for k, v in self._chunk(place_of[chunk, stage], table).items()}
                        least += float(ends_[place_of[chunk, stage]])
                self.rows.add(row, None, -least)

    def solve(
        self, time_limit_s: float, *, gap_ratio: float = 0.0, start: Counts | None = None, work: int | None = None
    ) -> Solved:
        """The best placement that HiGHS finds in its time, or with so much ``work`` (``Rows.solve``), on one core.

        Errors: none; what the solver gives up on is an answer without counts.
        """
        hint = None if start is None else self._hint(start)
        found = self.rows.solve(time_limit_s, gap_ratio=gap_ratio, start=hint, work=work)
        counts = None
        if found.values is not None:
            counts = np.zeros((*self.x.shape[:2], self.problem.chunks, self.problem.stages), dtype=np.int64)
            rounded = np.rint(found.values[self.x]).astype(np.int64)
            for place, (chunk, stage) in enumerate(self.places):
                counts[:, :, chunk, stage] = rounded[:, :, place]
        unit = self.memory_unit if self.goal == "memory" else self.time_unit
        return Solved(counts=counts, objective=found.objective * unit, bound=found.bound * unit, infeasible=found.infeasible)

    def _hint(self, counts: Counts) -> dict[int, float]:
        """A placement as values of the layers' variables; the solver completes the rest."""
        return {
            int(self.x[b, t, place]): float(counts[b, t, chunk, stage])
            for b in range(self.x.shape[0]) for t in range(self.x.shape[1]) for place, (chunk, stage) in enumerate(self.places)
        }


def _time_unit(problem: BalanceProblem) -> float:
    """The mean time of a layer, or of the ends: what times are scaled by."""
    work = sum(body.layers * (body.forward_time + min(body.backward_times)) for body in problem.bodies)
    ends_ = problem.first.forward_time + problem.first.backward_time + problem.last.forward_time + problem.last.backward_time
    return (work / problem.layers or ends_) or 1.0
