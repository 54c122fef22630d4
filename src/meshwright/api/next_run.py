"""Which layout to measure next: the one whose measurement narrows the choice between the best plans most."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from meshwright.domain.calibration import CalibrationTable
    from meshwright.domain.features import Features
    from meshwright.evidence.rows.run import Run

    Floats = NDArray[np.float64]

MOST, LEAST = 12, 4
"""Plans that are chosen between: those that the model cannot tell from the first, within these numbers."""


class NextRun(Value, frozen=True, kw_only=True):
    """A layout that should be measured, and what that is worth."""

    label: str
    narrows_ratio: float
    """Share by which the standard deviation of what the first plan gains over its rivals falls."""
    candidates: int
    """Plans that were chosen between."""
    model: str
    devices: int


def next_run(runs: Sequence[Run], table: CalibrationTable) -> NextRun | None:
    """For the case that most of the runs are of (the last of those with as many); None where no two plans fit.

    The uncertainty of the candidates is the tuner's (``measure.tuning.scales``), less what the own runs of the case have shown.
    """
    import numpy as np

    from meshwright import search
    from meshwright.errors import InputError
    from meshwright.evidence.fit.fitters import predictor_of
    from meshwright.measure.tuning.beliefs import Subject, beliefs
    from meshwright.measure.tuning.scales import covariance, shipped_scales

    counts = Counter(repr(run.case) for run in runs)
    of = max(enumerate(runs), key=lambda each: (counts[repr(each[1].case)], each[0]))[1]
    case = predictor_of(table)(of)
    try:
        result = search.plan(case, _features(of), search.SearchOptions(top=MOST))
    except InputError:  # a task or a model that no search knows: the runs were read, that is all
        return None
    plans = [plan for plan in result.plans if plan.estimate.fits][: max(LEAST, result.within_error)]
    if len(plans) < 2:
        return None
    own = [run.layout for run in runs if repr(run.case) == repr(of.case) and run.step_s]
    known = beliefs([Subject(case=case, layout=layout) for layout in (*(plan.layout for plan in plans), *own)])
    count = len(plans)
    before = given(covariance(known, shipped_scales()), range(count, len(known)))[:count, :count]
    narrowed = narrows(known.log_step[:count], before)
    best = int(np.argmax(narrowed))
    return NextRun(
        label=plans[best].label, narrows_ratio=float(narrowed[best]), candidates=count, model=case.model.name,
        devices=case.cluster.num_devices,
    )


def _features(run: Run) -> Features:
    """What the framework of a run can do; anything that some framework has where it is none of ours."""
    from meshwright.api.legality import ANY_FRAMEWORK
    from meshwright.frameworks import framework, frameworks

    return framework(run.family).features if run.family in frameworks() else ANY_FRAMEWORK


def given(covariance: Floats, measured: Sequence[int] | range) -> Floats:
    """The covariance of all once some are measured.

        C' = C - C_a (C_aa + s^2)^-1 C_a^T,   s the noise of a measured step

    Shapes:  ``[n, n]``.
    Units:   log units squared.
    Source:  Rasmussen and Williams 2006, (2.24).
    """
    import numpy as np

    from meshwright.measure.tuning.steps import NOISE

    at = list(measured)
    if not at:
        return covariance
    across = covariance[:, at]
    return np.asarray(covariance - across @ np.linalg.solve(covariance[np.ix_(at, at)] + NOISE**2 * np.eye(len(at)), across.T))


def narrows(log_step: Floats, covariance: Floats) -> Floats:
    """By how much measuring each candidate narrows the choice of the fastest.

        1 - sqrt(sum_j w_j v'_j / sum_j w_j v_j),   v_j = Var(log t_j - log t_best),   w_j = P(t_j < t_best)

    Symbols: best the fastest by expectation; v' once the candidate is measured; w what it matters that a rival is uncertain.
    Shapes:  ``[n], [n, n] -> [n]``, each 0..1.
    Holds:   nought where nothing is uncertain. Measuring what all candidates share narrows nothing.
    """
    import numpy as np

    from meshwright.measure.tuning.steps import below

    best = int(np.argmin(log_step))
    rivals = np.arange(len(log_step)) != best

    def gaps(of: Floats) -> Floats:
        return np.asarray(np.maximum(np.diag(of) + of[best, best] - 2.0 * of[best], 0.0)[rivals])

    spread = gaps(covariance)
    chance = below((log_step[best] - log_step[rivals]) / np.sqrt(np.maximum(spread, 1e-18)))
    total = float(chance @ spread)
    if total <= 1e-18:
        return np.zeros(len(log_step))
    left = [float(chance @ gaps(given(covariance, [index]))) / total for index in range(len(log_step))]
    return np.asarray(1.0 - np.sqrt(np.clip(np.array(left), 0.0, 1.0)))
