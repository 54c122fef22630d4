"""What of a balance a framework can say and the estimate lets run: the only placements that are proposed for a layout.

A framework may say fewer splits and recomputations than its features promise, and the solver takes layers of kinds that alternate
at their mean, the estimate as they are. So placements of the solver and quick ones under less memory, with even stages, and with
fewer treatments are held against both.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from msgspec import structs

from meshwright.domain.balance import Balance, Overfull
from meshwright.domain.layout import NoRecompute, mixed
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.api.cases import Setup
    from meshwright.domain.balance import BalanceProblem, Placement, RecomputeRule
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout, Treatment
    from meshwright.search.balance.layouts import Choice

SHARES = (1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5)
"""Of the memory, under which quick placements are looked for where the solver's do not fit by the estimate."""
KEPT = 6
"""Quick placements of each problem."""


class Refused(Value, frozen=True, kw_only=True):
    """What fits the framework cannot say."""

    reason: str


class _Met(Value, frozen=True, kw_only=True):
    """A placement as a layout with its estimate."""

    placement: Placement
    estimate: Estimate


def sayable(given: Setup, layout: Layout, choice: Choice) -> Choice:
    """A choice without treatments that the framework refuses where some layers of every chunk have them."""
    from meshwright.estimate.evaluate import split_of

    even = replace(layout, stage_layers=None, recompute=NoRecompute())
    split = split_of(given.case, even)
    known = _refusals(given, even)

    def able(treatment: Treatment) -> bool:
        ones = tuple(tuple(1 for _ in row) for row in split)
        if isinstance(treatment, NoRecompute) or treatment is choice.treatments[0]:
            return True
        return not set(_refusals(given, replace(even, recompute=mixed([(treatment, ones)], split)))) - set(known)

    return structs.replace(choice, treatments=tuple(filter(able, choice.treatments)))


def accepted(given: Setup, plain: Layout, balance: Balance) -> Balance | Overfull | Refused:
    """The answer, or the fastest placement beside it that can be said and fits; where there is none, why.

    ``plain``: the layout whose stages are filled. What the framework refuses of it with even stages and no recomputation is no
    placement's fault.
    """
    from meshwright.search.balance.bubble import bubble_of

    problem = balance.problem
    known = set(_refusals(given, replace(plain, stage_layers=None, recompute=NoRecompute())))
    reasons: list[str] = []
    own = (balance.best, *balance.others, *(() if balance.faster is None else (balance.faster,)))
    met = _said(given, plain, problem, own, known, reasons)
    fitting = [each for each in met if each.estimate.fits]
    if fitting and fitting[0].placement is balance.best:
        kept = {id(each.placement) for each in fitting}
        return replace(balance, others=tuple(each for each in balance.others if id(each) in kept))
    met += _said(given, plain, problem, tuple(_quick(given, plain, problem)), known, reasons)
    fitting = sorted((each for each in met if each.estimate.fits), key=lambda each: each.estimate.step_s)
    if fitting:
        best, *others = (each.placement for each in fitting)
        return replace(balance, best=best, others=tuple(others[: len(balance.others)]), faster=None,
                       bubble=bubble_of(problem, best.counts))
    if not met:
        return Refused(reason="; ".join(dict.fromkeys(reasons)))
    least = min((each.estimate for each in met), key=lambda each: each.memory_reserved_bytes)
    return Overfull(
        stage=least.peak_stage, demand=float(least.memory_reserved_bytes), bound=float(least.memory_capacity_bytes), proved=False
    )


def layout_with(given: Setup, plain: Layout, problem: BalanceProblem, placement: Placement) -> Layout:
    """The layout of a placement; a split that needs no word gets none."""
    from meshwright.estimate.evaluate import split_of
    from meshwright.search.balance.layouts import layout_of

    layout = layout_of(plain, problem, placement)
    usual = replace(layout, stage_layers=None)
    return usual if split_of(given.case, usual) == layout.stage_layers else layout


def _said(
    given: Setup, plain: Layout, problem: BalanceProblem, placements: tuple[Placement, ...], known: set[str], reasons: list[str]
) -> list[_Met]:
    """Those that the framework can say, each once; why not the others."""
    from meshwright.estimate import estimate as predict

    found: list[_Met] = []
    for each in {placement.counts.tobytes(): placement for placement in reversed(placements)}.values():
        layout = layout_with(given, plain, problem, each)
        new = [reason for reason in _refusals(given, layout) if reason not in known]
        reasons += new
        if not new:
            found.append(_Met(placement=each, estimate=predict(given.case, layout)))
    return found[::-1]


def _quick(given: Setup, plain: Layout, problem: BalanceProblem) -> Iterator[Placement]:
    """Quick placements under less and less memory, free and with even stages, and with the same recomputation of every chunk."""
    from meshwright.estimate.evaluate import split_of
    from meshwright.search.balance.quick import quick_placements

    even = split_of(given.case, replace(plain, stage_layers=None))
    rules: tuple[RecomputeRule, ...] = (problem.recompute_rule, "first")
    for fixed, rule in product(dict.fromkeys((problem.fixed_layers, even)), dict.fromkeys(rules)):
        for share in SHARES:
            bounds = tuple(share * bound for bound in problem.memory_bounds)
            narrower = replace(problem, memory_bounds=bounds, fixed_layers=fixed, recompute_rule=rule)
            yield from quick_placements(narrower, keep=KEPT)


def _refusals(given: Setup, layout: Layout) -> list[str]:
    """Why the framework cannot run a layout."""
    return [str(replace(each, path="")) for each in given.framework.check(given.case, layout)]
