"""``meshwright estimate``: one layout, predicted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.cli.anchoring import ANCHOR, with_anchors
from meshwright.cli.fields import Faults, Field, Values
from meshwright.cli.legality import check_layout
from meshwright.cli.options import CASE, JSON, LAYOUT, SPARE_NODES
from meshwright.cli.request import Setup, setup

if TYPE_CHECKING:
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout

EPILOG = (
    "Example: meshwright estimate llama3-8b --device h100-sxm --nodes 1 --global-batch 128 --sequence 8192 "
    '--layout "tp2 mb1 sp zero1"'
)
TERMS = Field(name="terms", kind="flag", panel="Output", in_file=False, help="Also print every term with its formula.")
FIELDS = (*CASE, SPARE_NODES, LAYOUT, ANCHOR, TERMS, JSON)


def run(values: Values, faults: Faults) -> int:
    """Predict the layout and print it."""
    from meshwright.cli.output import print_json, print_report
    from meshwright.estimate import estimate as predict
    from meshwright.evidence.rows.near import closest

    given, layout, limits = chosen(values, faults)
    estimate = _with_linearity(given, with_anchors(given, predict(given.case, layout), values["anchor_memory"]))
    if limits:
        estimate = replace(estimate, fit_probability=0.0)
    published = closest(given.case)
    if values["json"]:
        from meshwright.report.runs import closest_view
        from meshwright.report.view import estimate_view

        more = {"request": given.request, "framework_limits": limits, "closest_run": closest_view(published)}
        print_json({**estimate_view(estimate), **more})
        return 0
    from meshwright.report.estimate import estimate_report, limit_lines, term_table

    print_report(estimate_report(given.case, estimate, published))
    print_report(limit_lines(given.framework.name, limits))
    if values["terms"]:
        print_report(term_table(estimate))
    return 0


def _with_linearity(given: Setup, estimate: Estimate) -> Estimate:
    """The estimate with its linearity, as a plan of the same layout has it."""
    from meshwright.search import linearity_of

    return linearity_of(given.case, given.framework.features, estimate)


def chosen(values: Values, faults: Faults) -> tuple[Setup, Layout, list[str]]:
    """The case, the layout of ``--layout``, and what the default framework lacks for it."""
    if "layout" not in values and "layout" not in faults.failed:
        faults.add("estimate.layout", '--layout is missing, as in --layout "tp8 pp4 mb1 sp zero1"')
    given = setup(values, faults)
    layout = given.layout(values["layout"])
    return given, layout, check_layout(given, layout, framework_asked="framework" in values)
