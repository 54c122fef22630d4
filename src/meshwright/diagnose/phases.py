"""A step of reinforcement learning, phase by phase: generation, log probabilities, training and what lies between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.readers.logs.parts import PHASES, part_of
from meshwright.readers.logs.parts import split as parts_of

if TYPE_CHECKING:
    from meshwright.domain.observed.steady import Steady

ALSO = ("data", "checkpoint", "evaluation")
"""Parts of any step that stand beside the phases."""
TOLD_BY = frozenset(PHASES) - {"actor", "critic"}
"""A step that has none of these trains and does nothing else."""
OVERLAP = 0.02
"""Of the step: how far medians of phases may come to more than the median step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One phase: seconds of a step, and the timers of the log that say so."""

    name: str
    time_s: float
    timers: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """The phases of a step in their order; medians over the steps that count."""

    about: str
    step_s: float
    phases: tuple[Phase, ...]
    other_s: float | None
    """What no timer that is known tells of; None where phases come to more than the step: they go on beside each other."""

    def time_s(self, *names: str) -> float | None:
        """Seconds of some phases together; None where the log tells of none of them."""
        found = [each.time_s for each in self.phases if each.name in names]
        return sum(found) if found else None

    def ratio(self, *names: str) -> float | None:
        """The share of the step in which they go on."""
        spent = self.time_s(*names)
        return None if spent is None else self.share(spent)

    def share(self, spent_s: float) -> float:
        """What so many seconds are of the step: all of it where they reach beyond it, into steps before or behind."""
        return min(1.0, spent_s / self.step_s)


def phases_of(steady: Steady, about: str) -> Phases | None:
    """The phases that timers tell; None of a step that only trains.

        other = step - sum of phases

    Units:   s.
    Holds:   nothing is counted twice: of a timer that contains others counts what they leave (``readers/logs/parts.yaml``).
    """
    parts = parts_of(steady.parts)
    if not TOLD_BY & set(parts) or not steady.step_s:
        return None
    found = tuple(
        Phase(
            name=name,
            time_s=parts[name],
            timers=tuple((timer, spent) for timer, spent in steady.parts.items() if part_of(timer) == name),
        )
        for name in (*ALSO[:1], *PHASES, *ALSO[1:])
        if name in parts
    )
    left = steady.step_s - sum(each.time_s for each in found)
    beside = left < -OVERLAP * steady.step_s
    return Phases(about=about, step_s=steady.step_s, phases=found, other_s=None if beside else max(0.0, left))
