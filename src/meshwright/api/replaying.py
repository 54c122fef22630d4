"""``tune --replay``: the tuner against recorded runs."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from meshwright.errors import InputError, fault
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.api.fields import Values
    from meshwright.evidence.fit.fitters import Predictor
    from meshwright.measure.tuning.beliefs import Beliefs
    from meshwright.measure.tuning.replay import Chooser, RecordedCell, Replayed
    from meshwright.measure.tuning.tuner import Prospect

MOST_CANDIDATES = 2000
"""Layouts of a cell: their covariance is a square of them."""


class Replay(Value, frozen=True, kw_only=True):
    """One cell, and what a sampler did with it, by seed."""

    cell: RecordedCell
    cells: tuple[str, ...]
    """Identifiers of all cells of the file, those with most measured layouts first."""
    sampler: str
    calibration: str
    known: Beliefs
    runs: tuple[Replayed, ...]
    """By seed, from 0 on."""
    prospect: Prospect | None
    """What was left to find where the first run stopped; None of a sampler that does not know."""


def replay(values: Values) -> Replay:
    """Tune a cell of a file of measured runs.

    Errors:  ``InputError`` for a file without a cell, for one that is not in it, and for a file that the calibration cannot be.
    """
    from meshwright.api.kin import predictor_named
    from meshwright.api.legality import ANY_FRAMEWORK
    from meshwright.evidence.rows.table import read_table
    from meshwright.measure.tuning.replay import cell_of, cells, replayed
    from meshwright.measure.tuning.samplers import require_optuna
    from meshwright.measure.tuning.tuner import Tuner

    sampler = values.get("sampler", "model")
    if sampler in ("tpe", "gp"):
        require_optuna(sampler)
    path = str(values["replay"])
    every = cells(read_table(path))
    cell = cell_of(every, values["cell"], path) if "cell" in values else every[0]
    if len(cell.candidates) > MOST_CANDIDATES:
        raise fault("replay.many", "{count:,} layouts in cell {cell}, {limit:,} is the limit", path=path,
                    count=len(cell.candidates), cell=cell.id, limit=MOST_CANDIDATES)
    label, predictor = predictor_named(values.get("calibration"))
    cell = _estimable(cell, path)
    known = _informed(cell, cell.beliefs(predictor, ANY_FRAMEWORK), predictor)
    runs, prospect = [], None
    for seed in range(values.get("seeds", 1)):
        chooser, onward = (_chooser(sampler, cell, known, seed, values, stops) for stops in (True, False))
        runs.append(replayed(cell, known, chooser, onward=onward, most=values.get("trials")))
        if isinstance(chooser, Tuner) and prospect is None:
            prospect = chooser.prospect
    return Replay(
        cell=cell, cells=tuple(each.id for each in every), sampler=sampler, calibration=label, known=known, runs=tuple(runs),
        prospect=prospect,
    )


def _informed(cell: RecordedCell, known: Beliefs, predictor: Predictor) -> Beliefs:
    """With what recorded runs of other cells foretell: what is replayed is not asked about itself."""
    from meshwright.api.kin import informed
    from meshwright.evidence.rows.groups import cell_key

    case = predictor(cell.candidates[0].run)
    return informed(known, case, [each.layout for each in cell.candidates], predictor, lambda run: cell_key(run.row) == cell.key)


def _estimable(cell: RecordedCell, path: str) -> RecordedCell:
    """A cell without the layouts that the cost model has no estimate of.

    Errors:  ``InputError`` where none that was measured is left.
    """
    from meshwright.estimate import evaluate

    kept, why = [], ""
    for each in cell.candidates:
        if not each.case.training.precision.runs_on(each.case.cluster.device):
            why = why or "the device does not compute in the data types of the recipe"
            continue
        try:
            evaluate(each.case, each.layout)
        except InputError as error:
            why = why or str(error.messages[0])
        else:
            kept.append(each)
    if not any(each.outcome.measured for each in kept):
        raise fault("replay.estimate", "no estimate of any measured layout of cell {cell}: {why}", path=path, cell=cell.id, why=why)
    return replace(cell, candidates=tuple(kept))


def _chooser(sampler: str, cell: RecordedCell, known: Beliefs, seed: int, values: Values, stops: bool) -> Chooser:
    """A sampler by its name, with its rule to stop or without."""
    from meshwright.measure.tuning.replay import words_of
    from meshwright.measure.tuning.samplers import Optuna, shuffled
    from meshwright.measure.tuning.tuner import STOP_PROBABILITY, Tuner

    if sampler == "random":
        return shuffled(cell.candidates, seed)
    if sampler in ("tpe", "gp"):
        return Optuna(cell.candidates, words_of(known), sampler, seed)
    make: Any = partial(Tuner, cell.candidates, known, seed=seed)
    found: Chooser = make(stop_probability=values.get("stop_probability", STOP_PROBABILITY) if stops else 0.0)
    return found
