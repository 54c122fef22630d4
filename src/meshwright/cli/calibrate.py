"""``meshwright calibrate``: physical constants, intervals and probabilities from measured runs."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from meshwright.api.fields import Faults, Field, Values
from meshwright.api.options import JSON

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from meshwright.domain.calibration import CalibrationTable
    from meshwright.evidence.fit.calibrate import Progress
    from meshwright.evidence.rows.reading import RowsRead
    from meshwright.evidence.rows.run import Run

EPILOG = "Example: meshwright calibrate --runs my-runs.csv --name mine --out mine.json"
DEFAULT_OUT = "calibration.json"
FIELDS = (
    Field(name="runs", kind="many", metavar="CSV", panel="Calibration",
          help="Your own measured runs in the schema of the corpus, repeatable [default: none, the corpus alone]."),
    Field(name="base", metavar="NAME|FILE", panel="Calibration",
          help="With --runs: the calibration that they refine, in seconds [default: shipped]."),
    Field(name="joint", kind="flag", panel="Calibration",
          help="With --runs: fit them together with the whole corpus, in minutes."),
    Field(name="name", metavar="NAME", panel="Output", help="Name of the calibration [default: that of the file]."),
    Field(name="version", metavar="TEXT", panel="Output", help="Its version [default: today's date]."),
    Field(name="out", metavar="FILE.json", panel="Output", help=f"Where to write it [default: {DEFAULT_OUT}]."),
    JSON,
)


def run(values: Values, faults: Faults) -> int:
    """Fit, write the calibration, and say what was learnt."""
    out = values.get("out", DEFAULT_OUT)
    if not out.endswith(".json"):
        faults.add("calibrate.out", "{out!r} does not end in .json", path="--out", out=out)
    if ("base" in values or values["joint"]) and not values["runs"]:
        faults.add("calibrate.runs", "--base and --joint refine by --runs, which is missing", path="--runs")
    if "base" in values and values["joint"]:
        faults.add("calibrate.base", "--joint starts from the priors, --base from a calibration: give one of them", path="--base")
    faults.check()
    from pathlib import Path

    from meshwright.api.files import check_file, write_file
    from meshwright.catalog import freedoms
    from meshwright.catalog.calibrations import table_text
    from meshwright.cli.output import print_json, print_report

    check_file(out, inputs=tuple(values["runs"]))
    name = values.get("name", Path(out).stem)
    version = values.get("version", datetime.now(tz=UTC).date().isoformat())
    readings, provenance = _read(values)
    with _stages() as progress:
        if values["runs"] and not values["joint"]:
            table = _on_top(readings, values.get("base", "shipped"), name, version, provenance, progress)
        else:
            table = _whole(readings, name, version, provenance, progress)
    write_file(out, table_text(table))
    from meshwright.api.views.calibration import calibration_view
    from meshwright.report.calibration import calibration_report

    if values["json"]:
        print_json({"path": out, **calibration_view(table, readings)})
    else:
        print_report(calibration_report(table, readings, freedoms(), out))
    return 0


def _read(values: Values) -> tuple[list[RowsRead], dict[str, str]]:
    """The runs of every table, and where they come from."""
    from meshwright.errors import fault
    from meshwright.evidence.rows.reading import read_runs
    from meshwright.evidence.rows.table import count_reasons, read_table, shipped_table

    tables = [read_table(path) for path in values["runs"]]
    if not tables or values["joint"]:
        tables.insert(0, shipped_table())
    readings = [read_runs(table) for table in tables]
    provenance: dict[str, str] = {}
    for number, (table, reading) in enumerate(zip(tables, readings, strict=True), start=1):
        measured = sum(1 for run in reading.runs if run.step_s or run.memory_bytes)
        if not measured:
            raise fault("calibrate.nothing", "no row with a measured step time or memory", path=table.path)
        left_out = ", ".join(f"{count} {reason}" for reason, count in count_reasons(reading.skipped).items()) or "none"
        words = f"sha256 {table.digest[:16]}; {len(reading.runs)} rows used, {measured} of them measured; left out: {left_out}"
        provenance[f"runs {number}"] = words
    return readings, provenance


def _whole(
    readings: list[RowsRead], name: str, version: str, provenance: dict[str, str], progress: Progress | None
) -> CalibrationTable:
    """A fit to all runs from the priors."""
    from meshwright.catalog import freedoms
    from meshwright.evidence.fit.calibrate import calibrate

    runs = [run for reading in readings for run in reading.runs]
    return calibrate(
        runs, freedoms(), groups=_groups(runs), fold_of=_folds(runs),
        name=name, version=version, provenance=provenance, progress=progress,
    )


def _on_top(
    readings: list[RowsRead], base: str, name: str, version: str, provenance: dict[str, str], progress: Progress | None
) -> CalibrationTable:
    """A calibration refined by further runs."""
    from dataclasses import replace

    from meshwright.catalog import calibration_table, freedoms
    from meshwright.evidence.fit.fitters import predictor_of
    from meshwright.evidence.fit.own import calibrate_on_top

    table = calibration_table(base)
    case = predictor_of(table)
    runs = [replace(run, case=case(run)) for reading in readings for run in reading.runs]
    return calibrate_on_top(
        table, runs, freedoms(), groups=_groups(runs), fold_of=_folds(runs),
        name=name, version=version,
        provenance={**provenance, "base": f"{table.name}@{table.version}"}, progress=progress,
    )


def _groups(runs: Sequence[Run]) -> list[str]:
    return ["\x1f".join(run.group) for run in runs]


def _folds(runs: Sequence[Run]) -> tuple[int, ...]:
    from meshwright.evidence.rows.groups import folds

    return folds([run.row for run in runs], "grouped")


@contextmanager
def _stages() -> Iterator[Progress | None]:
    """Progress of a fit in stages, shown on a terminal; None where nobody watches."""
    from meshwright.cli.output import progress

    with progress("runs") as tick:
        yield None if tick is None else lambda _stage, done, total: tick(done, total)
