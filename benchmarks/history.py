"""Never worse than yesterday: ``python -m benchmarks.history [--write --version NAME [--because "SET: WHY"]...] [--keep DIR]``.

``benchmarks/figures.csv`` holds the figures of every set under every scheme for each version of the program; a version is added
whenever calibration, corpus or sets change, or a formula moves the predictions of the rows in ``pulse.csv``. Without ``--write``
status 1 says that no version was added, or that a set became worse beyond its noise and nothing in ``versions.yaml`` says why.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import sys
from dataclasses import astuple, dataclass, fields
from itertools import pairwise
from math import sqrt
from pathlib import Path
from statistics import fmean, pstdev
from typing import TYPE_CHECKING

import yaml

from meshwright.api.verbs.validate import refusals
from meshwright.catalog.calibrations import calibration_table
from meshwright.evidence.fit.fitters import predictor_of
from meshwright.evidence.rows.reading import read_row
from meshwright.evidence.rows.run import Run
from meshwright.evidence.rows.table import shipped_table
from meshwright.evidence.score.prediction import Estimates
from meshwright.evidence.score.sets import sets

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from meshwright.evidence.score.scored import Scored
    from meshwright.evidence.score.validation import Validation

HERE = Path(__file__).resolve().parent
FIGURES, VERSIONS, PULSE = HERE / "figures.csv", HERE / "versions.yaml", HERE / "pulse.csv"
DATA = HERE.parent / "src" / "meshwright"
SEALED = ("catalog/data/calibrations/*.json", "catalog/data/calibrations/held_out/*.json", "evidence/data/measured_runs.csv",
          "evidence/data/sets.yaml", "evidence/data/conventions.yaml")
EVERY = 40
"""Of the rows in the order of their ids, each so many-th is in the pulse."""
MOVED = 0.002
"""Relative change of a prediction of the pulse that is a change of the formulas."""
LEAST = 5
"""Rows of a set whose figures can become worse."""
ROUNDED = 5e-4
"""Figures that were written with one decimal of a percent are no nearer than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One metric of a set under a scheme in a version; ``noise`` is its standard error, blank where it is not known."""

    version: str
    scheme: str
    set: str
    metric: str
    n: int
    value: float
    noise: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Worse:
    """A figure that became worse beyond its noise."""

    before: Figure
    after: Figure

    @property
    def sentence(self) -> str:
        """The change in words."""
        after = self.after
        change = f"{self.before.value:.4g} -> {after.value:.4g} (noise {after.noise or 0:.2g})"
        return f"{after.set} ({after.scheme}): {after.metric} {change}"


def errors_of(values: Sequence[float]) -> tuple[float, float]:
    """Mean of the absolute errors, and its standard error."""
    sizes = [abs(value) for value in values]
    return fmean(sizes), pstdev(sizes) / sqrt(len(sizes))


def figures_of(version: str, found: Validation) -> list[Figure]:
    """All figures of a validation."""
    scheme, result = found.scheme or "as it is", []
    for one in sets():
        rows = [row for row in found.rows if one.where.holds(row) and row.status == "ok"]
        timed = [row for row in rows if row.timed]
        sized = [row for row in rows if row.sized]
        held = [row for row in timed if row.step_interval_s]

        def add(metric: str, n: int, value: float, noise: float, name: str = one.name) -> None:
            figure = Figure(version=version, scheme=scheme, set=name, metric=metric, n=n, value=_short(value), noise=_short(noise))
            result.append(figure)

        if timed:
            add("step_mape_ratio", len(timed), *errors_of([row.step_ratio - 1.0 for row in timed]))
        if sized:
            add("memory_mape_ratio", len(sized), *errors_of([_memory_ratio(row) - 1.0 for row in sized]))
        if held:
            share = fmean(_holds(row) for row in held)
            add("interval_miss_ratio", len(held), 1.0 - share, sqrt(0.09 / len(held)))
    return result


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _memory_ratio(row: Scored) -> float:
    return (row.predicted_memory_bytes or 0.0) / (row.measured_memory_bytes or 1.0)


def _holds(row: Scored) -> bool:
    low, high = row.step_interval_s or (0.0, 0.0)
    return low <= (row.measured_step_s or 0.0) <= high


def worsened(before: Iterable[Figure], after: Iterable[Figure]) -> list[Worse]:
    """What became worse: by more than the standard error of the figure, among sets that are large enough.

    Missed intervals are worse only beyond the tenth that is meant to be missed.
    """
    known = {(each.scheme, each.set, each.metric): each for each in before}
    found = []
    for each in after:
        old = known.get((each.scheme, each.set, each.metric))
        floor = 0.1 if each.metric == "interval_miss_ratio" else 0.0
        if old is None or each.n < LEAST or each.value <= floor + (each.noise or 0.0) * (floor > 0.0):
            continue
        if each.value > old.value + (each.noise or 0.0) + ROUNDED:
            found.append(Worse(before=old, after=each))
    return found


def read_figures(text: str) -> list[Figure]:
    """The figures of a file."""
    return [
        Figure(
            version=row["version"], scheme=row["scheme"], set=row["set"], metric=row["metric"], n=int(row["n"]),
            value=float(row["value"]), noise=float(row["noise"]) if row["noise"] else None,
        )
        for row in csv.DictReader(io.StringIO(text))
    ]


def figures_text(figures: Iterable[Figure]) -> str:
    """The file of figures."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([field.name for field in fields(Figure)])
    writer.writerows(["" if cell is None else cell for cell in astuple(each)] for each in figures)
    return out.getvalue()


def seal() -> str:
    """What the figures of a version were made from: calibration, corpus, conventions and sets."""
    digest = hashlib.sha256()
    for pattern in SEALED:
        for path in sorted(DATA.glob(pattern)):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def pulse() -> dict[str, float]:
    """Step times of some rows by the shipped calibration: what changes where a formula does."""
    case = predictor_of(calibration_table("shipped"))
    rows = sorted(shipped_table().rows, key=lambda row: row.id)[::EVERY]
    runs = [found for row in rows if isinstance(found := read_row(row), Run)]
    with Estimates(refusals, 1) as estimates:
        predicted = list(estimates.of([(case(run), run.layout, run.reading) for run in runs]))
    return {run.id: _short(each.step_s) for run, each in zip(runs, predicted, strict=True) if each.step_s}


def moved(before: dict[str, float], after: dict[str, float]) -> list[str]:
    """Rows of the pulse whose prediction is another one."""
    names = before.keys() | after.keys()
    return sorted(name for name in names if not abs(after.get(name, 0.0) / before.get(name, 1e-9) - 1.0) <= MOVED)


def faults() -> list[str]:
    """Why the committed figures do not speak for the program as it is."""
    figures = read_figures(FIGURES.read_text(encoding="utf-8"))
    versions = yaml.safe_load(VERSIONS.read_text(encoding="utf-8"))
    names = list(versions)
    last = names[-1]
    said = []
    if versions[last]["seal"] != seal():
        said.append(f"calibration, corpus or sets are not those of version {last!r}: add one (--write --version NAME)")
    before = {row["id"]: float(row["step_s"]) for row in csv.DictReader(io.StringIO(PULSE.read_text(encoding="utf-8")))}
    if others := moved(before, pulse()):
        said.append(f"{len(others)} of {len(before)} rows are predicted otherwise than in version {last!r}, {others[0]} among them")
    for old, new in pairwise(names):
        excused = " ".join(str(words) for words in versions[new].get("because", []))
        worse = worsened(*([each for each in figures if each.version == name] for name in (old, new)))
        said += [f"version {new!r}: {each.sentence}, and nothing says why" for each in worse if each.after.set not in excused]
    return said


def write(version: str, found: Sequence[Validation], because: Sequence[str], date: str) -> None:
    """Add a version, or make it again, and keep the others."""
    known = read_figures(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else []
    kept = [each for each in known if each.version != version]
    new = [figure for each in found for figure in figures_of(version, each)]
    FIGURES.write_text(figures_text([*kept, *new]), encoding="utf-8")
    versions = yaml.safe_load(VERSIONS.read_text(encoding="utf-8")) if VERSIONS.exists() else {}
    versions.pop(version, None)
    versions[version] = {"date": date, "rows": len(found[0].rows), "seal": seal(), "because": list(because)}
    VERSIONS.write_text(yaml.safe_dump(versions, sort_keys=False, allow_unicode=True, width=140), encoding="utf-8")
    lines = "".join(f"{name},{value}\n" for name, value in pulse().items())
    PULSE.write_text(f"id,step_s\n{lines}", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Command line."""
    from benchmarks.accuracy import PICTURES, validation
    from benchmarks.accuracy_text import SCHEMES
    from benchmarks.history_picture import history_picture

    parser = argparse.ArgumentParser(prog="python -m benchmarks.history", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="add a version with its figures, and draw the history")
    parser.add_argument("--version", default="", help="name of the version that is added")
    parser.add_argument("--date", default="", help="its date")
    parser.add_argument("--because", action="append", default=[], metavar="SET: WHY", help="why a set became worse; repeatable")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="predictions kept by benchmarks.accuracy")
    options = parser.parse_args(arguments)
    if options.write:
        if not options.version:
            parser.error("--write needs --version")
        write(options.version, [validation(scheme, options.keep) for scheme in SCHEMES], options.because, options.date)
        drawn = history_picture(read_figures(FIGURES.read_text(encoding="utf-8")))
        (PICTURES / "history.svg").write_text(str(drawn), encoding="utf-8")
    said = faults()
    sys.stdout.write("".join(f"{each}\n" for each in said))
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
