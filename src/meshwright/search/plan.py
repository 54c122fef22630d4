"""The search: the grid, its best refined, simulated, explained and ranked."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.estimate import Estimate, Fits, Infeasible, Unmet, Verdict
from meshwright.errors import InputError, Message
from meshwright.estimate.certainty import expected_s
from meshwright.estimate.overlap import overlap_for
from meshwright.estimate.single import estimate
from meshwright.search.finalists import Candidate, Finalists
from meshwright.search.grid import Counts, evaluate_grid
from meshwright.search.levers import host_short_bytes, levers
from meshwright.search.linearity import with_linearity
from meshwright.search.nearest import no_legal_layout
from meshwright.search.reasons import reasons
from meshwright.search.rebalance import balance_reason, rebalanced
from meshwright.search.refine import refine
from meshwright.search.result import PlanResult, RankedPlan, SearchOptions
from meshwright.search.runner import Functions
from meshwright.search.space import make_space, parse_pins
from meshwright.units import gib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout, Overlap
    from meshwright.search.runner import Runner

    Progress = Callable[[int, int], None]

RANKING_ERROR = 0.03
"""Plans nearer than this are one group: the same dense run differs by up to 3 % between software releases of one device
(docs/sources.md#throughput-by-device), so no model without that knowledge tells them apart."""
TIGHT, ROOMY = 0.92, 0.85
"""A plan above the first share of the usable memory is tight; one below the second is a safer neighbour worth naming."""
TIE = 0.005
"""Plans this near are ranked by whether their upper bound of memory fits, then by time."""
MOST_EVALUATED = 3_000_000
"""Layouts after which no further number of idle nodes is looked at."""
RERANKED = 4
"""Candidates beyond those asked for that are simulated before the list is cut."""


def device_counts(case: Case, spare_nodes: int) -> tuple[int, ...]:
    """All devices, then with up to so many whole nodes idle."""
    per_node = case.cluster.devices_per_node
    return tuple(range(case.cluster.num_devices, 0, -per_node)[: spare_nodes + 1])


def plan(
    case: Case, features: Features, options: SearchOptions, progress: Progress | None = None,
    acceptable: Callable[[Layout], bool] | None = None,
    said: Callable[[Layout], Overlap] | None = None,
    runner: Runner | None = None,
) -> PlanResult:
    """The best layouts of a case.

    ``acceptable`` asks the framework about a finalist; where it refuses all of them, they are listed all the same. ``said``: the
    overlap that the framework has under a finalist's sharding, where that is not the same for all layouts. ``runner``: the
    framework, in the place of both. Optimizer states go to host memory where they are pinned to it, or nothing fits without.

    Every layout of the grid (docs/json.md#the-grid) is evaluated, or left out because its states alone exceed the memory; the best
    are refined by knobs finer than the grid, their stages filled anew, simulated where these differ, and ranked.

    Errors:  ``InputError`` where no layout is legal (which divisibility fails, which batches near by work), or pins contradict.
    Holds:   deterministic; ``legal = evaluated + bounded``. The batch, the sequence and the numerics are never changed.
    """
    pins = parse_pins(options.pins)
    asked = runner if runner is not None else Functions(acceptable=acceptable, said=said)
    if runner is not None:
        acceptable, said = lambda layout: not asked.check(case, layout), lambda layout: asked.overlap(case, layout)
    overlap = overlap_for(case, options.risk, features.overlap_words(case.training.optimizer.name))
    begin = time.perf_counter()
    counts = Counts(rejected=Counter())
    pools: list[Finalists] = []
    numbers = device_counts(case, options.spare_nodes)
    for devices in numbers:
        if counts.evaluated > MOST_EVALUATED:
            break
        space = make_space(case, features, devices, pins)
        finalists = Finalists(space=space, overlap=overlap, objective=options.objective, capacity_bytes=case.capacity_bytes)
        for rows in evaluate_grid(space, counts, overlap=overlap, progress=progress):
            finalists.add(rows)
        pools.append(finalists)
    search_s = time.perf_counter() - begin
    if counts.legal == 0:
        raise InputError(no_legal_layout(case, features, options, pins))
    candidates = _merge(pools, options, acceptable)
    if not candidates:
        candidates = _merge(pools, options, None)
        acceptable = None if candidates else acceptable
    candidates = _with_overlap(candidates, said)
    balanced: list[Layout] = []
    if options.refine and options.balance and options.objective != "memory":
        near = _with_overlap([each for pool in pools for band in pool.near for each in band], said)
        balanced = rebalanced(case, features, candidates, near, pins=pins, acceptable=acceptable)
    winners = _rank(case, [each.layout for each in candidates], balanced, options)
    winners = with_linearity(case, features, winners, overlap=overlap, weak=options.weak)
    if not winners and (with_offload := _offloaded(case, features, options, progress, asked)) is not None:
        return with_offload
    if winners:
        best = winners[0].estimate
        verdict: Verdict = Fits(headroom_bytes=best.memory_capacity_bytes - best.memory_reserved_bytes)
        used = best.layout.world
    else:
        verdict = Infeasible(unmet=(_unmet(case, features, pools, overlap, options, asked),))
        used = 0
    return PlanResult(
        legal=counts.legal, evaluated=counts.evaluated, bounded=counts.bounded, fitting=counts.fitting,
        rejected=dict(sorted((counts.rejected or Counter()).items(), key=lambda item: (-item[1], item[0]))), search_s=search_s,
        plans=winners[: options.top], pareto=_pareto(case, pools, winners), verdict=verdict, used_devices=used,
        idle_devices=case.cluster.num_devices - used if used else 0,
        notes=(*_notes(case, winners, used), *_untried(case, numbers[len(pools) - 1 :])),
        ranking_error_ratio=ranking_error(case),
    )


def _with_overlap(candidates: list[Candidate], said: Callable[[Layout], Overlap] | None) -> list[Candidate]:
    """The candidates with the overlap that the framework has under their sharding."""
    if said is None:
        return candidates
    return [replace(each, layout=replace(each.layout, overlap=said(each.layout))) for each in candidates]


def _merge(pools: Sequence[Finalists], options: SearchOptions, acceptable: Callable[[Layout], bool] | None) -> list[Candidate]:
    """The first candidates of all device counts, best first; the best acceptable variant of each shape stands for it."""
    found: list[Candidate] = []
    for number, pool in enumerate(pools):
        own = refine(pool.space, pool) if options.refine else pool.best
        found.extend(replace(candidate, order=candidate.order + (number << 40)) for candidate in own)
    case = pools[0].space.case
    found.sort(key=lambda c: (_key(case, c, options), c.order))
    able = (each for each in found if acceptable is None or acceptable(each.layout))
    trained = not pools[0].space.case.training.weights_frozen
    return list(islice(_one_per_shape(able, trained=trained), options.top + RERANKED))


def _key(case: Case, candidate: Candidate, options: SearchOptions) -> float:
    if options.objective == "memory":
        return candidate.reserved_bytes
    devices = candidate.layout.world if options.objective == "throughput-per-device" else 1
    return devices * float(expected_s(case, np.asarray(candidate.step_s), np.asarray(candidate.reserved_bytes)))


def _one_per_shape(candidates: Iterable[Candidate], *, trained: bool) -> Iterator[Candidate]:
    """The first of each shape.

    ``trained``: the weights are; where they are frozen, ZeRO 0 to 2 differ in next to nothing.
    """
    seen: set[tuple[object, ...]] = set()
    for candidate in candidates:
        shape = _shape(candidate.layout, trained=trained)
        if shape not in seen:
            seen.add(shape)
            yield candidate


def _shape(layout: Layout, *, trained: bool) -> tuple[object, ...]:
    """What layouts of one idea share: those that differ only in recompute, shard group or split are variants of it."""
    return (
        layout.tensor_parallel, layout.context_parallel, layout.pipeline_parallel, layout.data_parallel, layout.expert_parallel,
        layout.expert_tensor_parallel, layout.microbatch_sequences, layout.virtual_stages > 1,
        layout.zero_stage if trained else layout.parameter_shards > 1, layout.schedule,
    )


def _rank(case: Case, layouts: Sequence[Layout], balanced: Sequence[Layout], options: SearchOptions) -> tuple[RankedPlan, ...]:
    """Estimates of the first layouts, with simulated bubbles, in their final order and in groups that cannot be told apart.

    ``balanced``: those whose stages were filled anew; they take the place of others of their shape where they are clearly better.
    """
    trained = not case.training.weights_frozen
    plain, anew = (_best_of_shapes(case, each, options, trained=trained) for each in (layouts, balanced))
    best = {shape: each for shape, each in plain.items() if shape not in anew or not _clearly_better(anew[shape], each, options)}
    estimates = sorted({**anew, **best}.values(), key=lambda each: _value(each, options))
    apart = ranking_error(case)
    if estimates and options.refine and options.objective == "step-time":
        # Inside TIE nobody can tell plans apart: those whose upper bound fits, too, go first.
        bar = _value(estimates[0], options) * (1.0 + TIE)
        estimates.sort(key=lambda each: (_value(each, options) > bar, _risky(each) and _value(each, options) <= bar))
    plans: list[RankedPlan] = []
    group, anchor = 0, None
    for rank, each in enumerate(estimates[: options.top], start=1):
        value = _value(each, options)
        if anchor is None or value > anchor * (1.0 + apart):
            group, anchor = group + 1, value
        why = reasons(case, each, estimates[0] if rank > 1 else None)
        shape = _shape(each.layout, trained=trained)
        if shape not in best:
            why = (*why, balance_reason(case, each, plain.get(shape)))
        plans.append(RankedPlan(rank=rank, label=each.label, layout=each.layout, estimate=each, reasons=why, group=group))
    return tuple(plans)


def _best_of_shapes(
    case: Case, layouts: Sequence[Layout], options: SearchOptions, *, trained: bool
) -> dict[tuple[object, ...], Estimate]:
    """The best fitting estimate of each shape."""
    every = sorted((each for each in (estimate(case, layout) for layout in layouts) if each.fits), key=lambda e: _value(e, options))
    return {_shape(each.layout, trained=trained): each for each in reversed(every)}


def _clearly_better(one: Estimate, other: Estimate, options: SearchOptions) -> bool:
    """Whether the difference of two estimates is worth a stranger layout."""
    return _value(one, options) * (1.0 + TIE) < _value(other, options)


def ranking_error(case: Case) -> float:
    """How far two plans of a case must differ to be told apart: what the calibration found, or the noise of published runs."""
    known = case.calibration.uncertainty
    return known.ranking_ratio if known else RANKING_ERROR


def _risky(each: Estimate) -> bool:
    """Whether the upper bound of the memory exceeds what may be used."""
    return each.memory_upper_bytes > each.memory_capacity_bytes


def _value(each: Estimate, options: SearchOptions) -> float:
    if options.objective == "memory":
        return each.memory_reserved_bytes
    devices = each.layout.world if options.objective == "throughput-per-device" else 1
    return devices * each.step_s / max(each.memory_fit_probability, 1e-3)


def _pareto(case: Case, pools: Sequence[Finalists], winners: Sequence[RankedPlan]) -> tuple[RankedPlan, ...]:
    """At most eight points of the front of step time, memory and devices, spread over it; none dominates another."""
    front = sorted((c for pool in pools for c in pool.front), key=lambda c: (c.step_s, c.reserved_bytes, c.order))
    kept: list[Candidate] = []
    for candidate in front:
        if not any(c.reserved_bytes <= candidate.reserved_bytes and c.layout.world <= candidate.layout.world for c in kept):
            kept.append(candidate)
    if len(kept) > 8:
        kept = [kept[round(i * (len(kept) - 1) / 7)] for i in range(8)]
    points = [estimate(case, candidate.layout) for candidate in kept]
    best = winners[0].estimate if winners else None
    if best is not None and all(point.layout != best.layout for point in points):
        points.append(best)
    figures = [(point.step_s, point.memory_reserved_bytes, point.layout.world) for point in points]
    points = [
        point for point, own in zip(points, figures, strict=True)
        if not any(other != own and all(a <= b for a, b in zip(other, own, strict=True)) for other in figures)
    ]
    points.sort(key=lambda point: (point.step_s, point.memory_reserved_bytes))
    return tuple(
        RankedPlan(rank=rank, label=point.label, layout=point.layout, estimate=point, reasons=reasons(case, point, best), group=0)
        for rank, point in enumerate(points, start=1)
    )


def _offloaded(
    case: Case, features: Features, options: SearchOptions, progress: Progress | None, runner: Runner
) -> PlanResult | None:
    """The plans with optimizer states in host memory, where the framework has that and any of them fits."""
    if "offload" in options.pins or not features.optimizer_offload:
        return None
    moved = replace(options, pins={**options.pins, "offload": "optimizer"})
    try:
        found = plan(case, features, moved, progress, runner=_InHostMemory(runner=runner))
    except InputError:  # no layout is legal with it
        return None
    note = Message("plan.offload", "nothing fits without optimizer states in host memory: all plans keep them there", {})
    short = not found.plans or host_short_bytes(case, found.plans[0].estimate)
    return None if short else replace(found, notes=(note, *found.notes))


@dataclass(frozen=True, slots=True, kw_only=True)
class _InHostMemory:
    """A framework on nodes that have so much memory and no more."""

    runner: Runner

    def check(self, case: Case, layout: Layout) -> Sequence[object]:
        """Why it cannot run a layout; or the layout where a node's memory does not hold what it keeps there."""
        return self.runner.check(case, layout) or ((layout,) if host_short_bytes(case, estimate(case, layout)) else ())

    def overlap(self, case: Case, layout: Layout) -> Overlap:
        """What it runs beside compute under a layout."""
        return self.runner.overlap(case, layout)


def _unmet(
    case: Case, features: Features, pools: Sequence[Finalists], overlap: Overlap, options: SearchOptions, runner: Runner
) -> Unmet:
    """The least demanding layout, what it demands, and what would close the gap."""
    least: Candidate | None = None
    for pool in pools:
        for rows in evaluate_grid(pool.space, Counts(rejected=Counter()), overlap=overlap, bound=False):
            pool.add(rows)
        if pool.least is not None and (least is None or pool.least.reserved_bytes < least.reserved_bytes):
            least = pool.least
    assert least is not None, "legal layouts have a least demanding one"
    each = estimate(case, least.layout)
    stage = each.stages[each.peak_stage].memory
    terms = {
        "parameters": stage.parameters, "gradients": stage.gradients, "optimizer": stage.optimizer,
        "activations": stage.activations,
        "temporary": stage.temporary, "overhead": stage.overhead,
    }
    return Unmet(
        constraint=f"memory of one device; the least demanding layout is {each.label}", demand=each.memory_reserved_bytes,
        bound=case.capacity_bytes, unit="B", terms=terms,
        levers=tuple(map(str, levers(case, features, runner, pins=options.pins, risk=options.risk))),
    )


def _untried(case: Case, left: Sequence[int]) -> tuple[Message, ...]:
    """That the search has ended before all numbers of devices; ``left`` begins with the last that was searched."""
    if len(left) < 2:
        return ()
    values = {"idle": (case.cluster.num_devices - left[0]) // case.cluster.devices_per_node, "most": MOST_EVALUATED}
    return (Message("plan.untried", "more than {idle} idle nodes were not tried: {most:,} layouts were looked at before", values),)


def _notes(case: Case, winners: Sequence[RankedPlan], used: int) -> tuple[Message, ...]:
    notes: list[Message] = []
    if winners and used < case.cluster.num_devices:
        notes.append(
            Message(
                "plan.idle",
                "{used} of {total} devices are used, {idle} stay idle",
                {"used": used, "total": case.cluster.num_devices, "idle": case.cluster.num_devices - used},
            )
        )
    safer = _safer(winners)
    if safer is not None:
        best = winners[0].estimate
        notes.append(
            Message(
                "plan.safer",
                "plan {rank} is {slower:.1%} slower and needs {need} instead of {best}: the safer first run",
                {
                    "rank": safer.rank,
                    "slower": safer.estimate.step_s / best.step_s - 1.0,
                    "need": gib(safer.estimate.memory_reserved_bytes),
                    "best": gib(best.memory_reserved_bytes),
                },
            )
        )
    return tuple(notes)


def _safer(winners: Sequence[RankedPlan]) -> RankedPlan | None:
    """The roomiest plan of the winner's group, where the winner fills its device and the other does not."""
    if not winners or winners[0].estimate.memory_reserved_bytes < TIGHT * winners[0].estimate.memory_capacity_bytes:
        return None
    roomy = [
        each for each in winners[1:]
        if each.group == 1 and each.estimate.memory_reserved_bytes < ROOMY * each.estimate.memory_capacity_bytes
    ]
    return roomy[0] if roomy else None


def layout_rank(case: Case, features: Features, layout: Layout, options: SearchOptions) -> tuple[int, float, float]:
    """Place of a layout among the fitting layouts of the grid, with its step time and reserved bytes.

    Units:   rank from 1, s, bytes.
    """
    from meshwright.estimate.many import evaluate_many

    step_s, reserved = (float(column[0]) for column in evaluate_many(case, [layout]))
    overlap = overlap_for(case, options.risk, features.overlap_words(case.training.optimizer.name))
    space = make_space(case, features, layout.world, parse_pins({}))
    faster = 0
    for rows in evaluate_grid(space, Counts(rejected=Counter()), overlap=overlap):
        faster += int(((rows.step_s < step_s) & (rows.reserved_bytes <= case.capacity_bytes)).sum())
    return faster + 1, step_s, reserved
