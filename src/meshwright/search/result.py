"""What a search is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from msgspec import field

from meshwright.estimate.overlap import DEFAULT_RISK
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.domain.estimate import Estimate, Verdict
    from meshwright.domain.layout import Layout, Risk
    from meshwright.errors import Message

Objective = Literal["step-time", "memory", "throughput-per-device"]
FIGURES: dict[Objective, str] = {
    "step-time": "expected_step_s", "memory": "memory_reserved_bytes", "throughput-per-device": "expected_device_s",
}
"""Objective -> the figure that plans are ranked by, less is better; ``expected_device_s``: the expected step times the devices."""


class SearchOptions(Value, frozen=True, kw_only=True):
    """What may be chosen and what is wanted. The global batch, the sequence and the numerics are not here: they stay."""

    top: int = 10
    objective: Objective = "step-time"
    risk: Risk = DEFAULT_RISK
    pins: Mapping[str, str] = field(default_factory=dict)
    """Knob by label word (tp cp pp vp ep etp dp mb zero shard recompute schedule sp offload cp_kind attention compile
    overlap) -> its only allowed value."""
    pinnable: bool = True
    """Whether whoever asks can pin a knob; where nothing fits, the verb that can is named otherwise."""
    spare_nodes: int = 0
    """Up to so many whole nodes may stay idle where fewer devices are faster or the only legal choice."""
    weak: bool = False
    """Linearity against a baseline whose global batch is scaled down with its devices."""
    refine: bool = True
    """Refine the finalists: full:k recompute, finer shard groups, uneven stages."""
    balance: bool = True
    """Fill the stages of the finalists anew: layers moved, recomputation by stage."""


class RankedPlan(Value, frozen=True, kw_only=True):
    """One answer: its place, its estimate, why it stands there, and which plans the model cannot tell from it."""

    rank: int
    label: str
    layout: Layout
    estimate: Estimate
    reasons: tuple[str, ...]
    group: int
    """Plans of one group differ by less than the error of the model: measure them all."""


class PlanResult(Value, frozen=True, kw_only=True):
    """The answer of a search. ``legal = evaluated + bounded``; ``rejected`` counts by the first rule that refused.

    ``bounded`` are those of which a bound proves that they are not among the answers; ``fitting`` counts the evaluated that fit.
    """

    legal: int
    evaluated: int
    bounded: int
    fitting: int
    rejected: Mapping[str, int]
    search_s: float
    plans: tuple[RankedPlan, ...]
    pareto: tuple[RankedPlan, ...]
    """Not dominated in expected step time and memory (and devices, where nodes may stay idle)."""
    verdict: Verdict
    used_devices: int
    idle_devices: int
    notes: tuple[Message, ...] = ()
    """Remarks that belong to the answer: batches near by that work, idle devices, what was pinned."""
    ranking_error_ratio: float = 0.0
    """How far two plans of one case must differ before the model can tell which is faster."""
    objective: Objective = "step-time"
    """What plans are ranked by: ``FIGURES`` names the figure."""
    riskier: tuple[RankedPlan, ...] = ()
    """Plans that take less time than the first where they fit, but are expected to take more."""
    refused: int = 0
    """How many layouts the framework was asked about, where it refuses every one; ``plans`` are then those that it refuses."""

    @property
    def within_error(self) -> int:
        """How many of the first plans the model cannot tell from the first, itself among them: those worth measuring."""
        return sum(plan.group == self.plans[0].group for plan in self.plans)

    @property
    def decided_per_s(self) -> float:
        """Layouts evaluated or ruled out per second of search."""
        return self.legal / self.search_s if self.search_s > 0 else 0.0

    @property
    def evaluations_per_s(self) -> float:
        """Layouts evaluated per second of search."""
        return self.evaluated / self.search_s if self.search_s > 0 else 0.0


class Comparison(Value, frozen=True, kw_only=True):
    """Why not mine: the user's layout beside the winner, and what would have to be true for it to win."""

    label: str
    estimate: Estimate
    refused_because: tuple[str, ...]
    """Rules that refuse it; empty where it is legal."""
    rank: int | None
    """Its place in the list of plans; None where it is not listed."""
    winner: RankedPlan
    needed: tuple[str, ...]
    """What would have to be true for it to win, one sentence each."""
    better_listed: int | None = None
    """How many of the listed plans are better by the objective; None where it is refused or does not fit."""
    better: int | None = None
    """How many fitting layouts of the grid are; None where it is refused or does not fit."""
