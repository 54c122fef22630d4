"""What an explanation is made of: figures, judgements of rules, and rules that contradict each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from meshwright.catalog.guides import Status

Verdict = Literal["holds", "fails", "wrong", "does-not-apply"]
"""``fails``: good advice that does not hold for this case; ``wrong``: no case makes it right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number of the case, with its unit also in its name."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What a predicate says about one rule."""

    verdict: Verdict
    figure: Figure
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One position in a disagreement."""

    rule: str
    source: str
    says: str
    verdict: Verdict
    figure: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """Rules that cannot all be followed, and who is right for this case."""

    topic: str
    sides: tuple[Side, ...]
    right: tuple[str, ...]
    """Rules that are right here; empty where none is, several where the model cannot tell them apart."""
    figure: Figure
    sentence: str


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
