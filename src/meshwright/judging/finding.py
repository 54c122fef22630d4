"""What an explanation is made of: figures, judgements of rules, and rules that contradict each other."""

from __future__ import annotations

from typing import Literal

from meshwright.catalog.guides import Status
from meshwright.value import Value

Verdict = Literal["holds", "not-followed", "fails", "wrong", "does-not-apply"]
"""``holds``: true here, and the layout does it where it is advice; ``not-followed``: it would do as well or better, and the layout
does otherwise; ``fails``: good advice that does not hold for this case; ``wrong``: no case makes it right."""
STANDS: frozenset[Verdict] = frozenset({"holds", "not-followed"})
"""Verdicts of advice that is right for the case, whether or not the layout follows it."""


Decision = Literal["taken", "tie", "none", "no-question"]
"""``taken``: one side is right; ``tie``: the model cannot tell several apart; ``none``: every side is wrong for this case;
``no-question``: the case has nothing that they disagree about."""


TIMES = frozenset({"step_change_ratio", "expected_change_ratio"})
"""Figures that say how much longer the step is, or is expected to be, where advice is followed."""


class Figure(Value, frozen=True, kw_only=True):
    """A number of the case, with its unit also in its name."""

    name: str
    value: float
    unit: str


class Ruling(Value, frozen=True, kw_only=True):
    """What a predicate says about one rule."""

    verdict: Verdict
    figure: Figure
    sentence: str


class Judgement(Value, frozen=True, kw_only=True):
    """A rule of the guides, judged for a case."""

    rule: str
    source: str
    """Documents and lines: ``000:16, 001:21``."""
    says: str
    status: Status
    """Whether it is true in general."""
    verdict: Verdict
    figure: Figure
    sentence: str
    followed: bool | None = None
    """Whether the layout does what the rule says; None where the rule is about something else."""


class Side(Value, frozen=True, kw_only=True):
    """One position in a disagreement."""

    rule: str
    source: str
    says: str
    verdict: Verdict
    figure: Figure
    sentence: str
    """What following it comes to: a figure, or why it is out of the question."""


class Disagreement(Value, frozen=True, kw_only=True):
    """Rules that cannot all be followed, and which side this case takes."""

    topic: str
    sides: tuple[Side, ...]
    decision: Decision
    right: tuple[str, ...]
    """The rule that is taken; several where it is a tie, none where neither side is right or the case has no such question."""
    figure: Figure
    sentence: str

    @property
    def taken(self) -> str:
        """The rule that is taken; nothing where it is a tie or none is right."""
        return self.right[0] if self.decision == "taken" else ""


def ratio(name: str, value: float) -> Figure:
    """A share or a relative change."""
    return Figure(name=name, value=float(value), unit="ratio")


def number(name: str, value: float) -> Figure:
    """A count."""
    return Figure(name=name, value=float(value), unit="1")


def time_of(value_s: float, name: str = "step_s") -> Figure:
    """A time."""
    return Figure(name=name, value=float(value_s), unit="s")


def size(value_bytes: float, name: str = "memory_reserved_bytes") -> Figure:
    """A size."""
    return Figure(name=name, value=float(value_bytes), unit="B")
