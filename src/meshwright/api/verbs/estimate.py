"""``estimate``: one layout, predicted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, overload

from meshwright.api.anchoring import ANCHOR, probed, with_anchors
from meshwright.api.door import refuse
from meshwright.api.fields import Faults, Field
from meshwright.api.legality import check_layout
from meshwright.api.options import CASE, FORCE, HTML, LAYOUT, SPARE_NODES
from meshwright.api.paged import paged
from meshwright.api.request import Answer, CaseRequest, Progress
from meshwright.errors import fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.api.anchoring import Anchor, Small
    from meshwright.api.cases import Setup
    from meshwright.api.fields import Values
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout
    from meshwright.evidence.rows.near import Near


class EstimateRequest(CaseRequest, frozen=True, kw_only=True):
    """A case and a layout of it."""

    FIELDS: ClassVar[tuple[Field, ...]] = (*CASE, SPARE_NODES, LAYOUT, ANCHOR, HTML, FORCE)

    spare_nodes: int | str | None = None
    layout: str | None = None
    """A label, as in ``tp8 pp4 mb1 sp zero1``."""
    anchor_memory: Sequence[str] = ()
    """Measured peaks: ``STAGE=BYTES`` or ``PROBE_PLAN=BYTES``."""
    html: str | Path | None = None
    """The file of its page."""
    force: bool = False


class EstimateAnswer(Answer, frozen=True, kw_only=True):
    """The prediction, and what stands beside it."""

    given: Setup
    estimate: Estimate
    limits: tuple[str, ...]
    """Why the framework could not run it."""
    closest: Near | None
    """The published run that is nearest to the case."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What nothing is known of, and what was chosen without effect."""
        from meshwright.domain.idle_settings import without_effect
        from meshwright.domain.kernels import unpriced

        case, layout = self.given.case, self.estimate.layout
        return tuple(map(str, (*unpriced(case, layout), *without_effect(case, layout))))

    def to_json(self) -> dict[str, Any]:
        """The document of ``estimate --json``."""
        from meshwright.api.views.estimates import estimate_view, launch_view
        from meshwright.api.views.packing import packing_view
        from meshwright.api.views.runs import closest_view

        more = {"request": self.given.request, "framework_limits": list(self.limits), "closest_run": closest_view(self.closest)}
        more["notes"] = list(self.notes)
        more["launch"] = launch_view(self.given.case, self.estimate.layout)
        return {**estimate_view(self.estimate), **more, **packing_view(self.given, self.estimate)}


@overload
def estimate(request: EstimateRequest, *, progress: Progress | None = None) -> EstimateAnswer: ...
@overload
def estimate(request: Case, layout: Layout) -> Estimate: ...
@paged
def estimate(
    request: EstimateRequest | Case, layout: Layout | None = None, *, progress: Progress | None = None
) -> EstimateAnswer | Estimate:
    """Predict a layout: memory by stage, time by cause, MFU. A case and a layout are answered by the bare prediction.

    Errors:  ``InputError`` with every fault of the request, and for a layout that makes no sense.
    """
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.estimate import estimate as predict
    from meshwright.evidence.rows.near import closest
    from meshwright.search import linearity_of

    if isinstance(request, Case):
        if not isinstance(layout, Layout):
            raise fault("request.layout", "estimate takes a layout beside a case: estimate(case, parse_layout(...))")
        return predict(request, layout)
    if not isinstance(request, EstimateRequest):
        refuse("estimate", request, "case with a layout")
    faults = Faults()
    values = request.read(faults)
    given, layout, limits, anchors = chosen(values, faults)
    anchored = with_anchors(given, predict(given.case, layout), anchors)
    predicted = linearity_of(given.case, given.framework.features, anchored, given.framework)
    if limits:
        predicted = replace(predicted, fit_probability=0.0)
    return EstimateAnswer(given=given, estimate=predicted, limits=tuple(limits), closest=closest(given.case))


def chosen(values: Values, faults: Faults) -> tuple[Setup, Layout, list[str], list[Small | Anchor]]:
    """The case, the layout that was asked for, what the default framework lacks for it, and its anchors."""
    from meshwright.api.cases import drafted

    if "layout" not in values and "layout" not in faults.failed:
        faults.add("estimate.layout", '--layout is missing, as in --layout "tp8 pp4 mb1 sp zero1"')
    draft = drafted(values, faults)
    layout = draft.layout(values, faults)
    limits: list[str] = []
    if draft.setup is not None and layout is not None:
        with faults.at("layout"):
            limits = check_layout(draft.setup, layout, framework_asked="framework" in values)
    anchors = probed(values.get("anchor_memory", ()), values.get("layout"), faults)
    faults.check()
    assert draft.setup is not None and layout is not None, "faults.check() raises where one is missing"
    return draft.setup, layout, limits, anchors
