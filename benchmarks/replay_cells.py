"""Cells of the corpus as calibrations see them that have not: what ``benchmarks.replay`` learns from and runs against.

Each belief takes seconds, so it is kept in ``--cache``.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np

from benchmarks.left_out import LeftOut, kept
from meshwright.api.legality import ANY_FRAMEWORK
from meshwright.catalog.calibrations import calibration_table
from meshwright.domain.calibration import CalibrationTable
from meshwright.estimate import estimate, evaluate
from meshwright.evidence.fit import kin as kin_module
from meshwright.evidence.fit import likeness
from meshwright.evidence.fit.fitters import predictor_of
from meshwright.evidence.fit.kin import Kin, kin_of, place
from meshwright.evidence.fit.linear import key_of
from meshwright.evidence.rows.groups import cell_key
from meshwright.evidence.rows.table import shipped_table
from meshwright.measure.tuning import scales
from meshwright.measure.tuning.beliefs import Beliefs, Subject, escape_of
from meshwright.measure.tuning.learning import Seen
from meshwright.measure.tuning.replay import RecordedCell, cells

LEARNT_FROM = 5
"""Measured layouts of a cell that scales are learnt from."""
SCHEMES = ("cell", "model")
"""Whose rows the calibration has not seen: those of the cell, or all of its model."""


@dataclass(frozen=True)
class HeldOut:
    """A cell, and what is believed of it by a calibration that has not seen it."""

    cell: RecordedCell
    scheme: str
    known: Beliefs

    @property
    def model(self) -> str:
        """The model of the cell."""
        return self.cell.key[2].lower()

    @property
    def seen(self) -> Seen:
        """What came of it."""
        ran = [index for index, each in enumerate(self.cell.candidates) if each.outcome.measured]
        failed = [index for index, each in enumerate(self.cell.candidates) if not each.outcome.measured]
        steps = [self.cell.candidates[index].outcome.step_s or 0.0 for index in ran]
        at, lost = (np.array(each, dtype=np.int64) for each in (ran, failed))
        return Seen(known=self.known, at=at, log_step=np.log(steps), failed=lost)


def held_out_cells(cache: Path, least: int) -> list[HeldOut]:
    """Every cell of the corpus with so many measured layouts, under both schemes where it has enough to be replayed."""
    from benchmarks.replay import LEAST_MEASURED

    shipped = shipped_table()
    wanted = [each for each in cells(shipped) if each.measured >= least]
    left_out = LeftOut(cache)
    found = []
    for cell in wanted:
        for scheme in SCHEMES if cell.measured >= LEAST_MEASURED else SCHEMES[:1]:
            own = sha256(cell.id.encode()).hexdigest()[:12]
            name = cache / f"beliefs-{left_out.stamp}-{code('beliefs')[:8]}-{own}-{scheme}.pickle"

            def believed(cell: RecordedCell = cell, scheme: str = scheme) -> Beliefs:
                print(f"without {scheme}: {cell.id}", file=sys.stderr)
                return cell.beliefs(predictor_of(_calibration(left_out, cell, scheme)), ANY_FRAMEWORK)

            alone = kept(name, believed)
            others = kept(name.with_name(f"kin-{name.name}"), partial(_kin, left_out, cell, scheme))
            places = np.array([place(each.case, each.layout) for each in cell.candidates])
            found.append(HeldOut(cell, scheme, alone.told(others, places)))
    return found


@dataclass(frozen=True)
class Escaping:
    """A recorded run whose messages should stall, of a cell of any size."""

    model: str
    shift: float
    """``Beliefs.escape`` of it."""
    above: float
    """log(measured / predicted), by the fit without its fold."""


def escaping(cache: Path) -> list[Escaping]:
    """Every such run of the corpus."""
    left_out = LeftOut(cache)

    def found() -> list[Escaping]:
        (_, held, _), case_of = left_out.fit, predictor_of(calibration_table("shipped"))
        rows = []
        for index, run in enumerate(left_out.runs):
            if run.step_s and run.case.implementation.message_handshake and run.layout.pipeline_parallel > 1:
                subject = Subject(case=case_of(run), layout=run.layout, reading=run.reading)
                evaluation = evaluate(subject.case, run.layout)
                known = estimate(subject.case, run.layout, evaluation)
                shift = escape_of(subject, known, float(evaluation.time.stall_s))
                rows.append(Escaping(run.row.model.lower(), shift, math.log(run.step_s) - float(held.step[index])))
        return [each for each in rows if each.shift < 0.0]

    return kept(cache / f"escaping-{left_out.stamp}-{code('beliefs')[:8]}.pickle", found)  # type: ignore[no-any-return]


def _kin(left_out: LeftOut, cell: RecordedCell, scheme: str) -> Kin:
    """Runs of the same device, framework and precision that the calibration has seen: none of the cell, or of its model."""
    members = _members(left_out, cell, scheme)
    predicted_s = np.exp(left_out.predicted_without(members))
    wanted = key_of(cell.candidates[0].run).values()["cell"]
    chosen = [index for index, run in enumerate(left_out.runs)
              if run.step_s and not members[index] and key_of(run).values()["cell"] == wanted]
    return kin_of([left_out.runs[index] for index in chosen], [float(predicted_s[index]) for index in chosen])


def _members(left_out: LeftOut, cell: RecordedCell, scheme: str) -> list[bool]:
    """Which runs are of the cell, or of its model."""
    model = cell.key[2].lower()
    return [run.row.model.lower() == model if scheme == "model" else cell_key(run.row) == cell.key for run in left_out.runs]


def _calibration(left_out: LeftOut, cell: RecordedCell, scheme: str) -> CalibrationTable:
    """The fit to all rows but those of the cell, or of its model."""
    return left_out.without(_members(left_out, cell, scheme), scheme)


def code(*names: str, kin: bool = True) -> str:
    """A digest of modules of the tuner, and of what kin say: what was made by other code is made anew."""
    folder = Path(scales.__file__).parent
    paths = [*(folder / f"{name}.py" for name in names), Path(likeness.__file__), *([Path(kin_module.__file__)] if kin else [])]
    return sha256("".join(path.read_text(encoding="utf-8") for path in paths).encode()).hexdigest()
