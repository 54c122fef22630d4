"""``meshwright estimate``: one layout, predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.cli.fields import Faults, Field, Values
from meshwright.cli.request import CASE, JSON, LAYOUT, SPARE_NODES, Setup, setup
from meshwright.errors import InputError

if TYPE_CHECKING:
    from meshwright.domain.layout import Layout

EPILOG = (
    "Example: meshwright estimate llama3-8b --device h100-sxm --nodes 1 --global-batch 128 --sequence 8192 "
    '--layout "tp2 mb1 sp zero1"'
)
TERMS = Field(name="terms", kind="flag", panel="Output", in_file=False, help="Also print every term with its formula.")
FIELDS = (*CASE, SPARE_NODES, LAYOUT, TERMS, JSON)


def run(values: Values) -> int:
    """Predict the layout and print it."""
    from meshwright import plan
    from meshwright.cli.output import print_json, print_report

    given, layout = chosen(values)
    estimate = plan.estimate(given.case, layout)
    if values["json"]:
        from meshwright.report.view import estimate_view

        print_json(estimate_view(estimate))
        return 0
    from meshwright.report.estimate import estimate_report, term_table

    print_report(estimate_report(given.case, estimate))
    if values["terms"]:
        print_report(term_table(estimate))
    return 0


def chosen(values: Values) -> tuple[Setup, Layout]:
    """The case and the legal layout of ``--layout``; faults of both at once where the case can be built."""
    faults = Faults()
    if "layout" not in values:
        faults.add("estimate.layout", '--layout is missing, as in --layout "tp8 pp4 mb1 sp zero1"')
    given = setup(values, faults)
    layout = given.layout(values["layout"])
    refuse_illegal(given, layout)
    return given, layout


def refuse_illegal(given: Setup, layout: Layout) -> None:
    """Every rule that refuses the layout, as input errors."""
    from meshwright.search import refusals

    broken = refusals(given.case, given.framework.features, layout)
    if broken:
        raise InputError(broken)
