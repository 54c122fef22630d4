"""Predicates by name, and the way most of them decide: the best layout that follows the advice against the best that does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.judging.facts import Facts
from meshwright.judging.finding import Ruling, number, ratio, size
from meshwright.perf.schedules import even_bubble_ratio
from meshwright.registry import Registry
from meshwright.units import gib
from meshwright.words import seconds

if TYPE_CHECKING:
    from meshwright.catalog.guides import Rule
    from meshwright.judging.alternatives import Alternative

Predicate = Callable[[Facts, "Rule"], Ruling]
PREDICATES = Registry[Predicate]("predicate")
"""Name in ``guides.yaml`` -> what judges it."""


def judges(name: str) -> Callable[[Predicate], Predicate]:
    """A decorator that registers a predicate."""
    return PREDICATES.adder(name)


def does_not_apply(facts: Facts, sentence: str) -> Ruling:
    """The advice is about something that this case does not have."""
    return Ruling(verdict="does-not-apply", figure=number("devices", facts.layout.world), sentence=sentence)


def percent(value: float) -> str:
    """A ratio as percent."""
    return f"{value:z.1%}"


def ideal_bubble(stages: int, chunks: int, microbatches: int) -> float:
    """Share of the pipeline's time that equal stages would idle, by the formula that the guides quote."""
    return float(even_bubble_ratio("interleaved", num_stages=stages, num_chunks=chunks, num_microbatches=max(1, microbatches)))


def change(facts: Facts, then: float, now: float) -> str:
    """``4.1% slower`` or ``faster``, with a remark where that is within the model's error."""
    relative = then / now - 1.0
    if abs(relative) < 0.0005:
        return "equally fast"
    words = f"{abs(relative):.1%} {'slower' if relative > 0 else 'faster'}"
    return f"{words} (within the model's error)" if abs(relative) <= facts.error_ratio else words


def speed(found: Alternative) -> str:
    """``15.3 s (tp2 pp8 ...)``."""
    return f"{seconds(found.step_s)} ({found.label})"


def only_more_work(one: Alternative, other: Alternative) -> bool:
    """Whether two layouts differ in recompute alone: then their order is certain, however small the difference."""
    return one.layout != other.layout and replace(one.layout, recompute=other.layout.recompute) == other.layout


def contest(facts: Facts, following: str, against: str, words: str, otherwise: str, *, tail: str = "") -> Ruling:
    """The best layout that follows advice against the best that does not, both over the whole grid.

    ``following`` and ``against`` are questions of ``alternatives``. Advice holds where what follows it is as fast within the
    model's error, or where more work is certain, as fast.
    """
    own, rival = facts.best.get(following), facts.best.get(against)
    capacity = facts.case.capacity_bytes
    end = f"; {tail}" if tail else ""
    if own is None:
        return does_not_apply(facts, f"no legal layout of this case has {words}{end}")
    if not own.fits:
        figure = size(own.memory_reserved_bytes)
        short = f"the least demanding needs {gib(own.memory_reserved_bytes)} of {gib(capacity)} ({own.label})"
        if rival is None or not rival.fits:
            return Ruling(verdict="does-not-apply", figure=figure, sentence=f"nothing fits with {words} or without: {short}{end}")
        return Ruling(
            verdict="fails", figure=figure, sentence=f"nothing fits with {words}: {short}; {otherwise}: {speed(rival)}{end}"
        )
    if rival is None or not rival.fits:
        return Ruling(
            verdict="holds", figure=ratio("step_change_ratio", 0.0),
            sentence=f"only {words} works here: {speed(own)}; {otherwise}: nothing {'fits' if rival else 'is legal'}{end}",
        )
    relative = own.step_s / rival.step_s - 1.0
    margin = 0.0 if only_more_work(own, rival) else facts.error_ratio
    return Ruling(
        verdict="holds" if relative <= margin else "fails", figure=ratio("step_change_ratio", relative),
        sentence=f"{words}: {speed(own)}; {otherwise}: {speed(rival)}; "
        f"the advice is {change(facts, own.step_s, rival.step_s)}{end}",
    )
