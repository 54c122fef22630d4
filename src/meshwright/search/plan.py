"""The search: the grid, its best refined, simulated, explained and ranked."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.estimate import Estimate, Fits, Infeasible, Unmet, Verdict
from meshwright.domain.idle_settings import without_effect
from meshwright.domain.kernels import unpriced
from meshwright.errors import InputError, Message
from meshwright.estimate.overlap import overlap_for
from meshwright.search.finding import MOST_EVALUATED, Found, device_counts, find
from meshwright.search.first import least_of
from meshwright.search.grid import Counts, evaluate_grid
from meshwright.search.idle import idle_nodes
from meshwright.search.learnt import Learnt
from meshwright.search.levers import levers
from meshwright.search.linearity import with_linearity
from meshwright.search.nearest import lacking_kernels, no_legal_layout
from meshwright.search.offloaded import find_moved
from meshwright.search.ranking import RANKING_ERROR, TIE, column, numbered, ranking_error, value
from meshwright.search.reasons import reasons
from meshwright.search.result import PlanResult, RankedPlan, SearchOptions
from meshwright.search.runner import Functions, Runner
from meshwright.search.sizes import on
from meshwright.search.space import make_space, parse_pins
from meshwright.units import gib
from meshwright.words import seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout, Overlap

    Progress = Callable[[int, int], None]

__all__ = ["RANKING_ERROR", "TIE", "device_counts", "overlap_for", "plan", "ranking_error"]

OFFLOADED = "nothing fits without optimizer states in host memory: all plans keep them there"
TIGHT, ROOMY = 0.92, 0.85
"""A plan above the first share of the usable memory is tight; one below the second is a safer neighbour worth naming."""


def plan(
    case: Case, features: Features, options: SearchOptions, progress: Progress | None = None,
    acceptable: Callable[[Layout], bool] | None = None,
    said: Callable[[Layout], Overlap] | None = None,
    runner: Runner | None = None, *, learnt: Learnt | None = None, bare: bool = False, advised: bool = True,
) -> PlanResult:
    """The best layouts of a case.

    ``learnt``: what other searches of the case know. ``bare``: linearity and remarks, which ask for searches of their own, are left
    out. ``advised``: where nothing fits, what would close the gap is searched, too.

    ``runner`` is the framework, which is asked about finalists: those that it refuses are not listed, unless it refuses all that it
    was asked about (``refused`` of the answer). ``acceptable`` and ``said`` are its two questions as functions. Optimizer states go
    to host memory where they are pinned to it, or where nothing fits without.

    Every layout of the grid (docs/json.md#the-grid) is evaluated, or a bound proves that it is not among the best; these
    are refined by knobs finer than the grid, their stages filled anew, simulated where these differ, and ranked by the objective.

    Errors:  ``InputError`` where no layout is legal (which divisibility fails, which batches near by work), or pins contradict.
    Holds:   deterministic; ``legal = evaluated + bounded``. The batch, the sequence and the numerics are never changed.
    """
    if lacking := lacking_kernels(case, features, parse_pins(options.pins)):
        raise InputError(lacking)
    asked = runner if runner is not None else Functions(acceptable=acceptable, said=said)
    learnt = learnt or Learnt()
    found = find(case, features, options, asked, progress, learnt=learnt)
    if found.counts.legal == 0:
        raise InputError(no_legal_layout(case, features, options, parse_pins(options.pins)))
    if not found.plans and (moved := find_moved(case, features, options, asked, progress)) is not None:
        return _told(case, features, *moved, asked, learnt, (Message("plan.offload", OFFLOADED, {}),), bare=bare)
    return _told(case, features, options, found, asked, learnt, bare=bare, advised=advised)


def _told(
    case: Case, features: Features, options: SearchOptions, found: Found, runner: Runner, learnt: Learnt,
    ahead: tuple[Message, ...] = (), *, bare: bool = False, advised: bool = True,
) -> PlanResult:
    """All that is said about what a search found, its remarks after those ``ahead``."""
    counts = found.counts
    winners = found.plans
    if not (found.refused or bare):
        winners = with_linearity(case, features, winners, runner, options, learnt)
    if winners:
        best = winners[0].estimate
        verdict: Verdict = Fits(headroom_bytes=best.memory_capacity_bytes - best.memory_reserved_bytes)
        used = best.layout.world
    else:
        verdict = Infeasible(unmet=(_unmet(case, features, found, options, runner, advised=advised),))
        used = 0
    listed = winners[: options.top]
    notes = () if bare else (*_notes(case, listed, used), *_slower_nodes(case, features, listed, options, runner))
    untried = device_counts(case, options.spare_nodes)[len(found.pools) - 1 :]
    return PlanResult(
        legal=counts.legal, evaluated=counts.evaluated, bounded=counts.bounded, fitting=counts.fitting,
        rejected=dict(sorted((counts.rejected or Counter()).items(), key=lambda item: (-item[1], item[0]))),
        search_s=found.search_s, plans=listed, pareto=_beside(case, found.front, winners), verdict=verdict, used_devices=used,
        idle_devices=case.cluster.num_devices - used if used else 0,
        notes=(*ahead, *notes, *_untried(case, untried)),
        ranking_error_ratio=ranking_error(case), objective=options.objective, riskier=_beside(case, found.riskier, winners),
        refused=found.refused,
    )


def _beside(case: Case, estimates: Sequence[Estimate], winners: Sequence[RankedPlan]) -> tuple[RankedPlan, ...]:
    """Estimates that are shown beside the ranking, as plans of their own list."""
    best = winners[0].estimate if winners else None
    return numbered(estimates, [reasons(case, each, best) for each in estimates], [0] * len(estimates))


def _unmet(case: Case, features: Features, found: Found, options: SearchOptions, runner: Runner, *, advised: bool) -> Unmet:
    """The least demanding layout, what it demands, and what would close the gap."""
    each = least_of(case, found, runner)
    stage = each.stages[each.peak_stage].memory
    terms = {
        "parameters": stage.parameters, "gradients": stage.gradients, "optimizer": stage.optimizer,
        "activations": stage.activations,
        "temporary": stage.temporary, "overhead": stage.overhead,
    }
    found_levers = levers(
        case, features, runner, pins=options.pins, risk=options.risk, balance=options.balance, pinnable=options.pinnable
    ) if advised else ()
    return Unmet(
        constraint=f"memory of one device; the least demanding layout is {each.label}", demand=each.memory_reserved_bytes,
        bound=case.capacity_bytes, unit="B", terms=terms,
        levers=tuple(map(str, found_levers)),
    )


def _untried(case: Case, left: Sequence[int]) -> tuple[Message, ...]:
    """That the search has ended before all numbers of devices; ``left`` begins with the last that was searched."""
    if len(left) < 2:
        return ()
    values = {"idle": (case.cluster.num_devices - left[0]) // case.cluster.devices_per_node, "most": MOST_EVALUATED}
    return (Message("plan.untried", "more than {idle} idle nodes were not tried: {most:,} layouts were looked at before", values),)


def _slower_nodes(
    case: Case, features: Features, winners: Sequence[RankedPlan], options: SearchOptions, runner: Runner
) -> tuple[Message, ...]:
    """That fewer nodes would be faster, where their number divides the batch better and nobody allowed any to stay idle."""
    if options.spare_nodes or options.objective != "step-time" or not winners:
        return ()
    idle = idle_nodes(case, features, parse_pins(options.pins))
    if not idle:
        return ()
    fewer = on(case, case.cluster.num_devices - idle * case.cluster.devices_per_node)
    found = find(fewer, features, replace(options, top=1), runner, able=True)
    own = winners[0].estimate
    if not found.plans or found.plans[0].estimate.expected_step_s >= own.expected_step_s:
        return ()
    best = found.plans[0].estimate
    values = {
        "nodes": fewer.cluster.num_nodes, "all": case.cluster.num_nodes, "idle": idle, "step": seconds(best.step_s),
        "own": seconds(own.step_s), "label": best.label,
    }
    words = "{nodes} of the {all} nodes would be faster, {step} a step instead of {own} ({label}): --spare-nodes {idle}"
    return (Message("plan.fewer-nodes", words, values),)


def _notes(case: Case, winners: Sequence[RankedPlan], used: int) -> tuple[Message, ...]:
    notes: list[Message] = []
    if winners:
        notes += [*unpriced(case, winners[0].layout), *without_effect(case, winners[0].layout)]
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


def better_layouts(case: Case, features: Features, own: Estimate, options: SearchOptions) -> int:
    """How many fitting layouts of the grid, on the devices of a layout, are better than it by the objective."""
    overlap = overlap_for(case, options.risk, features.overlap_words(case.training.optimizer.name))
    space = make_space(case, features, own.layout.world, parse_pins({}))
    bar, better = value(own, options.objective), 0
    for rows in evaluate_grid(space, Counts(rejected=Counter()), overlap=overlap):
        key = column(
            case, options.objective, step_s=rows.mean_s, reserved_bytes=rows.reserved_bytes, devices=own.layout.world
        )
        better += int(((key < bar) & (rows.reserved_bytes <= case.capacity_bytes)).sum())
    return better
