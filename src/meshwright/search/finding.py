"""The layouts of a case on its devices, searched and put in order: the grid, its best refined, filled anew and simulated."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, structs

from meshwright.domain.label_reader import overlap_of
from meshwright.estimate.overlap import overlap_for
from meshwright.search import ranking
from meshwright.search.again import again, other_kinds
from meshwright.search.asked import Asked
from meshwright.search.finalists import Finalists
from meshwright.search.grid import Counts, open_grid
from meshwright.search.learnt import Learnt
from meshwright.search.reasons import reasons
from meshwright.search.rebalance import balance_reason, evened, rebalanced, rechunked
from meshwright.search.refine import around, fitting, over_other_ranks, refine
from meshwright.search.space import make_space, parse_pins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout, Overlap
    from meshwright.estimate.known_work import KnownWork
    from meshwright.search.finalists import Candidate
    from meshwright.search.result import RankedPlan, SearchOptions
    from meshwright.search.runner import Runner
    from meshwright.search.space import Space

    Progress = Callable[[int, int], None]

MOST_EVALUATED = 3_000_000
"""Layouts after which no further number of idle nodes is looked at."""
LISTED, RERANKED = 10, 4
"""So many candidates are simulated whatever is asked for, and some beyond what is: the first plan does not depend on ``top``."""
DEEPER = 4000
"""Fitting layouts that the framework is asked about one by one, where it refuses all of the best."""
SHARDED_ANEW = 2
"""Best layouts whose filled stages are tried over other shard groups. Our judgement."""
ON_FRONT = 8
"""Points of the grid's front that are simulated."""


class Found(Struct, frozen=True, kw_only=True):
    """What a search found, before anything is said about it."""

    counts: Counts
    pools: tuple[Finalists, ...]
    overlap: Overlap
    search_s: float
    plans: tuple[RankedPlan, ...]
    """All that were simulated, one of each shape, best first."""
    front: tuple[Estimate, ...]
    riskier: tuple[Estimate, ...]
    refused: int = 0
    """How many layouts the framework was asked about where it refused every one of them; the plans are those that it refuses."""


def device_counts(case: Case, spare_nodes: int) -> tuple[int, ...]:
    """All devices, then with up to so many whole nodes idle."""
    per_node = case.cluster.devices_per_node
    return tuple(range(case.cluster.num_devices, 0, -per_node)[: spare_nodes + 1])


def find(
    case: Case, features: Features, options: SearchOptions, runner: Runner, progress: Progress | None = None, *, lean: bool = False,
    able: bool = False, learnt: Learnt | None = None,
) -> Found:
    """Every layout of the grid evaluated, or left out because its states alone exceed the memory; the best in their order.

    The best are refined by knobs finer than the grid, their stages filled anew, and simulated where these differ. Only those that
    the framework runs are listed, as long as it runs any. ``lean``: enough for the best one: few are simulated, and no front.
    ``able``: those that it refuses are not wanted either where it runs none, and no plan is listed then. ``learnt``: what other
    searches of the case know, and get to know from this one.

    Holds:   deterministic; ``legal = evaluated + bounded``. No plan, and no pool with a legal layout, where none is legal.
    """
    pins = parse_pins(options.pins)
    able_words = features.overlap_words(case.training.optimizer.name)
    overlap = overlap_for(case, options.risk, able_words) if pins.overlap is None else overlap_of(pins.overlap)
    begin = time.perf_counter()
    counts = Counts(rejected=Counter())
    levels = [overlap, *(milder(overlap) if pins.overlap is None else ())]
    leveled: list[list[Finalists]] = [[] for _ in levels]
    for devices in device_counts(case, options.spare_nodes):
        if counts.possible > MOST_EVALUATED:
            break
        for place, (level, pools) in enumerate(zip(levels, leveled, strict=True)):
            told = (counts, progress) if place == 0 else (None, None)
            pools.append(_pool(case, features, options, level, devices, *told, front=not lean))
    search_s = time.perf_counter() - begin
    asked = Asked(case=case, runner=runner, learnt=learnt or Learnt(), keeps_overlap=pins.overlap is not None,
                   most=RERANKED + (options.top if lean else max(options.top, LISTED)))
    every = [pool for pools in leveled for pool in pools]
    refused = 0
    candidates, balanced = _finalists(case, features, options, leveled, asked, lean=lean)
    if not candidates and not balanced and counts.fitting:
        refused = len(asked.refused)
        if able:
            return Found(
                counts=counts, pools=tuple(leveled[0]), overlap=overlap, search_s=search_s, plans=(), front=(), riskier=(),
                refused=refused,
            )
        asked = structs.replace(asked, everything=True)
        candidates, balanced = _finalists(case, features, options, leveled[:1], asked, lean=lean)
    front = [each for pool in every for each in ranking.spread(pool.front, ON_FRONT)] if not lean else []
    of_grid = [each for each in front if asked.able(each.layout)]
    edge = [asked.said(each).layout for each in of_grid]
    plans, rivals = _ranked(asked, [each.layout for each in candidates], balanced, edge, options)
    best = [plan.estimate for plan in plans]
    return Found(
        counts=counts, pools=tuple(leveled[0]), overlap=overlap, search_s=search_s, plans=plans, refused=refused,
        front=tuple(ranking.front([*best, *rivals])), riskier=tuple(ranking.riskier([*best, *rivals], best[0]) if best else ()),
    )


def milder(overlap: Overlap) -> tuple[Overlap, ...]:
    """What may run beside compute where a framework refuses some of it for a layout, the most first.

    A framework that overlaps the exchanges of experts does so under some schedules and recomputations alone; every other
    layout is a rival all the same, without them.
    """
    fewer = (replace(overlap, expert=False), replace(overlap, expert=False, tensor=False))
    return tuple(each for each in dict.fromkeys(fewer) if each != overlap)


def _pool(
    case: Case, features: Features, options: SearchOptions, overlap: Overlap, devices: int, counts: Counts | None = None,
    progress: Progress | None = None, *, front: bool = True,
) -> Finalists:
    """The best of the grid on so many devices; ``counts`` counts what was looked at."""
    return _filled(Finalists(
        space=make_space(case, features, devices, parse_pins(options.pins)), overlap=overlap, objective=options.objective,
        capacity_bytes=case.capacity_bytes, front_wanted=front,
    ), counts, progress)


def _filled(pool: Finalists, counts: Counts | None = None, progress: Progress | None = None) -> Finalists:
    """A pool with the grid of its space looked at."""
    seen = counts if counts is not None else Counts(rejected=Counter())
    grid = open_grid(pool.space, seen, overlap=pool.overlap, bar=pool, led=not pool.front_wanted)
    if grid is not None:
        for rows in grid.rows(progress):
            pool.add(rows)
        pool.grid = grid
    return pool


def _finalists(
    case: Case, features: Features, options: SearchOptions, leveled: Sequence[Sequence[Finalists]], asked: Asked, *, lean: bool
) -> tuple[list[Candidate], list[Layout]]:
    """Of each level of overlap the candidates that the framework runs, and the same with stages filled anew.

    Where it runs none of the best, the best thousands are asked. Levels do not compete for places: a search that may overlap
    more finds at least what one finds that may not.
    """
    pins, candidates, balanced = parse_pins(options.pins), [], []
    for pools in leveled:
        refined = _refined(pools, options, asked.learnt.work, lean=lean)
        own = asked.first(refined)
        if refined and not own:
            own = _deeper(case, features, options, pools, asked)
        candidates += own
        if not options.refine or not options.balance or options.objective == "memory":
            continue
        near = [[asked.said(each) for pool in pools for each in pool.near[band]] for band in range(len(pools[0].near))]
        freed = pins.chunked and features.uneven_stages
        anew = rebalanced(
            case, features, own, near, pins=pins, simulated=asked.simulated(own, options), acceptable=asked.able,
            refined=refined, said=asked.said, freed=_freed(case, features, options, pools[0].overlap, asked) if freed else ((), ()),
            work=asked.learnt.work,
        )
        best = asked.best([*(each.layout for each in own), *anew], options) if anew else []
        balanced += [*anew, *rechunked(case, features, best, anew, pins=pins, acceptable=asked.able, work=asked.learnt.work)]
        filled = [layout for layout in best[:SHARDED_ANEW] if layout in anew]
        balanced += _sharded_anew(pools[0].space, filled, options, asked)
    return candidates, balanced


def _sharded_anew(space: Space, filled: Sequence[Layout], options: SearchOptions, asked: Asked) -> Iterator[Layout]:
    """Of layouts whose stages were filled anew the best shard group each, where it is another one.

    Groups are varied before stages are filled; the first of a pipeline is filled, and its own group need not be the best then.
    The pipeline stays as it is, so its closed form tells which group is.
    """
    for base in filled:
        best = _sorted(space.case, [over_other_ranks(space, base, work=asked.learnt.work)], options)[:1]
        yield from (each.layout for each in best if each.layout != base and asked.able(each.layout))


def _freed(
    case: Case, features: Features, options: SearchOptions, overlap: Overlap, asked: Asked
) -> tuple[list[Candidate], list[list[Candidate]]]:
    """The first candidates of each shape, and the nearly fitting ones, without pins of the chunks.

    Chunks that cut the layers into unequal stages may fit only where these are filled anew; the grid knows their pipelines under
    other numbers of chunks.
    """
    space = make_space(case, features, case.cluster.num_devices, parse_pins(options.pins).freed)
    pool = _filled(Finalists(
        space=space, overlap=overlap, objective=options.objective, capacity_bytes=case.capacity_bytes, front_wanted=False,
    ))
    shapes: dict[tuple[object, ...], Candidate] = {}
    for each in _refined([pool], options, asked.learnt.work, lean=False):
        key = ranking.shape(each.layout, trained=not case.training.weights_frozen)
        if key not in shapes and len(shapes) < asked.most and asked.able(each.layout):
            shapes[key] = asked.said(each)
    return [*shapes.values()], [[asked.said(each) for each in band] for band in pool.near]


def _refined(pools: Sequence[Finalists], options: SearchOptions, work: KnownWork, *, lean: bool) -> list[Candidate]:
    """The grid's best of all numbers of devices and their neighbours, best first."""
    case, near = pools[0].space.case, [refine(pool.space, pool, work=work) if options.refine else pool.best for pool in pools]
    found = _sorted(case, near, options)
    more = [[*again(pool, found), *other_kinds(pool, found)] for pool in pools] if options.refine and not lean else []
    return _sorted(case, [[*own, *other] for own, other in zip(near, more, strict=True)], options) if any(more) else found


def _sorted(case: Case, pools: Sequence[Sequence[Candidate]], options: SearchOptions) -> list[Candidate]:
    """Candidates of several numbers of devices, best first."""
    every = [each for pool in pools for each in pool]
    places = [(number, each.order) for number, pool in enumerate(pools) for each in pool]
    worth = ranking.column(
        case, options.objective, step_s=np.array([each.step_s for each in every]),
        reserved_bytes=np.array([each.reserved_bytes for each in every]), devices=np.array([each.layout.world for each in every]),
    )
    ranked = sorted(zip(worth.tolist(), places, every, strict=True), key=lambda row: row[:2])
    return [each for _, _, each in ranked]


def _deeper(
    case: Case, features: Features, options: SearchOptions, pools: Sequence[Finalists], asked: Asked
) -> list[Candidate]:
    """The first candidates that the framework runs among the best thousands, and their neighbours."""
    found: list[list[Candidate]] = []
    for pool in pools:
        deep = _filled(Finalists(
            space=pool.space, overlap=pool.overlap, objective=options.objective, capacity_bytes=case.capacity_bytes,
            keep=DEEPER, near_wanted=False, front_wanted=False,
        ))
        own = asked.first(deep.best)
        known = {each.layout for each in own}
        near = around(pool.space, list(known)) if options.refine else []
        tried = fitting(pool.space, near, known=known, after=deep.seen, work=asked.learnt.work)
        found.append([*own, *tried])
    return asked.first(_sorted(case, found, options))


def _ranked(
    asked: Asked, layouts: Sequence[Layout], balanced: Sequence[Layout], edge: Sequence[Layout], options: SearchOptions
) -> tuple[tuple[RankedPlan, ...], list[Estimate]]:
    """The best of each shape with simulated bubbles, in order and in groups that cannot be told apart; and points of the front.

    ``balanced``: those whose stages were filled anew; they take the place of others of their shape where they are clearly better.
    """
    case, objective = asked.case, options.objective
    trained = not case.training.weights_frozen
    asked.learnt.know(case, (*edge, *layouts, *balanced))
    rivals = [each for each in map(asked.estimate, edge) if each.fits]
    plain = ranking.best_of_shapes([*map(asked.estimate, layouts), *rivals], objective, trained=trained)
    anew = ranking.best_of_shapes([*map(asked.estimate, balanced)], objective, trained=trained)
    kept = {key: each for key, each in plain.items() if key not in anew or not ranking.clearly_better(anew[key], each, objective)}
    estimates = ranking.in_order({**anew, **kept}.values(), objective)
    even = {key: evened(each.layout) for key, each in anew.items() if key not in kept and key not in plain}
    asked.learnt.know(case, even.values())
    why = []
    for place, each in enumerate(estimates):
        own = reasons(case, each, estimates[0] if place else None)
        key = ranking.shape(each.layout, trained=trained)
        if key not in kept:
            own = (*own, balance_reason(case, each, plain.get(key) or asked.estimate(even[key])))
        why.append(own)
    together = ranking.groups(estimates, objective, ranking.ranking_error(case))
    return ranking.numbered(estimates, why, together), rivals
