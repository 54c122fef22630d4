"""``validate``: predictions against measured runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from meshwright.api.fields import Faults, Field, one_of
from meshwright.api.request import Answer, Progress, Request, ticking
from meshwright.errors import InputError, Message

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.evidence.fit.fitters import Fitter
    from meshwright.evidence.rows.groups import Scheme
    from meshwright.evidence.score.summary import Summary
    from meshwright.evidence.score.validation import Validation

SCHEMES = ("grouped", "leave-one-model-out", "leave-one-cluster-size-out", "leave-one-source-out", "in-sample")


@dataclass(frozen=True, kw_only=True)
class ValidateRequest(Request):
    """Measured runs, and what predicts them."""

    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field(name="csv", kind="argument", metavar="CSV",
              help="Measured runs in the schema of the corpus [default: the corpus that ships]."),
        Field(name="scheme", parse=one_of(*SCHEMES), metavar="SCHEME", panel="Validation",
              help=f"Which rows a fit does not see before it predicts them: {', '.join(SCHEMES)} "
                   "[default: grouped on the shipped corpus; nothing is fitted to other rows]."),
        Field(name="calibration", metavar="none|NAME", panel="Validation",
              help="Predict with this calibration as it is; none: the priors [default: the shipped one]."),
        Field(name="rows", metavar="OUT.csv", panel="Output", help="Write every row, predicted and measured."),
        Field(name="force", kind="flag", panel="Output", help="Replace the file of --rows where it exists."),
    )

    csv: str | Path | None = None
    """None: the corpus that ships."""
    scheme: str | None = None
    calibration: str | None = None
    rows: str | Path | None = None
    force: bool = False


@dataclass(frozen=True, kw_only=True)
class ValidateAnswer(Answer):
    """Every row predicted, and what the predictions are worth."""

    validation: Validation
    summary: Summary
    unsaved: Message | None = None
    """Why the rows could not be written: no reason to lose a validation."""

    @property
    def status(self) -> int:
        """2 where the rows could not be written."""
        return 0 if self.unsaved is None else 2

    @property
    def refusal(self) -> Message | None:
        """Why the rows could not be written."""
        return self.unsaved

    def to_json(self) -> dict[str, Any]:
        """The document of ``validate --json``."""
        from meshwright.api.views.validation import validation_view

        return validation_view(self.validation, self.summary)


def validate(request: ValidateRequest, *, progress: Progress | None = None) -> ValidateAnswer:
    """Predict every row, and score the predictions.

    Errors:  ``InputError`` with every fault of the request, and for a table that cannot be read.
    """
    faults = Faults()
    values = request.read(faults)
    if "scheme" in values and "calibration" in values and values["calibration"] != "none":
        faults.add("validate.both", "--scheme fits to these rows, --calibration does not: give one of them", path="--scheme")
    from meshwright.catalog.calibrations import check_name
    from meshwright.evidence.rows.table import read_table, shipped_table
    from meshwright.evidence.score import validation as scoring
    from meshwright.evidence.score.rows_csv import rows_csv
    from meshwright.evidence.score.summary import summarise
    from meshwright.outputs import Output, obstacles, write

    inputs = [values[name] for name in ("csv", "calibration") if name in values]
    if "rows" in values:
        faults.note(obstacles([values["rows"]], inputs=inputs, force=values["force"]))
    with faults.at("calibration"):
        check_name(values.get("calibration", "none"))
    with faults.at("csv"):
        table = read_table(values["csv"]) if "csv" in values else shipped_table()
    faults.check()
    scheme: Scheme | None = values.get("scheme")
    if scheme is None and "calibration" not in values and scoring.is_shipped(table):
        scheme = "grouped"
    fitter = _fitter(values.get("calibration"), scheme, progress)
    found = scoring.validate(table, scheme=scheme, fitter=fitter, legal=refusals, progress=ticking(progress, "rows"))
    unsaved = None
    if "rows" in values:
        try:
            write([Output(path=values["rows"], text=rows_csv(found))], force=values["force"], inputs=inputs)
        except InputError as error:
            unsaved = error.messages[0]
    return ValidateAnswer(validation=found, summary=summarise(found), unsaved=unsaved)


def refusals(case: Case, layout: Layout) -> tuple[str, ...]:
    """Why no framework can run a layout. Rows name frameworks of any time, so only what none has had counts."""
    from meshwright.api.legality import ANY_FRAMEWORK
    from meshwright.search import layout_refusals

    return layout_refusals(case, ANY_FRAMEWORK, layout)


def _fitter(name: str | None, scheme: Scheme | None, progress: Progress | None) -> Fitter:
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
