"""Validation: every row of a table predicted by a fit that has not seen its group, beside what it measured."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from meshwright.errors import fault
from meshwright.evidence.fit.solve import MAX_RUNS
from meshwright.evidence.rows.groups import ALL_IN, device_key, folds, group_key
from meshwright.evidence.rows.reading import Refused, read_run
from meshwright.evidence.rows.table import MAX_HELD, REMEMBERED, Skipped, as_lines, by_number, nothing_usable, shipped_table
from meshwright.evidence.score.columns import Columns, Keys, LeftOut
from meshwright.evidence.score.prediction import Estimates, Predicted
from meshwright.evidence.score.scored import Scored
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.evidence.fit.fitters import Fitter, Predictor
    from meshwright.evidence.rows.groups import Scheme
    from meshwright.evidence.rows.row import Row
    from meshwright.evidence.rows.run import Run
    from meshwright.evidence.rows.table import Configuration, Table, TableFile
    from meshwright.evidence.score.prediction import Legal, Progress

AT_ONCE = 2000
"""Rows that are read, then predicted, before the next ones are read."""


class Validation(Value, frozen=True, kw_only=True):
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


class Tally(Value, frozen=True, kw_only=True):
    """A ``Validation`` of a file of any length: of each row what is counted, of those left out how many and the first."""

    path: str
    scheme: Scheme | None
    calibration: str
    rows: Columns
    skipped: LeftOut
    unknown_columns: tuple[str, ...]
    folds: int
    known_configurations: int = 0


def validate(
    table: Table, *, scheme: Scheme | None, fitter: Fitter, legal: Legal, progress: Progress | None = None,
    jobs: int | None = None,
) -> Validation:
    """Predict every row of a table.

    A row is predicted by a fit to the rows of all other folds of the scheme; ``in-sample`` fits all rows once; None fits
    nothing. ``legal`` says why a layout may not be run.
    Errors:  ``InputError`` where no row can be used.
    """
    rows: list[Scored] = []
    skipped: list[Skipped] = []

    def keep(each: Scored | Skipped) -> None:
        if isinstance(each, Skipped):
            skipped.append(each)
        else:
            rows.append(each)

    found = tally(table, scheme=scheme, fitter=fitter, legal=legal, progress=progress, jobs=jobs, watch=keep)
    return Validation(
        path=found.path, scheme=scheme, calibration=found.calibration, rows=tuple(rows), skipped=tuple(skipped),
        unknown_columns=found.unknown_columns, folds=found.folds, known_configurations=found.known_configurations,
    )


def tally(
    table: Table | TableFile, *, scheme: Scheme | None, fitter: Fitter, legal: Legal, progress: Progress | None = None,
    jobs: int | None = None, watch: Callable[[Scored | Skipped], None] | None = None,
) -> Tally:
    """``validate`` for files of any length; ``watch`` sees each row, in the order of the file, before it is forgotten.

    Errors:  ``InputError`` where no row can be used, or there are too many for the fits of a scheme.
    """
    pass_ = _Pass(table, scheme, fitter)
    rows, skipped = Columns(), LeftOut()

    def tick(done: float) -> None:
        if progress is not None:
            progress(done, max(done, len(table)))

    with Estimates(legal, jobs) as estimates, closing(pass_.results(estimates, tick)) as results:
        for item, each in results:
            if isinstance(each, Skipped):
                skipped.append(each)
            elif isinstance(item, _Item):
                rows.append(each, _keys(item.configuration))
            if watch is not None:
                watch(each)
    if not pass_.usable:
        counts = by_number(skipped.kinds)
        raise nothing_usable("validate.nothing", table.path, counts, {kind: as_lines(skipped.first(kind)) for kind in counts})
    return Tally(
        path=table.path, scheme=scheme, calibration=fitter.label, rows=rows, skipped=skipped,
        unknown_columns=table.unknown_columns, folds=pass_.folds, known_configurations=0 if scheme else pass_.known,
    )


def is_shipped(table: Table | TableFile) -> bool:
    """Whether a table is the shipped corpus, under whatever name."""
    return table.digest == shipped_table().digest


@dataclass(slots=True, eq=False)
class _Item:
    """A row on its way."""

    row: Row
    configuration: Configuration
    run: Run | None
    why: str = ""
    """Why nothing can run it, where there is no run."""
    fold: int = ALL_IN


class _Pass:
    """One way through a table: rows are read some at a time, and those of one configuration and fit predicted once."""

    def __init__(self, table: Table | TableFile, scheme: Scheme | None, fitter: Fitter) -> None:
        """Fit, where there is something to fit.

        Errors:  ``InputError`` where there is too much of it.
        """
        self.usable = self.known = 0
        self.folds = 1
        self._items: Iterator[_Item | Skipped] = _items(table)
        self._predicted: dict[tuple[Configuration, int], Predicted] = {}
        self._predictors: Sequence[Predictor] = ()
        if scheme is None:
            self._everything = fitter.fit(())
            return
        items = _held(self._items, table.path)
        self._items, fitted = iter(items), [each for each in items if isinstance(each, _Item) and each.run is not None]
        runs = [each.run for each in fitted if each.run is not None]
        fold_of = folds([run.row for run in runs], scheme)
        for each, fold in zip(fitted, fold_of, strict=True):
            each.fold = fold
        if max(fold_of, default=ALL_IN) > ALL_IN:
            self._predictors = fitter.fit_folds(runs, fold_of)
            self.folds = len(self._predictors)
        elif runs:
            self._everything = fitter.fit(runs)

    def results(
        self, estimates: Estimates, tick: Callable[[float], None]
    ) -> Generator[tuple[_Item | Skipped, Scored | Skipped], None, None]:
        """Every row with what became of it, in the order of the file; ``tick`` is told about how many are done."""
        done = 0
        while batch := list(islice(self._items, AT_ONCE)):
            for share in self._predict(batch, estimates):
                tick(done + share * len(batch))
            for item in batch:
                yield item, item if isinstance(item, Skipped) else self._result(item)
            done += len(batch)
            tick(done)

    def _predict(self, batch: Sequence[_Item | Skipped], estimates: Estimates) -> Iterator[float]:
        """Predict what is not known yet; how much of it is done."""
        for key in list(self._predicted)[: max(0, len(self._predicted) - REMEMBERED)]:
            del self._predicted[key]
        unknown = {
            (each.configuration, each.fold): each.run
            for each in batch if isinstance(each, _Item) and each.run is not None
            and (each.configuration, each.fold) not in self._predicted
        }
        # Alike pipelines beside each other: their order of operations is built once.
        wanted = dict(sorted(unknown.items(), key=lambda each: _pipeline(each[1].layout)))
        tasks = [(self._case(run, fold), run.layout, run.reading) for (_, fold), run in wanted.items()]
        for number, (key, found) in enumerate(zip(wanted, estimates.of(tasks), strict=True), start=1):
            self._predicted[key] = found
            yield number / len(wanted)

    def _case(self, run: Run, fold: int) -> Case:
        return self._predictors[fold](run) if self._predictors else self._everything(run)

    def _result(self, item: _Item) -> Scored | Skipped:
        self.usable += 1
        if item.run is None:
            return _impossible(item.row, item.why)
        self.known += _in_shipped(item.configuration)
        result = self._predicted[item.configuration, item.fold]
        if result.fault:
            kind = "the model has no estimate"
            return Skipped(id=item.row.id, line=item.row.line, reason=f"{kind}: {result.fault}", kind=kind, row=item.row)
        return _scored(item.run, result, item.fold)


def _items(table: Table | TableFile) -> Iterator[_Item | Skipped]:
    """Every row of a table as a run, in the order of the file."""
    for each in table:
        if isinstance(each, Skipped):
            yield each
            continue
        row, configuration = each
        found = read_run(row, configuration)
        if not isinstance(found, Refused):
            yield _Item(row, configuration, found)
        elif found.impossible:
            yield _Item(row, configuration, None, found.reason)
        else:
            yield Skipped(id=row.id, line=row.line, reason=found.reason, kind=found.kind, row=row)


def _held(items: Iterator[_Item | Skipped], path: str) -> list[_Item | Skipped]:
    """All rows, where a fit can look at them."""
    held = list(islice(items, MAX_HELD + 1))
    if len(held) > MAX_HELD or sum(isinstance(each, _Item) for each in held) > MAX_RUNS:
        raise fault("validate.many", "a fit takes {limit:,} runs at most: leave --scheme out, or give fewer rows", path=path,
                    limit=MAX_RUNS)
    return held


def _pipeline(layout: Layout) -> tuple[str, int, int, int]:
    return layout.schedule, layout.pipeline_parallel, layout.virtual_stages, layout.num_microbatches


@lru_cache(maxsize=REMEMBERED)
def _keys(configuration: Configuration) -> Keys:
    return Keys.of(configuration.row)


@lru_cache(maxsize=REMEMBERED)
def _in_shipped(configuration: Configuration) -> bool:
    return group_key(configuration.row) in _shipped_groups()


@cache
def _shipped_groups() -> frozenset[tuple[str, ...]]:
    return frozenset(group_key(row) for row in shipped_table().rows)


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
