"""``calibrate``: physical constants, intervals and probabilities from measured runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from meshwright.api.door import door
from meshwright.api.fields import Faults, Field, Values, one_of
from meshwright.api.request import Answer, Progress, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.api.few_shot import FewShot
    from meshwright.domain.calibration import CalibrationTable, Freedom
    from meshwright.evidence.fit.calibrate import Progress as Stages
    from meshwright.evidence.rows.reading import RowsRead
    from meshwright.evidence.rows.run import Run

DEFAULT_OUT = "calibration.json"


class CalibrateRequest(Request, frozen=True, kw_only=True):
    """Measured runs, and what they are fitted on top of."""

    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field(name="runs", kind="many", metavar="CSV", panel="Calibration",
              help="Your own measured runs in the schema of the corpus, repeatable [default: none, the corpus alone]."),
        Field(name="base", metavar="NAME|FILE", panel="Calibration",
              help="With --runs: the calibration that they refine, in seconds [default: shipped]."),
        Field(name="joint", kind="flag", panel="Calibration",
              help="With --runs: fit them together with the whole corpus, in minutes."),
        Field(name="few_shot", parse=one_of("auto", "off"), metavar="auto|off", panel="Calibration",
              help="With --runs: say what they moved, where they contradict and, of a few, which to measure next [default: auto]."),
        Field(name="name", metavar="NAME", panel="Output", help="Name of the calibration [default: that of the file]."),
        Field(name="version", metavar="TEXT", panel="Output", help="Its version [default: today's date]."),
        Field(name="out", metavar="FILE.json", panel="Output", help=f"Where to write it [default: {DEFAULT_OUT}]."),
        Field(name="force", kind="flag", panel="Output", help="Replace the file where it exists."),
    )

    runs: Sequence[str | Path] = ()
    base: str | Path | None = None
    joint: bool = False
    few_shot: str | None = None
    name: str | None = None
    version: str | None = None
    out: str | Path | None = None
    force: bool = False


class CalibrateAnswer(Answer, frozen=True, kw_only=True):
    """The calibration, the rows that it was fitted to, and where it was written."""

    table: CalibrationTable
    readings: tuple[RowsRead, ...]
    path: str
    freedoms: tuple[Freedom, ...]
    """The constants that a fit may move."""
    few_shot: FewShot | None = None
    """None of a fit from the priors, and where it was not asked for."""

    def to_json(self) -> dict[str, Any]:
        """The document of ``calibrate --json``."""
        from meshwright.api.views.calibration import calibration_view, few_shot_view

        few = {} if self.few_shot is None else few_shot_view(self.few_shot)
        return {"path": self.path, **calibration_view(self.table, self.readings), **few}


@door
def calibrate(request: CalibrateRequest, *, progress: Progress | None = None) -> CalibrateAnswer:
    """Fit, and write the calibration.

    Errors:  ``InputError`` with every fault of the request, and for tables without a measured run.
    """
    faults = Faults()
    values = request.read(faults)
    out = values.get("out", DEFAULT_OUT)
    if not out.endswith(".json"):
        faults.add("calibrate.out", "{out!r} does not end in .json", path="--out", out=out)
    if ("base" in values or values["joint"]) and not values["runs"]:
        faults.add("calibrate.runs", "--base and --joint refine by --runs, which is missing", path="--runs")
    if values.get("few_shot") == "auto" and (values["joint"] or not values["runs"]):
        template = "--few-shot says what --runs change in a calibration that they refine: {why}"
        faults.add("calibrate.few", template, path="--few-shot",
                   why="--joint fits anew" if values["joint"] else "--runs is missing")
    if "base" in values and values["joint"]:
        faults.add("calibrate.base", "--joint starts from the priors, --base from a calibration: give one of them", path="--base")
    from meshwright.catalog import freedoms
    from meshwright.catalog.calibrations import calibration_table, table_text
    from meshwright.outputs import Output, obstacles, write

    inputs = [*values["runs"], *([values["base"]] if "base" in values else [])]
    faults.note(obstacles([out], inputs=inputs, force=values["force"], fresh=True))
    with faults.at("base"):
        if "base" in values:
            calibration_table(values["base"])
    name = values.get("name", Path(out).stem)
    version = values.get("version", datetime.now(tz=UTC).date().isoformat())
    readings, provenance = _read(values, faults)
    faults.check()
    stages = None if progress is None else lambda _stage, done, total: progress("runs", done, total)
    few = None
    if values["runs"] and not values["joint"]:
        asked = values.get("few_shot", "auto") == "auto"
        table, few = _on_top(readings, values.get("base", "shipped"), name, version, provenance, stages, asked=asked)
    else:
        table = _whole(readings, name, version, provenance, stages)
    write([Output(path=out, text=table_text(table))], force=values["force"], inputs=inputs)
    return CalibrateAnswer(table=table, readings=tuple(readings), path=out, freedoms=tuple(freedoms()), few_shot=few)


def _read(values: Values, faults: Faults) -> tuple[list[RowsRead], dict[str, str]]:
    """The runs of every table, and where they come from; faults of all tables are noted."""
    from dataclasses import replace

    from meshwright.api.few_shot import unread
    from meshwright.evidence.rows.reading import read_runs
    from meshwright.evidence.rows.table import count_reasons, left_out, nothing_usable, read_table, shipped_table

    tables = []
    for path in values["runs"]:
        with faults:
            tables.append(read_table(path))
    if (not values["runs"] or values["joint"]) and not faults.messages:  # the corpus has no faults to add, and takes seconds
        tables.insert(0, shipped_table())
    readings = [read_runs(table) for table in tables]
    provenance: dict[str, str] = {}
    for number, (table, reading) in enumerate(zip(tables, readings, strict=True), start=1):
        measured = sum(run.measured for run in reading.runs)
        if not reading.runs:
            skipped = [*reading.skipped, *reading.refused]
            counts, rows = count_reasons(skipped), left_out(skipped)
            faults.note(nothing_usable("calibrate.nothing", table.path, counts, rows).messages)
        elif not measured:
            template = "no row with a measured step time or memory: {count:,} were read without{first}"
            faults.add("calibrate.nothing", template, path=table.path, count=len(reading.runs), first=_first(reading, values))
            faults.note([replace(each.why, path=table.path) for each in unread([reading])])
        others = ", ".join(f"{count} {reason}" for reason, count in count_reasons(reading.skipped).items()) or "none"
        words = f"sha256 {table.digest[:16]}; {len(reading.runs)} rows used, {measured} of them measured; left out: {others}"
        provenance[f"runs {number}"] = words
    return readings, provenance


def _first(reading: RowsRead, values: Values) -> str:
    """Which rows of a table without a result to measure first, for the end of a line."""
    from meshwright.api.few_shot import to_measure
    from meshwright.catalog import calibration_table
    from meshwright.errors import InputError

    try:
        first = to_measure(reading.runs, calibration_table(values.get("base", "shipped")))
    except InputError:  # the base is a fault of its own
        return ""
    return "; measure first: " + ", ".join(each.id for each in first) if first else ""


def _whole(
    readings: list[RowsRead], name: str, version: str, provenance: dict[str, str], progress: Stages | None
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
    readings: list[RowsRead], base: str, name: str, version: str, provenance: dict[str, str], progress: Stages | None, *,
    asked: bool,
) -> tuple[CalibrationTable, FewShot | None]:
    """A calibration refined by further runs, less those that nature forbids; what they did to it where that is asked.

    Errors:  ``InputError`` where no other run is left.
    """
    from dataclasses import replace

    from meshwright.api.few_shot import few_shot, unread
    from meshwright.catalog.calibrations import calibration_table, freedoms, own_shares
    from meshwright.errors import InputError
    from meshwright.evidence.fit.few_shot import impossible
    from meshwright.evidence.fit.fitters import predictor_of
    from meshwright.evidence.fit.own import calibrate_on_top, own_freedoms

    table = calibration_table(base)
    case = predictor_of(table)
    found = [run for reading in readings for run in reading.runs]
    odd = impossible(found)
    forbidden = {row for each in odd for row in each.rows}
    runs = [run for run in found if run.id not in forbidden]
    if not any(run.measured for run in runs):
        raise InputError([replace(each.why, path="--runs") for each in (*odd, *unread(readings))])
    ended = [run for run in runs if run.measured or run.failed]
    refined = calibrate_on_top(
        table, [replace(run, case=case(run)) for run in ended], own_freedoms(freedoms(), own_shares()),
        groups=_groups(ended), fold_of=_folds(ended), name=name, version=version,
        provenance={**provenance, "base": f"{table.name}@{table.version}"}, progress=progress,
    )
    return refined, few_shot(readings, runs, odd, table, refined) if asked else None


def _groups(runs: Sequence[Run]) -> list[str]:
    return ["\x1f".join(run.group) for run in runs]


def _folds(runs: Sequence[Run]) -> tuple[int, ...]:
    from meshwright.evidence.rows.groups import folds

    return folds([run.row for run in runs], "grouped")
