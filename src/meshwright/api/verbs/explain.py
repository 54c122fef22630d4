"""``explain``: why a layout is as fast as it is, and where the rest goes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from meshwright.api.door import door
from meshwright.api.fields import Faults, Field, Values
from meshwright.api.legality import check_layout
from meshwright.api.options import CASE, FORCE, HTML, LAYOUT, SPARE_NODES
from meshwright.api.paged import paged
from meshwright.api.request import Answer, CaseRequest, Progress, ticking
from meshwright.errors import Message, NoAnswerError

if TYPE_CHECKING:
    from meshwright.api.cases import Setup
    from meshwright.domain.estimate import Estimate
    from meshwright.explain import Explanation
    from meshwright.search.result import PlanResult


class ExplainRequest(CaseRequest, frozen=True, kw_only=True):
    """A case, and a layout of it; without one, the first plan is explained."""

    FIELDS: ClassVar[tuple[Field, ...]] = (*CASE, SPARE_NODES, LAYOUT, HTML, FORCE)

    spare_nodes: int | str | None = None
    layout: str | None = None
    html: str | Path | None = None
    """The file of its page."""
    force: bool = False


class ExplainAnswer(Answer, frozen=True, kw_only=True):
    """The prediction of the layout, and what there is to say about it."""

    given: Setup
    estimate: Estimate
    explanation: Explanation

    def to_json(self) -> dict[str, Any]:
        """The document of ``explain --json``."""
        from meshwright.api.views.explain import explanation_view

        return explanation_view(self.given.case, self.estimate, self.explanation)


@door
@paged
def explain(request: ExplainRequest, *, progress: Progress | None = None) -> ExplainAnswer:
    """Explain the layout that was given, or else the best one.

    Errors:  ``InputError`` with every fault of the request; ``NoAnswerError`` where nothing fits and no layout was given.
    """
    from meshwright.api.cases import drafted
    from meshwright.estimate import estimate as predict
    from meshwright.explain import explain as explained
    from meshwright.search import linearity_of

    faults = Faults()
    values = request.read(faults)
    draft = drafted(values, faults)
    given, layout = draft.setup, draft.layout(values, faults)
    limits: list[str] = []
    if given is not None and layout is not None:
        with faults.at("layout"):
            limits = check_layout(given, layout, framework_asked="framework" in values)
    faults.check()
    assert given is not None, "faults.check() raises where there is no case"
    first = layout is None
    if layout is None:
        given, estimate = _best(given, values, progress)
    else:
        estimate = linearity_of(given.case, given.framework.features, predict(given.case, layout), given.framework)
    if limits:
        estimate = replace(estimate, fit_probability=0.0)
    first = first and estimate.layout.world == given.case.cluster.num_devices
    explanation = explained(given.case, estimate.layout, given.framework.features, estimate, given.framework, first=first)
    return ExplainAnswer(given=given, estimate=estimate, explanation=explanation)


def _best(given: Setup, values: Values, progress: Progress | None) -> tuple[Setup, Estimate]:
    """The first plan with its linearity and the case that it is of, as ``plan`` finds both; where nothing fits there is nothing to
    explain."""
    from meshwright import search
    from meshwright.api.packed_search import any_packs, best_packs
    from meshwright.search.result import SearchOptions

    options = SearchOptions(spare_nodes=values.get("spare_nodes", 0), pinnable=False)

    def searched(one: Setup) -> PlanResult:
        found = search.plan(
            one.case, one.framework.features, options, progress=ticking(progress, "layouts"), runner=one.framework,
        )
        if found.refused:
            words = "{framework} runs none of the best layouts that fit: `meshwright plan` says why, and who would"
            raise NoAnswerError(Message("explain.refused", words, {"framework": one.framework.title}))
        return found

    given, result, _ = best_packs(given, searched) if any_packs(given, values) else (given, searched(given), ())
    if not result.plans:
        from meshwright.domain.estimate import Infeasible

        unmet = result.verdict.unmet if isinstance(result.verdict, Infeasible) else ()
        would = [Message("explain.lever", "{lever}", {"lever": lever}) for each in unmet for lever in each.levers]
        raise NoAnswerError([Message("explain.nothing", "nothing fits; what would close the gap:", {}), *would])
    return given, result.plans[0].estimate
