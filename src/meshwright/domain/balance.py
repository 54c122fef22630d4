"""Stage balance: what stands in a pipeline, and where an answer puts it. Times and memories are in the units of whoever asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from meshwright.value import Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Counts = NDArray[np.int64]
    """Layers by body, treatment, chunk and stage: ``[body, treatment, chunk, stage]``."""
    Grid = tuple[tuple[int, ...], ...]
    """Counts by chunk and stage, ``[chunk][stage]``."""

PROVED = 1e-5
"""A gap below this is rounding of the solver."""
Status = Literal["optimal", "gap"]
Objective = Literal["slot", "simulated"]
"""``slot``: of the placements with the shortest slot found, the one that simulates best; ``simulated``: of all placements."""
RecomputeRule = Literal["any", "first"]
"""``any``: each chunk of each stage has its own counts; ``first``: the same number of leading layers in every chunk (Megatron)."""


class Body(Value, frozen=True, kw_only=True):
    """Alike layers that stand in a row; a model is one body, or several in their order (dense layers, then mixtures)."""

    name: str = "body"
    layers: int
    forward_time: float
    """Of one layer and one micro-batch."""
    backward_times: tuple[float, ...]
    """Whole backward of one layer by treatment of the problem, what is recomputed included; infinite where a body has no such."""
    weight_time: float = 0.0
    """Part of the backward that may wait (zero bubble)."""
    static_memory: float = 0.0
    """Parameters, gradients and optimizer states of one layer."""
    activation_memory: tuple[float, ...] = ()
    """What one layer keeps for one micro-batch, by treatment; empty: nothing."""
    transient_memory: tuple[float, ...] = ()
    """Working set while one of the layers runs, by treatment; empty: none."""


class End(Value, frozen=True, kw_only=True):
    """What stands beside the layers on the first or the last chunk: the embedding; the output layer, the loss, and with them
    multi-token prediction."""

    forward_time: float = 0.0
    backward_time: float = 0.0
    weight_time: float = 0.0
    static_memory: float = 0.0
    activation_memory: float = 0.0
    """Kept for each micro-batch in flight on its chunk."""
    transient_memory: float = 0.0


class BalanceProblem(Value, frozen=True, kw_only=True):
    """A pipeline to be filled: bodies in order between two ends, treatments to choose from, and the memory of each stage.

    Times are per micro-batch (per split of it under ``sequence_splits``, where micro-batches are counted in splits, too).
    """

    stages: int
    chunks: int = 1
    microbatches: int
    schedule: str = "1f1b"
    """A name of ``perf.schedules.ORDERS``."""
    sequence_splits: int = 1
    treatments: tuple[str, ...] = ("none",)
    """Ways of recomputing a layer; the first keeps everything."""
    bodies: tuple[Body, ...]
    first: End = End()
    last: End = End()
    constant_memory: tuple[float, ...] = ()
    """On each stage whatever it holds; empty: none."""
    memory_bounds: tuple[float, ...]
    """What each stage may hold."""
    hop_time: float = 0.0
    """One activation, or its gradient, to the next stage."""
    recompute_rule: RecomputeRule = "any"
    fixed_layers: Grid | None = None
    """A split that is not to be touched: only recomputation is chosen."""
    fixed_recompute: tuple[str, int] | None = None
    """Recomputation that is not to be touched: a treatment and how many leading layers of each chunk have it."""

    @property
    def layers(self) -> int:
        """Layers of all bodies."""
        return sum(body.layers for body in self.bodies)


class BubbleSplit(Value, frozen=True, kw_only=True):
    """Why the pipeline is longer than ideal, each relative to the ideal work of a stage (all stages alike, nothing recomputed)."""

    ideal_ratio: float
    """(P - 1) / (m V)."""
    imbalance_ratio: float
    recompute_ratio: float
    communication_ratio: float

    @property
    def total_ratio(self) -> float:
        """All of it."""
        return self.ideal_ratio + self.imbalance_ratio + self.recompute_ratio + self.communication_ratio


class Placement(Value, frozen=True, kw_only=True, eq=False):
    """Where layers stand, and what it costs by the problem's own objective and by event simulation."""

    counts: Counts
    slot_time: float
    """Longest forward plus backward of any two chunks of one stage, with the ends: a steady slot of the schedule."""
    simulated_time: float
    """Whole pipeline of one step by event simulation."""
    stage_memory: tuple[float, ...]

    @property
    def layers(self) -> Grid:
        """Layers by chunk and stage."""
        return _grid(self.counts.sum(axis=(0, 1)))

    def treated(self, treatment: int) -> Grid:
        """Layers under one treatment by chunk and stage."""
        return _grid(self.counts[:, treatment].sum(axis=0))


class Balance(Value, frozen=True, kw_only=True, eq=False):
    """The answer, and how sure it is."""

    problem: BalanceProblem
    objective: Objective
    best: Placement
    others: tuple[Placement, ...] = ()
    """Next best under the objective, all different."""
    faster: Placement | None = None
    """What simulates faster with a longer slot, where the objective is the slot and there is such."""
    slot_found: float
    """The shortest slot of any placement found."""
    slot_bound: float
    """No placement has a shorter slot (proved)."""
    simulated_bound: float
    """No placement simulates faster (proved)."""
    status: Status
    """``optimal``: ``slot_found`` is proved the shortest; ``gap``: it is not further than ``gap_ratio`` from the shortest."""
    gap_ratio: float
    bubble: BubbleSplit
    solve_s: float

    @property
    def answer_gap_ratio(self) -> float:
        """Under its objective no placement is further ahead of ``best`` than this (proved); 0: it is optimal."""
        of_slot = (self.slot_bound, self.best.slot_time)
        bound, value = of_slot if self.objective == "slot" else (self.simulated_bound, self.best.simulated_time)
        gap = 1.0 - bound / value if value > 0.0 else 0.0
        return gap if gap > PROVED else 0.0


class Overfull(Value, frozen=True, kw_only=True):
    """No placement fits: the least that the fullest stage demands, what it may hold, and what would help."""

    stage: int
    demand: float
    bound: float
    proved: bool
    """Whether the programme proved it, or only found nothing in its time."""
    levers: tuple[str, ...] = ()

    @property
    def gap(self) -> float:
        """What is missing."""
        return self.demand - self.bound


def _grid(counts: Counts) -> Grid:
    return tuple(tuple(int(count) for count in row) for row in counts)
