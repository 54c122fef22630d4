"""``meshwright validate``: predictions against measured runs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from meshwright.api.fields import Faults, Field, Values, one_of
from meshwright.api.options import JSON

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.evidence.fit.fitters import Fitter
    from meshwright.evidence.rows.groups import Scheme

SCHEMES = ("grouped", "leave-one-model-out", "leave-one-cluster-size-out", "leave-one-source-out", "in-sample")
EPILOG = "Example: meshwright validate measured.csv --calibration none --rows predicted.csv"
FIELDS = (
    Field(name="csv", kind="argument", metavar="CSV",
          help="Measured runs in the schema of the corpus [default: the corpus that ships]."),
    Field(name="scheme", parse=one_of(*SCHEMES), metavar="SCHEME", panel="Validation",
          help=f"Which rows a fit does not see before it predicts them: {', '.join(SCHEMES)} "
               "[default: grouped on the shipped corpus; nothing is fitted to other rows]."),
    Field(name="calibration", metavar="none|NAME", panel="Validation",
          help="Predict with this calibration as it is; none: the priors [default: the shipped one]."),
    Field(name="rows", metavar="OUT.csv", panel="Output", help="Write every row, predicted and measured."),
    JSON,
)


def run(values: Values, faults: Faults) -> int:
    """Predict every row, and print what the predictions are worth."""
    if "scheme" in values and "calibration" in values and values["calibration"] != "none":
        faults.add("validate.both", "--scheme fits to these rows, --calibration does not: give one of them", path="--scheme")
    faults.check()
    from meshwright.api.files import check_file, write_file
    from meshwright.cli.output import print_json, print_report, stages
    from meshwright.evidence.rows.table import read_table, shipped_table
    from meshwright.evidence.score.rows_csv import rows_csv
    from meshwright.evidence.score.summary import summarise
    from meshwright.evidence.score.validation import is_shipped, validate

    if "rows" in values:
        check_file(values["rows"], inputs=(values["csv"],) if "csv" in values else ())
    table = read_table(values["csv"]) if "csv" in values else shipped_table()
    scheme: Scheme | None = values.get("scheme")
    if scheme is None and "calibration" not in values and is_shipped(table):
        scheme = "grouped"
    with stages() as tick:
        fitter = _fitter(values.get("calibration"), scheme, tick)
        rows = None if tick is None else partial(tick, "rows")
        validation = validate(table, scheme=scheme, fitter=fitter, legal=refusals, progress=rows)
    summary = summarise(validation)
    if "rows" in values:
        write_file(values["rows"], rows_csv(validation))
    if values["json"]:
        from meshwright.api.views.validation import validation_view

        print_json(validation_view(validation, summary))
    else:
        from meshwright.report.validation import validation_report

        print_report(validation_report(validation, summary))
    return 0


def refusals(case: Case, layout: Layout) -> tuple[str, ...]:
    """Why no framework can run a layout. Rows name frameworks of any time, so only what none has had counts."""
    from meshwright.api.legality import ANY_FRAMEWORK
    from meshwright.search import layout_refusals

    return layout_refusals(case, ANY_FRAMEWORK, layout)


def _fitter(name: str | None, scheme: Scheme | None, progress: Callable[[str, float, float], None] | None) -> Fitter:
    """What predicts: the calibration of a name as it is, or the fit that a scheme repeats without the rows it predicts."""
    from meshwright.catalog.calibrations import DEFAULT, calibration_table, calibrations, freedoms, is_none
    from meshwright.evidence.fit.fitters import Fixed, Pooled, predictor_of, prior_fitter

    if name is None and scheme is not None:
        return Pooled(freedoms=freedoms(), progress=progress)
    wanted = name or (DEFAULT if DEFAULT in calibrations() else "none")
    if is_none(wanted):
        return prior_fitter()
    table = calibration_table(wanted)
    return Fixed(label=f"{table.name}@{table.version}", predictor=predictor_of(table))
