"""What a call may spend, and what it will: trials, minutes, device-hours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.words import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.measure.chooser import Candidate
    from meshwright.measure.trial import Trial

HOUR_S, MINUTE_S = 3600.0, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What may be spent; None: no bound."""

    trials: int | None = None
    wall_s: float | None = None
    device_s: float | None = None

    def over(self, *, trials: int, wall_s: float, device_s: float) -> str:
        """Which part of it is spent, in words; empty while none is."""
        if self.trials is not None and trials >= self.trials:
            return f"the budget of {plural(self.trials, 'trial')} is spent"
        return self.time_over(wall_s=wall_s, device_s=device_s)

    def time_over(self, *, wall_s: float, device_s: float) -> str:
        """The same of what running trials go on spending."""
        if self.wall_s is not None and wall_s >= self.wall_s:
            return f"the budget of {self.wall_s / MINUTE_S:.3g} minutes is spent"
        if self.device_s is not None and device_s >= self.device_s:
            return f"the budget of {self.device_s / HOUR_S:.3g} device-hours is spent"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What trials are expected to cost before the first of them has run."""

    trials: int
    device_s: float
    wall_s: float
    start_s: float
    """What is taken for the start of each, which no model predicts."""


def price(candidates: Sequence[Candidate], trials: Sequence[Trial], budget: Budget, *, start_s: float, at_once: int) -> Price:
    """The expected cost of trials: starts and predicted steps, no more than the budget lets through.

    Formula: sum over trials of devices x (start + steps x predicted step); the time is that over the trials that run at once.
    """
    spent_s = device_s = 0.0
    count = 0
    for candidate, trial in zip(candidates, trials, strict=True):
        wall_s = spent_s / at_once
        if budget.over(trials=count, wall_s=wall_s, device_s=device_s):
            break
        lasts_s = min(trial.limits.total_s, start_s + (trial.steps or 0) * (candidate.predicted_s or 0.0) / trial.scale)
        count, spent_s, device_s = count + 1, spent_s + lasts_s, device_s + lasts_s * trial.devices
    return Price(trials=count, device_s=device_s, wall_s=spent_s / at_once, start_s=start_s)
