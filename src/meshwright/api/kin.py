"""Recorded runs of the device, framework and precision of a case, as ``tune`` asks them before its first trial."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.evidence.fit.fitters import Predictor
    from meshwright.evidence.rows.run import Run
    from meshwright.measure.tuning.beliefs import Beliefs


def informed(
    known: Beliefs, case: Case, layouts: Sequence[Layout], predictor: Predictor, but: Callable[[Run], bool] | None = None
) -> Beliefs:
    """Beliefs of a case's layouts, moved by what runs of the shipped corpus foretell of them.

    ``predictor``: of the calibration that the case has; ``but``: runs that are not asked.
    Holds:   the same beliefs where there are no such runs, or where they do not even foretell each other.
    """
    import numpy as np

    from meshwright.catalog.calibrations import key_for
    from meshwright.estimate import estimate
    from meshwright.evidence.fit.kin import kin_of, nearest, place
    from meshwright.evidence.fit.linear import key_of
    from meshwright.evidence.rows.reading import read_runs
    from meshwright.evidence.rows.table import shipped_table

    uncertainty = case.calibration.uncertainty
    if uncertainty is None or not uncertainty.seen.get("cell"):
        return known
    wanted = key_for(case.cluster, framework=case.implementation.family, precision=case.training.precision.name).values()["cell"]
    runs = [run for run in read_runs(shipped_table()).runs
            if run.step_s and key_of(run).values()["cell"] == wanted and not (but and but(run))]
    if not runs:
        return known
    places = np.array([place(case, layout) for layout in layouts])
    asked = nearest(runs, places)
    return known.told(kin_of(asked, [estimate(predictor(run), run.layout).step_s for run in asked]), places)


def predictor_named(name: str | None) -> tuple[str, Predictor]:
    """What predicts, and its name."""
    from meshwright.catalog.calibrations import DEFAULT, calibration_table, is_none
    from meshwright.evidence.fit.fitters import predictor_of, prior_fitter

    wanted = name or DEFAULT
    if is_none(wanted):
        prior = prior_fitter()
        return prior.label, prior.predictor
    table = calibration_table(wanted)
    return f"{table.name}@{table.version}", predictor_of(table)
