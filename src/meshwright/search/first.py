"""The first plan of a case and nothing else, or why there is none: what one cell of an atlas holds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.errors import Message
from meshwright.search.finding import find
from meshwright.search.least import least_demanding
from meshwright.search.nearest import lacking_kernels, no_legal_layout
from meshwright.search.offloaded import find_moved
from meshwright.search.runner import Functions
from meshwright.search.space import parse_pins

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.features import Features
    from meshwright.search.finding import Found
    from meshwright.search.result import SearchOptions
    from meshwright.search.runner import Runner


class First(Struct, frozen=True, kw_only=True):
    """The first plan, or what stands in its way."""

    best: Estimate | None
    """What ``plan`` lists first, its linearity left out."""
    least: Estimate | None = None
    """The least demanding layout, where none fits."""
    refusal: Message | None = None
    """Why there is no plan, where memory is not the reason."""


def first_plan(case: Case, features: Features, options: SearchOptions, runner: Runner, *, coarse: bool = False) -> First:
    """What ``plan`` lists first.

    ``coarse``: the grid alone, where it holds anything. Knobs finer than the grid are not tried, stages are not filled anew and few
    layouts are simulated: a part of the time, and a layout that fits and is legal, but that the whole search may beat.

    Holds:   whether anything fits is the same either way; not coarse, the layout and its figures are those of ``plan``.
    """
    pins = parse_pins(options.pins)
    if lacking := lacking_kernels(case, features, pins):
        return First(best=None, refusal=lacking[0])
    own = replace(options, top=1, refine=False, balance=False) if coarse else options
    found = find(case, features, own, runner, lean=coarse, able=True)
    if not found.counts.legal:
        return First(best=None, refusal=no_legal_layout(case, features, options, pins)[0])
    if found.plans:
        return First(best=found.plans[0].estimate)
    if coarse:  # finer knobs may bring in what the grid does not hold, and run what a framework refuses of it
        return first_plan(case, features, options, runner)
    if found.refused:
        words = "{name} runs none of the best {asked:,} layouts that fit"
        return First(best=None, refusal=Message("atlas.refused", words, {"name": features.name, "asked": found.refused}))
    moved = find_moved(case, features, own, runner)
    if moved is not None:
        return First(best=moved[1].plans[0].estimate)
    return First(best=None, least=least_of(case, found, runner))


def least_of(case: Case, found: Found, runner: Runner) -> Estimate:
    """Of a search that found nothing which fits, the least demanding layout; where the framework refuses all, of those."""
    spaces = [pool.space for pool in found.pools]
    each = least_demanding(spaces, found.overlap, runner)
    if each is None:
        each = least_demanding(spaces, found.overlap, Functions(said=lambda layout: runner.overlap(case, layout)))
    assert each is not None, "a layout is legal"
    return each
