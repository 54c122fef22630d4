"""``meshwright explain``: why a layout is as fast as it is, and where the rest goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.cases import Setup, setup
from meshwright.api.fields import Faults, Values
from meshwright.api.legality import check_layout
from meshwright.api.options import CASE, JSON, LAYOUT, SPARE_NODES
from meshwright.errors import Message, NoAnswerError

if TYPE_CHECKING:
    from meshwright.domain.layout import Layout

EPILOG = "Example: meshwright explain llama3-70b --device h100-sxm --nodes 64 --global-batch 1024 --sequence 8192"
FIELDS = (*CASE, SPARE_NODES, LAYOUT, JSON)


def run(values: Values, faults: Faults) -> int:
    """Explain the layout that was given, or else the best one."""
    from meshwright.api.views.explain import explanation_view
    from meshwright.cli.output import print_json, print_report
    from meshwright.estimate import estimate as predict
    from meshwright.explain import explain
    from meshwright.report.explain import explanation_report

    given = setup(values, faults)
    if "layout" in values:
        layout = given.layout(values["layout"])
        check_layout(given, layout, framework_asked="framework" in values)
    else:
        layout = _best(given, values)
    estimate = predict(given.case, layout)
    explanation = explain(given.case, layout, given.framework.features, estimate)
    if values["json"]:
        print_json(explanation_view(given.case, estimate, explanation))
    else:
        print_report(explanation_report(given.case, estimate, explanation))
    return 0


def _best(given: Setup, values: Values) -> Layout:
    """The first plan, as ``plan`` finds it; where nothing fits there is nothing to explain."""
    from meshwright import search
    from meshwright.cli.output import progress
    from meshwright.search.result import SearchOptions

    options = SearchOptions(spare_nodes=values.get("spare_nodes", 0))
    with progress("layouts") as tick:
        result = search.plan(
            given.case, given.framework.features, options, progress=tick,
            acceptable=lambda layout: not given.framework.check(given.case, layout),
            said=lambda layout: given.framework.overlap(given.case, layout),
        )
    if not result.plans:
        raise NoAnswerError(Message("explain.nothing", "nothing fits: `meshwright plan` says what is missing", {}))
    return result.plans[0].layout
