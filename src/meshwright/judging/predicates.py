"""Predicates by name, and the way most of them decide: the best layout that follows the advice against the best that does not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.judging.facts import Facts
from meshwright.judging.finding import Ruling, number, ratio, size
from meshwright.perf.schedules import even_bubble_ratio
from meshwright.registry import Registry
from meshwright.units import gib
from meshwright.words import percent, seconds

if TYPE_CHECKING:
    from meshwright.catalog.guides import Rule
    from meshwright.judging.alternatives import Alternative
    from meshwright.judging.facts import Trial

Predicate = Callable[[Facts, "Rule"], Ruling]
PREDICATES = Registry[Predicate]("predicate")
"""Name in ``guides.yaml`` -> what judges it."""
SAME_RATIO = 0.0005
"""A change of the step that no printed digit shows."""


def judges(name: str) -> Callable[[Predicate], Predicate]:
    """A decorator that registers a predicate."""
    return PREDICATES.adder(name)


def does_not_apply(facts: Facts, sentence: str) -> Ruling:
    """The advice is about something that this case does not have."""
    return Ruling(verdict="does-not-apply", figure=number("devices", facts.layout.world), sentence=sentence)


def ideal_bubble(stages: int, chunks: int, microbatches: int) -> float:
    """Share of the pipeline's time that equal stages would idle, by the formula that the guides quote."""
    return float(even_bubble_ratio("interleaved", num_stages=stages, num_chunks=chunks, num_microbatches=max(1, microbatches)))


def change(facts: Facts, then: float, now: float) -> str:
    """``4.1 % slower`` or ``faster``, with a remark where that is within the model's error."""
    relative = then / now - 1.0
    if abs(relative) < SAME_RATIO:
        return "equally fast"
    words = f"{percent(abs(relative))} {'slower' if relative > 0 else 'faster'}"
    return f"{words} (within the model's error)" if abs(relative) <= facts.error_ratio else words


def takes(found: Alternative) -> str:
    """``15.3 s``, or ``15.3 s where it fits, 15.9 s expected`` where the risk of not fitting, or of stalls, shows."""
    step, expected = seconds(found.step_s), seconds(found.expected_step_s)
    return step if step == expected or not found.fits else f"{step} {_usually(found.chance_s)}, {expected} expected"


def _usually(chance_s: float) -> str:
    """When a layout takes no more than its step."""
    return "in most runs" if chance_s else "where it fits"


def speed(found: Alternative) -> str:
    """``15.3 s (tp2 pp8 ...)``."""
    return f"{takes(found)} ({found.label})"


def expected_change_ratio(one: Alternative, other: Alternative) -> float:
    """How much longer one is expected to take than the other; what alternatives and plans are ranked by."""
    return one.expected_step_s / other.expected_step_s - 1.0


def expected_change(facts: Facts, one: Alternative, other: Alternative) -> str:
    """``4.1 % slower``, by what is expected of both."""
    return change(facts, one.expected_step_s, other.expected_step_s)


class Against(Struct, frozen=True):
    """One trial against another, as plans are ranked: what is expected of both, and one that fits before one that does not."""

    ratio: float
    """How much longer it is expected to take; where one of them does not fit, of the plain steps."""
    words: str
    better: bool
    """Whether it is the better plan; of equal ones neither is."""


def against(facts: Facts, then: Trial, now: Trial) -> Against:
    """A layout against another one of the case: ``4.1% slower``, and where risk decides, what it is where it fits."""
    plain = change(facts, then.step_s, now.step_s)
    if then.estimate.fits and now.estimate.fits:
        words = change(facts, then.expected_step_s, now.expected_step_s)
        usually = _usually(then.estimate.chance_s or now.estimate.chance_s)
        where = "" if words == plain else f" by what is expected of it ({plain} {usually})"
        return Against(then.expected_step_s / now.expected_step_s - 1.0, words + where, then.expected_step_s < now.expected_step_s)
    which = "does not fit" if now.estimate.fits else "fits, where the other does not" if then.estimate.fits else "neither fits"
    joint = "; " if which == "neither fits" else " and "
    better = then.estimate.fits > now.estimate.fits
    return Against(then.step_s / now.step_s - 1.0, plain + joint + which, better)


def riskier(named: Mapping[str, Alternative]) -> str:
    """``; faster where it fits, but less likely to fit: A``: one of those with a name that its risk keeps from being best."""
    fitting = {name: each for name, each in named.items() if each.fits}
    if not fitting:
        return ""
    best = min(fitting.values(), key=lambda each: each.expected_step_s)
    name, shortest = min(fitting.items(), key=lambda item: item[1].step_s)
    shorter = shortest.expected_step_s > best.expected_step_s and seconds(shortest.step_s) != seconds(best.step_s)
    risk = "expected to take longer" if shortest.chance_s else "less likely to fit"
    return f"; faster {_usually(shortest.chance_s)}, but {risk}: {name}" if shorter else ""


def only_more_work(one: Alternative, other: Alternative) -> bool:
    """Whether one layout differs from the other in recomputing more: then it takes longer, however small the difference."""
    alike = one.layout != other.layout and replace(one.layout, recompute=other.layout.recompute) == other.layout
    return alike and one.step_s >= other.step_s


def contest(facts: Facts, following: str, against: str, words: str, otherwise: str, *, tail: str = "") -> Ruling:
    """The best layout that follows advice against the best that does not, both over the whole grid.

    ``following`` and ``against`` are questions of ``alternatives``. Advice holds where what follows it is expected to be as fast
    within the model's error, or where more work is certain, as fast.
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
            verdict="holds", figure=ratio("expected_change_ratio", 0.0),
            sentence=f"only {words} works here: {speed(own)}; {otherwise}: nothing {'fits' if rival else 'is legal'}{end}",
        )
    relative = expected_change_ratio(own, rival)
    margin = 0.0 if only_more_work(own, rival) else facts.error_ratio
    return Ruling(
        verdict="holds" if relative <= margin else "fails", figure=ratio("expected_change_ratio", relative),
        sentence=f"{words}: {speed(own)}; {otherwise}: {speed(rival)}; "
        f"the advice is {expected_change(facts, own, rival)}{riskier({words: own, otherwise: rival})}{end}",
    )
