"""Labels of answers: what every layout of a framework does by default goes unsaid, so that the label reads back the same.

The default overlap is that of the search's default risk level, for every verb and whatever ``--risk`` was: a label then
means one layout wherever it is given.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.label import label
from meshwright.search.plan import overlap_for
from meshwright.search.result import SearchOptions

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Overlap
    from meshwright.search.result import Comparison, PlanResult, RankedPlan


def default_overlap(case: Case) -> Overlap:
    """What runs beside compute where a label is silent."""
    return overlap_for(case, SearchOptions().risk)


def named(estimate: Estimate, overlap: Overlap) -> Estimate:
    """The estimate under the label that reads back as its layout."""
    return replace(estimate, label=label(estimate.layout, overlap=overlap))


def named_plan(plan: RankedPlan, overlap: Overlap) -> RankedPlan:
    """The same for a plan."""
    return replace(plan, label=label(plan.layout, overlap=overlap), estimate=named(plan.estimate, overlap))


def named_result(result: PlanResult, overlap: Overlap) -> PlanResult:
    """The same for every plan of a search."""
    plans, pareto = (tuple(named_plan(plan, overlap) for plan in each) for each in (result.plans, result.pareto))
    return replace(result, plans=plans, pareto=pareto)


def named_comparison(comparison: Comparison, overlap: Overlap) -> Comparison:
    """The same for both sides of a comparison."""
    own = named(comparison.estimate, overlap)
    return replace(comparison, label=own.label, estimate=own, winner=named_plan(comparison.winner, overlap))
