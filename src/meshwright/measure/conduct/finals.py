"""The fastest measured again by turns, block after block, so that a drift of the machine does not decide between them.

Trials run one after another, and a machine that other people use is not the same an hour later. The second, and layouts whose
intervals come within a tenth of that of the fastest, are finalists with it: they are measured in rounds A B C, C B A, A B C ...,
so that a steady drift falls on all alike, and are compared round by round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from statistics import fmean, median, stdev
from typing import TYPE_CHECKING

from meshwright.measure.conduct.running import LOST_RATIO

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.measure.chooser import Candidate, Chooser
    from meshwright.measure.outcome import Outcome

MOST = 3
"""Finalists. Our judgement."""
TOLD_APART = {2: 3.078, 3: 1.886, 4: 1.638, 5: 1.533, 6: 1.476, 7: 1.440, 8: 1.415, 9: 1.397}
"""Rounds -> half-width of an 80 % interval of a mean, in standard errors (Student's t with one degree of freedom less)."""
NORMAL = 1.282
"""The same of more rounds."""


@dataclass(eq=False)
class Finals:
    """A chooser, and after it the rounds between the fastest of what it has measured."""

    first: Chooser
    rounds: int
    """At most; 0: none are held."""
    _out: int = field(default=0, init=False)
    _measured: dict[str, tuple[Candidate, Outcome]] = field(default_factory=dict, init=False)
    _finalists: tuple[str, ...] = field(default=(), init=False)
    _blocks: dict[str, list[float]] = field(default_factory=dict, init=False)
    _due: list[Candidate] = field(default_factory=list, init=False)
    _round: int = field(default=0, init=False)

    def ask(self) -> Candidate | None:
        """The first chooser's next, then the next block; blocks run one at a time."""
        if not self._finalists:
            if (candidate := self.first.ask()) is not None:
                self._out += 1
                return candidate
            if self._out or not self.rounds:
                return None
            self._finalists = finalists(list(self._measured.values()))
        if self._out:
            return None
        if not self._due and not self._next_round():
            return None
        self._out += 1
        return self._due.pop(0)

    def _next_round(self) -> bool:
        """Whether another round is to be held; it is due then."""
        left = [label for label in self._finalists if label in self._blocks or not self._round]
        if len(left) < 2 or self._round >= self.rounds or not undecided(self._blocks):
            return False
        self._round += 1
        turn = left if self._round % 2 else left[::-1]
        self._due = [replace(self._measured[label][0], block=self._round) for label in turn]
        return True

    def take(self, candidate: Candidate) -> None:
        """A trial of the first chooser's that a store has."""
        self._out += 1
        self.first.take(candidate)

    def tell(self, candidate: Candidate, outcome: Outcome) -> None:
        """How a trial or a block ended; a finalist whose block failed is one no more."""
        self._out -= 1
        if not candidate.block:
            if outcome.measured:
                self._measured[candidate.label] = candidate, outcome
            self.first.tell(candidate, outcome)
        elif outcome.measured and outcome.step_s:
            self._blocks.setdefault(candidate.label, []).append(outcome.step_s)
        else:
            self._finalists = tuple(label for label in self._finalists if label != candidate.label)
            self._blocks.pop(candidate.label, None)
            self._due = [each for each in self._due if each.label != candidate.label]

    @property
    def enough(self) -> bool:
        """Whether the first chooser's trials that have not begun need not be run; blocks need."""
        return not self._finalists and self.first.enough

    @property
    def stopped(self) -> str:
        """Why the first chooser stopped."""
        return self.first.stopped


def finalists(measured: Sequence[tuple[Candidate, Outcome]]) -> tuple[str, ...]:
    """The fastest, the second, and those that have not lost by the rule of trials that run; none where one stands alone.

    Holds:   what runs fewer layers than the model has is no finalist of what runs all: its scale is a prediction.
    """
    ordered = sorted(measured, key=lambda each: each[1].step_s or 0.0)
    if not ordered:
        return ()
    best = ordered[0][1]
    edge = LOST_RATIO * (best.interval_s or (0.0, best.step_s or 0.0))[1]
    near = [each.label for number, (each, outcome) in enumerate(ordered)
            if number < 2 or (outcome.interval_s or (outcome.step_s or 0.0, 0.0))[0] <= edge]
    return tuple(near[:MOST]) if len(near) > 1 else ()


def slower(one: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    """By which share the second takes longer than the first, round by round, and an 80 % interval of it.

        exp(mean d +- t s / sqrt(n)) - 1,   d_k = log(other_k / one_k)

    >>> slower([1.0, 2.0], [1.1, 2.2])[0]
    0.1
    """
    apart = [math.log(b / a) for a, b in zip(one, other, strict=False)]
    middle, count = fmean(apart), len(apart)
    half = TOLD_APART.get(count, NORMAL) * stdev(apart) / math.sqrt(count) if count > 1 else math.inf
    found = [math.expm1(min(each, 700.0)) for each in (middle, middle - half, middle + half)]
    return round(found[0], 9), found[1], found[2]


def undecided(blocks: Mapping[str, Sequence[float]]) -> bool:
    """Whether some rival may still be faster than the fastest."""
    if not blocks or min(map(len, blocks.values())) < 2:
        return True
    best = fastest(blocks)
    return any(slower(blocks[best], other)[1] <= 0.0 for label, other in blocks.items() if label != best)


def fastest(blocks: Mapping[str, Sequence[float]]) -> str:
    """The label with the least step over its blocks (mean of logs: rounds in which everybody was slow count alike)."""
    return min(blocks, key=lambda label: fmean(map(math.log, blocks[label])))


def said(blocks: Mapping[str, Sequence[float]]) -> str:
    """What the rounds have come to, in words; empty where none were held."""
    if len(blocks) < 2 or min(map(len, blocks.values())) < 2:
        return ""
    best = fastest(blocks)
    parts = []
    for label, other in blocks.items():
        if label != best:
            middle, low, high = slower(blocks[best], other)
            apart = f"{label} takes {100 * middle:.2g} % longer ({100 * low:.2g} to {100 * high:.2g} %)"
            parts.append(apart if low > 0.0 else f"{apart}: they cannot be told apart")
    return f"by turns, {len(blocks[best])} rounds: {best} is the fastest, " + ", ".join(parts)


def pooled(steps: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """The step of blocks: their median, and the least and the largest."""
    return median(steps), (min(steps), max(steps))
