"""Why not mine: a layout of the user's beside the winner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.estimate.single import estimate
from meshwright.search.legality import layout_refusals
from meshwright.search.plan import better_layouts
from meshwright.search.ranking import value
from meshwright.search.result import Comparison, SearchOptions
from meshwright.units import gib
from meshwright.words import percent, seconds

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.search.result import Objective, PlanResult


def compare(case: Case, features: Features, result: PlanResult, layout: Layout, options: SearchOptions | None = None) -> Comparison:
    """The user's layout beside the winner: its rules, its rank, its terms, and what would have to be true for it to win.

    Errors:  none; a result without plans compares with nothing and is the caller's to refuse.
    """
    assert result.plans, "there is a winner to compare with"
    winner = result.plans[0]
    refused = layout_refusals(case, features, layout)
    own = estimate(case, layout)
    options = options or SearchOptions()
    rank = next((plan.rank for plan in result.plans if plan.label == own.label), None)
    better_listed = better = None
    if not refused and own.fits:
        bar = value(own, options.objective)
        better_listed = sum(value(plan.estimate, options.objective) < bar for plan in result.plans)
        better = better_layouts(case, features, own, options)
    return Comparison(
        label=own.label,
        estimate=own,
        refused_because=refused,
        rank=rank,
        better_listed=better_listed,
        better=better,
        winner=winner,
        needed=needed(own, winner.estimate, refused, options.objective),
    )


def needed(
    own: Estimate, winner: Estimate, refused: tuple[str, ...], objective: Objective = "step-time"
) -> tuple[str, ...]:
    """What would have to be true for a layout to win, one sentence each."""
    lines = [f"the rule would have to fall: {reason}" for reason in refused]
    gap = own.step_s - winner.step_s
    more = own.memory_reserved_bytes - winner.memory_reserved_bytes
    if objective == "memory" and own.fits:
        if not refused:
            less = f"stage {own.peak_stage} would have to need {gib(more)} less memory"
            lines.append(less if more > 0 else "nothing: it needs no more memory than the winner")
        return tuple(lines)
    if not own.fits:
        short = own.memory_reserved_bytes - own.memory_capacity_bytes
        lines.append(f"stage {own.peak_stage} would have to need {gib(short)} less memory")
    if own.fits and not refused and own.expected_step_s <= winner.expected_step_s:
        lines.append("nothing: it is expected to be as fast as the winner, or faster")
    elif own.fits and gap <= 0:
        lines.append(_risk(own, winner))
    if gap <= 0:
        return tuple(lines)
    ours = {term.name: term.value for term in own.terms}
    theirs = {term.name: term.value for term in winner.terms}
    worse = sorted(((ours[name] - theirs.get(name, 0.0), name) for name in ours), reverse=True)
    for loss, name in worse[:3]:
        if loss <= 0.05 * gap:
            break
        if loss >= gap:
            lines.append(
                f"{name} would have to take {seconds(ours[name] - gap)} instead of {seconds(ours[name])}"
                f" ({percent(gap / ours[name], 0)} less)"
            )
        else:
            lines.append(
                f"{name} costs {seconds(loss)} more than in the winner;"
                f" without that, it would be {percent((gap - loss) / winner.step_s)} slower"
            )
    return tuple(lines)


def _risk(own: Estimate, winner: Estimate) -> str:
    """Why a layout that takes less time than the winner is expected to take more."""
    bar, fits = winner.expected_step_s, f"fits with {percent(own.memory_fit_probability, 0)} probability"
    if own.mean_step_s <= bar:
        return f"it takes less time where it fits, but {fits}: it would win from {percent(own.mean_step_s / bar)} on"
    share, most = own.chance_s / own.step_s, bar * own.memory_fit_probability / own.step_s - 1.0
    stalls = f"pipeline messages that stall by chance add {percent(share)} on average"
    end = f": it would win below {percent(most)}" if most > 0.0 else f", and it {fits}"
    return f"it takes less time in most runs, but {stalls}{end}"
