"""Where the time goes: every point between the MFU and 100 %, by term and by the guides' causes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.domain.estimate import Estimate

CAUSES = {
    "ideal": "useful work",
    "imbalance of stages": "strategy",
    "matrix products below peak": "hardware",
    "attention below peak": "hardware",
    "recurrences below peak": "hardware",
    "attention and recurrences below peak": "hardware",
    "embedding, output layer and loss": "architecture",
    "elementwise operators": "architecture",
    "casts of low precision": "architecture",
    "kernel gaps and slowdown beside communication": "software",
    "recompute": "strategy",
    "tensor parallelism": "strategy",
    "context parallelism": "strategy",
    "expert parallelism": "strategy",
    "pipeline transfers": "strategy",
    "pipeline bubble": "batch",
    "data parallelism": "batch",
    "optimizer": "batch",
    "kernel launches": "software",
    "host": "software",
    "stalled messages and memory pressure": "software",
    "stragglers": "hardware",
}
"""Term -> cause after the MindSpore guide (002:10-14). ``batch`` is what a step pays once: a larger global batch dilutes it."""


class Loss(Value, frozen=True, kw_only=True):
    """One term of the step. Points of all terms sum to 100; those of ``ideal`` are the MFU. A negative one is time saved."""

    name: str
    cause: str
    time_s: float
    points_percent: float
    formula: str


class Cause(Value, frozen=True, kw_only=True):
    """All terms of one cause."""

    name: str
    points_percent: float
    largest: str
    """Its largest term."""


def losses(estimate: Estimate) -> tuple[Loss, ...]:
    """Every term as points of 100.

        100 t / step

    Units:   s, percent of the step; ``ideal`` gives 100 MFU.
    Source:  ``estimate.breakdown``; nothing is computed twice.
    """
    total = sum(term.value for term in estimate.terms)
    return tuple(
        Loss(
            name=term.name,
            cause=_cause(term.name),
            time_s=term.value,
            points_percent=100.0 * term.value / total,
            formula=term.formula,
        )
        for term in estimate.terms
    )


def _cause(name: str) -> str:
    return next(cause for beginning, cause in CAUSES.items() if name.startswith(beginning))


def causes(estimate: Estimate) -> tuple[Cause, ...]:
    """The same points by cause, most first after the useful work."""
    every = losses(estimate)
    found = [
        Cause(
            name=name, points_percent=sum(loss.points_percent for loss in every if loss.cause == name),
            largest=max((loss for loss in every if loss.cause == name), key=lambda loss: loss.points_percent).name,
        )
        for name in dict.fromkeys(CAUSES.values())
    ]
    return tuple(sorted(found, key=lambda cause: (cause.name != "useful work", -cause.points_percent)))
