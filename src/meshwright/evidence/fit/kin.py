"""What errors of recorded runs of one device, framework and precision foretell of layouts that nobody ran.

Where the formulas misjudge one layout beside another, they do so for the next model of nearly the same size, too: errors that a
calibration leaves on runs of kin may be a smooth function of case and layout. Whether they are is asked of the kin themselves: each
of their cases is foretold by the others, and where that does not help, nothing is foretold.
"""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from meshwright.evidence.fit.likeness import words
from meshwright.evidence.rows.groups import cell_key
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.evidence.rows.run import Run

    Floats = NDArray[np.float64]

OF_CASE = (0.3, 0.3, 0.2, 0.1, 0.1, 3.0)
"""Distance of a doubling of width, layers, devices, tokens of a step and of a sequence, and of dense from mixture; a doubling of a
degree of the layout is 1/3. Our judgement: how fast all of it falls off is learnt."""
OF_LAYOUT = 1.0 / 3.0
MOST, LEAST_RUNS, LEAST_CASES = 200, 12, 3
"""Runs that are asked, the nearest; runs and cases below which nobody can say whether they help."""
LARGEST = 0.7
"""Errors above this factor e^0.7 = 2 are no more than it: a run that stalled foretells nothing."""
CASES_APART = 0.15
"""Standard deviation of what all runs of the device, framework and precision share."""
HEIGHTS, LENGTHS, NOISES = (0.05, 0.1, 0.2, 0.35), (0.5, 1.0, 2.0), (0.02, 0.05, 0.1, 0.2, 0.35)
"""Standard deviations of the function, its reach, and standard deviations of what each run has alone: the likeliest is taken."""
LEAST_GAIN = 0.2
"""Share of the errors within cases that kin must foretell of each other, by median and by mean, to be asked. Our judgement; over
the corpus it is 0.7 to 0.9 or below 0.1."""


class Kin(Value, frozen=True, kw_only=True):
    """Recorded runs of one device, framework and precision."""

    places: Floats
    """``[m, f]``: ``place`` of each."""
    error: Floats
    """log(measured / predicted) by the calibration that is asked, ``[m]``."""
    case: NDArray[np.int64]
    """Runs of one case have one number."""


class Foretold(Value, frozen=True, kw_only=True):
    """What kin say of some layouts."""

    error: Floats
    """log(step / predicted) to be expected, ``[n]``."""
    spread_ratio: Floats
    """What is left of the standard deviation of a prediction."""
    gain: float
    """Share of the errors of kin that other kin foretold; 0 where nobody can be asked."""


def place(case: Case, layout: Layout) -> list[float]:
    """Where a run stands among others: sizes and degrees in doublings, times how far one is."""
    model, batch = case.model, case.batch
    sizes = (model.hidden, model.num_layers, layout.world, batch.tokens, batch.sequence_tokens)
    own = [share * math.log2(each) for share, each in zip(OF_CASE, sizes, strict=False)]
    return [*own, OF_CASE[-1] * model.is_moe, *(OF_LAYOUT * each for each in words(layout))]


def kin_of(runs: Sequence[Run], predicted_s: Sequence[float]) -> Kin:
    """Kin from timed runs and what a calibration predicts of each."""
    cases: dict[tuple[str, ...], int] = {}
    return Kin(
        places=np.array([place(run.case, run.layout) for run in runs]).reshape(len(runs), -1),
        error=np.log([run.step_s or 1.0 for run in runs]) - np.log(predicted_s),
        case=np.array([cases.setdefault(cell_key(run.row), len(cases)) for run in runs], dtype=np.int64),
    )


def nearest(runs: Sequence[Run], places: Floats, most: int = MOST) -> list[Run]:
    """The runs that are nearest to any of some places."""
    if not runs:
        return []
    theirs = np.array([place(run.case, run.layout) for run in runs])
    apart = np.array([np.abs(places - each).sum(axis=1).min() for each in theirs])
    return [runs[index] for index in np.argsort(apart, kind="stable")[:most]]


def foretold(kin: Kin, places: Floats) -> Foretold:
    """The mean of a Gaussian process over the errors of the nearest kin, and how much surer it makes a prediction.

        e = a + g(x) + noise,   Cov g = h^2 exp(-|x - x'|_1 / l);   (h, l, noise) by maximum likelihood on a grid
        ratio = sqrt((Var g + noise^2) / (h^2 + noise^2))

    Shapes:  ``places [n, f]``.
    Holds:   nothing moves where runs are few, or where leaving out one case of kin at a time, the others foretell less than
             ``LEAST_GAIN`` of how its layouts differ.
    Source:  Rasmussen and Williams 2006, (2.23)-(2.30), (5.12).
    """
    nothing = Foretold(error=np.zeros(len(places)), spread_ratio=np.ones(len(places)), gain=0.0)
    if len(kin.error) < LEAST_RUNS:
        return nothing
    across = np.abs(places[:, None, :] - kin.places[None, :, :]).sum(axis=2)
    near = np.argsort(across.min(axis=0), kind="stable")[:MOST]
    across, error, case = across[:, near], np.clip(kin.error[near], -LARGEST, LARGEST), kin.case[near]
    within = np.abs(kin.places[near][:, None, :] - kin.places[near][None, :, :]).sum(axis=2)
    height, length, noise = max(product(HEIGHTS, LENGTHS, NOISES), key=lambda each: _likelihood(within, error, *each))
    inverse = np.asarray(np.linalg.inv(_covariance(within, height, length, noise)))
    gain = _gain(inverse, error, case)
    if gain < LEAST_GAIN:
        return nothing
    shared = height**2 * np.exp(-across / length)
    left = height**2 - np.einsum("ij,jk,ik->i", shared, inverse, shared)
    return Foretold(
        error=shared @ inverse @ error, gain=gain,
        spread_ratio=np.sqrt((np.maximum(left, 0.0) + noise**2) / (height**2 + noise**2)),
    )


def _covariance(within: Floats, height: float, length: float, noise: float) -> Floats:
    return np.asarray(height**2 * np.exp(-within / length) + CASES_APART**2 + noise**2 * np.eye(len(within)))


def _likelihood(within: Floats, error: Floats, height: float, length: float, noise: float) -> float:
    root = np.linalg.cholesky(_covariance(within, height, length, noise))
    white = np.linalg.solve(root, error)
    return -float(np.log(np.diag(root)).sum()) - 0.5 * float(white @ white)


def _gain(inverse: Floats, error: Floats, case: NDArray[np.int64]) -> float:
    """The lesser share, by median and by mean, of how errors differ within a case that runs of other cases foretell.

        e_c - E[e_c | others] = (S^-1_cc)^-1 (S^-1 e)_c,   each less its case's median

    Source:  leaving out in closed form: Rasmussen and Williams 2006, (5.12), for blocks.
    """
    weighted, left, before = inverse @ error, [], []
    cases = [members for number in np.unique(case) if (members := np.flatnonzero(case == number)).size > 2]
    if len(cases) < LEAST_CASES:
        return 0.0
    for members in cases:
        missed = np.linalg.solve(inverse[np.ix_(members, members)], weighted[members])
        left.append(np.abs(missed - np.median(missed)))
        before.append(np.abs(error[members] - np.median(error[members])))
    rest, whole = np.concatenate(left), np.concatenate(before)
    shares = [1.0 - float(middle(rest)) / max(float(middle(whole)), 1e-9) for middle in (np.median, np.mean)]
    return max(0.0, min(shares))
