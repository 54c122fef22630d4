"""Validation: every row of a table predicted by a fit that has not seen its group, beside what it measured."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.evidence.rows.groups import ALL_IN, device_key, folds, group_key
from meshwright.evidence.rows.reading import read_runs
from meshwright.evidence.rows.table import Skipped, nothing_usable, shipped_table
from meshwright.evidence.score.prediction import Predicted, jobs_for, predict
from meshwright.evidence.score.scored import Scored

if TYPE_CHECKING:
    from meshwright.evidence.fit.fitters import Fitter
    from meshwright.evidence.rows.groups import Scheme
    from meshwright.evidence.rows.row import Row
    from meshwright.evidence.rows.run import Run
    from meshwright.evidence.rows.table import Table
    from meshwright.evidence.score.prediction import Legal, Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Rows of a table, predicted and measured, and those that were left out."""

    path: str
    scheme: Scheme | None
    """None: a calibration as it is, nothing fitted to these rows."""
    calibration: str
    rows: tuple[Scored, ...]
    """In the order of the file."""
    skipped: tuple[Skipped, ...]
    unknown_columns: tuple[str, ...]
    folds: int
    """Number of fits."""
    known_configurations: int = 0
    """Rows whose configuration also stands in the shipped corpus, which a calibration has seen; 0 under a scheme."""


def validate(
    table: Table, *, scheme: Scheme | None, fitter: Fitter, legal: Legal, progress: Progress | None = None,
    jobs: int | None = None,
) -> Validation:
    """Predict every row of a table.

    A row is predicted by a fit to the rows of all other folds of the scheme; ``in-sample`` fits all rows once; None fits
    nothing. ``legal`` says why a layout may not be run.
    Errors:  ``InputError`` where no row can be used.
    """
    reading = read_runs(table)
    if not reading.runs and not reading.impossible:
        raise nothing_usable("validate.nothing", table, reading.skipped)
    fold_of = folds([each.row for each in reading.runs], scheme) if scheme else (ALL_IN,) * len(reading.runs)
    predictors = fitter.fit_folds(reading.runs, fold_of) if max(fold_of, default=ALL_IN) > ALL_IN else ()
    everything = None if predictors else fitter.fit(reading.runs if scheme else ())
    cases = [
        everything(run) if everything is not None else predictors[fold](run)
        for run, fold in zip(reading.runs, fold_of, strict=True)
    ]
    tasks = [(case, run.layout, run.reading) for case, run in zip(cases, reading.runs, strict=True)]
    predicted: list[Predicted] = []
    with closing(predict(tasks, legal, jobs or jobs_for(len(tasks)))) as results:
        for each in results:
            predicted.append(each)
            if progress is not None:
                progress(len(predicted), len(tasks))
    scored: list[Scored] = []
    skipped = list(reading.skipped)
    for run, fold, result in zip(reading.runs, fold_of, predicted, strict=True):
        if result.fault:
            kind = "the model has no estimate"
            skipped.append(Skipped(id=run.id, line=run.row.line, reason=f"{kind}: {result.fault}", kind=kind, row=run.row))
        else:
            scored.append(_scored(run, result, fold))
    scored += [_impossible(row, why) for row, why in reading.impossible]
    return Validation(
        path=table.path, scheme=scheme, calibration=fitter.label, rows=tuple(sorted(scored, key=lambda each: each.line)),
        skipped=tuple(sorted(skipped, key=lambda each: each.line)), unknown_columns=table.unknown_columns,
        folds=max(1, len(predictors)), known_configurations=0 if scheme else _known(table, reading.runs),
    )


def is_shipped(table: Table) -> bool:
    """Whether a table is the shipped corpus, under whatever name."""
    return table.digest == shipped_table().digest


def _known(table: Table, runs: tuple[Run, ...]) -> int:
    known = {group_key(row) for row in shipped_table().rows}
    return sum(run.group in known for run in runs)


def _scored(run: Run, result: Predicted, fold: int) -> Scored:
    mfu = result.mfu_ratio * result.step_s / run.step_s if run.step_s and result.step_s else None
    if run.row.measured.mfu_ratio is not None:
        mfu = run.row.measured.mfu_ratio
    return Scored(
        id=run.id, line=run.row.line, row=run.row, status=_status(run.row, measured=run.step_s is not None),
        predicted_step_s=result.step_s, measured_step_s=run.step_s, predicted_memory_bytes=result.memory_shown_bytes,
        measured_memory_bytes=run.memory_bytes, fit_probability=result.fit_probability, refused=result.refused,
        step_interval_s=result.step_interval_s, memory_interval_bytes=result.memory_interval_bytes, mfu=mfu, ideal_s=result.ideal_s,
        device=run.device, implementation=run.family, is_moe=run.case.model.is_moe, fold=fold,
        calibration=result.calibration, grade=result.grade,
    )


def _impossible(row: Row, why: str) -> Scored:
    return Scored(
        id=row.id, line=row.line, row=row, status=_status(row, measured=False), predicted_step_s=None, measured_step_s=None,
        predicted_memory_bytes=None, measured_memory_bytes=None, fit_probability=0.0, refused=(why,),
        device=device_key(row.device), is_moe=bool(row.shape.num_experts),
    )


def _status(row: Row, *, measured: bool) -> str:
    """A blank status beside a measured speed means that the run ended well."""
    return row.status or ("ok" if measured else "")
