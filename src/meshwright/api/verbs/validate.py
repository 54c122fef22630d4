"""``validate``: predictions against measured runs."""

from __future__ import annotations

import io
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, Self

from meshwright.api.door import door
from meshwright.api.fields import Faults, Field, one_of
from meshwright.api.options import HTML
from meshwright.api.paged import paged
from meshwright.api.request import Answer, Progress, Request, ticking
from meshwright.errors import InputError, Message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.evidence.fit.fitters import Fitter
    from meshwright.evidence.rows.groups import Scheme
    from meshwright.evidence.rows.table import Skipped
    from meshwright.evidence.score.scored import Scored
    from meshwright.evidence.score.summary import Summary
    from meshwright.evidence.score.validation import Tally

SCHEMES = ("grouped", "leave-one-model-out", "leave-one-cluster-size-out", "leave-one-source-out", "in-sample")


class ValidateRequest(Request, frozen=True, kw_only=True):
    """Measured runs, and what predicts them."""

    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field(name="csv", kind="argument", metavar="CSV",
              help="Measured runs in the schema of the corpus [default: the corpus that ships]."),
        Field(name="scheme", parse=one_of(*SCHEMES), metavar="SCHEME", panel="Validation",
              help=f"Which rows a fit does not see before it predicts them: {', '.join(SCHEMES)} "
                   "[default: grouped on the shipped corpus, by the fits that ship; nothing is fitted to other rows]."),
        Field(name="calibration", metavar="none|NAME", panel="Validation",
              help="Predict with this calibration as it is; none: the priors [default: the shipped one]."),
        Field(name="rows", metavar="OUT.csv", panel="Output", help="Write every row, predicted and measured."),
        HTML,
        Field(name="force", kind="flag", panel="Output", help="Replace the files of --rows and --html where they exist."),
    )

    csv: str | Path | None = None
    """None: the corpus that ships."""
    scheme: str | None = None
    calibration: str | None = None
    rows: str | Path | None = None
    html: str | Path | None = None
    """The file of its page."""
    force: bool = False


class ValidateAnswer(Answer, frozen=True, kw_only=True):
    """Every row predicted, and what the predictions are worth."""

    validation: Tally
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


@door
@paged
def validate(request: ValidateRequest, *, progress: Progress | None = None) -> ValidateAnswer:
    """Predict every row, and score the predictions.

    Errors:  ``InputError`` with every fault of the request, and for a table that cannot be read.
    """
    faults = Faults()
    values = request.read(faults)
    if "scheme" in values and "calibration" in values and values["calibration"] != "none":
        faults.add("validate.both", "--scheme fits to these rows, --calibration does not: give one of them", path="--scheme")
    from meshwright.catalog.calibrations import check_name
    from meshwright.evidence.rows.table import open_table, shipped_table
    from meshwright.evidence.score import validation as scoring
    from meshwright.evidence.score.summary import summarise
    from meshwright.outputs import obstacles

    inputs = [values[name] for name in ("csv", "calibration") if name in values]
    if "rows" in values:
        faults.note(obstacles([values["rows"]], inputs=inputs, force=values["force"]))
    with faults.at("calibration"):
        check_name(values.get("calibration", "none"))
    with faults.at("csv"):
        table = open_table(values["csv"]) if "csv" in values else shipped_table()
    faults.check()
    scheme: Scheme | None = values.get("scheme")
    fitter = None
    if scheme is None and "calibration" not in values and scoring.is_shipped(table):
        scheme, fitter = "grouped", _kept(table.digest)
    fitter = fitter or _fitter(values.get("calibration"), scheme, progress)
    with _Rows(values.get("rows")) as rows:
        found = scoring.tally(
            table, scheme=scheme, fitter=fitter, legal=refusals, progress=ticking(progress, "rows"), watch=rows.write
        )
        unsaved = rows.save(force=values["force"], inputs=inputs)
    return ValidateAnswer(validation=found, summary=summarise(found), unsaved=unsaved)


class _Rows:
    """The file of ``--rows``: beside its place, without a name, until all rows are in it; without a path nothing."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._unsaved: Message | None = None
        self._spool: IO[bytes] | None = None
        self._text: io.TextIOWrapper | None = None
        self._write: Callable[[Scored | Skipped], None] | None = None

    def __enter__(self) -> Self:
        from meshwright.evidence.score.rows_csv import row_writer

        if self._path is not None:
            with self._faults():
                self._spool = tempfile.TemporaryFile(dir=Path(self._path).parent)
                self._text = io.TextIOWrapper(self._spool, encoding="utf-8", newline="")
                self._write = row_writer(self._text)
        return self

    def __exit__(self, *_: object) -> None:
        if self._text is not None:
            with suppress(OSError):  # said already
                self._text.close()

    def write(self, each: Scored | Skipped) -> None:
        """One more row; where there is no room, no further ones: it is no reason to lose a validation."""
        if self._write is not None and self._unsaved is None:
            with self._faults():
                self._write(each)

    def save(self, *, force: bool, inputs: Sequence[str]) -> Message | None:
        """Put the file into its place, or say why not."""
        from meshwright.outputs import Output, write

        if self._path is not None and self._text is not None and self._unsaved is None:
            with self._faults():
                self._text.flush()
                write([Output(path=self._path, spool=self._spool)], force=force, inputs=inputs)
        return self._unsaved

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except InputError as error:
            self._unsaved = error.messages[0]
        except OSError as error:
            reason = error.strerror or str(error)
            self._unsaved = Message("file.write", "cannot be written: {reason}", {"reason": reason}, str(self._path))


def refusals(case: Case, layout: Layout) -> tuple[str, ...]:
    """Why no framework can run a layout. Rows name frameworks of any time, so only what none has had counts."""
    from meshwright.api.legality import ANY_FRAMEWORK
    from meshwright.search import layout_refusals

    return layout_refusals(case, ANY_FRAMEWORK, layout)


def _kept(digest: str) -> Fitter | None:
    """The fits without each fold that ship with the calibration; None where they are of another corpus than this."""
    from meshwright.catalog.calibrations import held_out_tables
    from meshwright.evidence.fit.fitters import Kept, predictor_of

    tables = held_out_tables(digest)
    return Kept(predictors=[predictor_of(each) for each in tables]) if tables else None


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
