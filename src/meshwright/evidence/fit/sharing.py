"""What the errors of a few own runs have in common, and what is each run's alone.

An error (log measured over predicted) is a sum: of the physical constants of a device under a framework in a precision, of what
all own runs share, of what runs of one model and layouts alike share, and of the run's own, whose tails are heavy. How much of the
first there is, and how good predictions of this source are, nobody knows before: both are summed over.

    e = t J S g + s (a u + m u_model + l (c f(layout) + o x)),   u, g, f Gaussian; x Student's t of ``TAILS``
    Cov f = exp(-distance / reach);   t in ``MOVES``, l in ``PRECISIONS``, each with its prior

Symbols: J derivatives by the constants, S their prior spreads; s the standard deviation of each prediction.
Source:  scale mixtures: Rasmussen and Williams 2006, (2.23) for each (t, l); the t by its weights, as in Lange et al. 1989.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from meshwright.evidence.fit.noise import FLOOR
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Flags = NDArray[np.bool_]

MOVES = {0.02: 0.23, 0.1: 0.14, 0.25: 0.23, 0.5: 0.17, 1.0: 0.13, 2.0: 0.1}
"""How far constants may be from where kin have them, in spreads, each with its probability."""
PRECISIONS = {0.5: 0.32, 1.0: 0.44, 2.0: 0.18, 4.0: 0.06}
"""How far layouts are off beside what intervals say, each with its probability."""
KNOWN = 0.7
"""Spreads of constants of a device, framework and precision that have runs, over those without."""
COMMON, MODEL, ALIKE, REACH, OWN = 0.3, 0.1, 0.7, 2.5, 0.3
"""Shares of the standard deviation of a prediction; reach in doublings of a degree. These and ``KNOWN`` foretell best, on coarse
grids, what sources of the corpus that are left out whole say after one, three or chosen runs (docs/few-shot.md)."""
TAILS, WIDER = 4.0, 1.35
"""Degrees of freedom of a run's own error; variance that stands for its tails where a new run is predicted."""
ROUNDS = 12
"""Of the fixed point of its weights. Our judgement."""
APART, BOUND_ALIKE = 3.0, 0.75
"""A layout that somebody asks about is at least so many doublings from those that were run: what intervals are made for (our
judgement); and how far its step depends on the same constants (mean correlation of ``J S`` between two runs of a cell, medians of
sources of the corpus)."""


class Own(Value, frozen=True, kw_only=True):
    """Own runs, as a calibration sees them that has none of them."""

    error: Floats
    """log(measured / predicted), ``[n]``."""
    spread: Floats
    """Standard deviation of each by its interval, in log units."""
    by: Floats
    """``[n, k]``: derivative of the log step by the log of each constant, times its prior spread."""
    cell: NDArray[np.int64]
    """Device, framework and precision."""
    known: Flags
    """Whether the calibration has runs of that cell."""
    model: NDArray[np.int64]
    distance: Floats
    """``[n, n]``: between layouts (``likeness.distance``)."""

    @property
    def together(self) -> Floats:
        """1 where two runs are of one cell, ``[n, n]``."""
        return np.asarray((self.cell[:, None] == self.cell[None, :]).astype(float))

    def of(self, members: Sequence[int]) -> Own:
        """Some of the runs, in this order."""
        at = list(members)
        return Own(
            error=self.error[at], spread=self.spread[at], by=self.by[at], cell=self.cell[at], known=self.known[at],
            model=self.model[at], distance=self.distance[np.ix_(at, at)],
        )


class Shared(Value, frozen=True, kw_only=True):
    """What own runs say of themselves and of others."""

    error: Floats
    """What other runs of these layouts would have, too: each error less its own part, ``[n]``."""
    half_width: Floats
    """Of the interval of 0.9 of a layout that differs from each in some knobs, ``[n]``; log units."""


PAIRS = [(move, precision) for move in MOVES for precision in PRECISIONS]
LOG_CHANCES = np.log([MOVES[move] * PRECISIONS[precision] for move, precision in PAIRS])


def shared(own: Own) -> Shared:
    """The posterior, as a mixture over ``MOVES`` and ``PRECISIONS``.

    Holds:   one run that is far off moves less than its error; several that agree move nearly all of theirs.
    """
    log_weight = LOG_CHANCES.copy()
    means, others, deviations = [], [], []
    for number, (move, precision) in enumerate(PAIRS):
        cov, fresh = _covariances(own, move, precision)
        noise = np.square(precision * OWN * own.spread)
        inverse, evidence = _robust(own.error, cov, noise + FLOOR**2)
        log_weight[number] += evidence
        means.append(cov @ inverse @ own.error)
        others.append(fresh @ inverse @ own.error)
        left = np.diag(cov) - np.einsum("ij,jk,ik->i", fresh, inverse, fresh)
        deviations.append(np.sqrt(np.maximum(left, 0.0) + WIDER * (noise + FLOOR**2)))
    weight = _chances(log_weight)
    return Shared(error=weight @ np.array(means), half_width=_half_width(weight, np.array(others), np.array(deviations)))


def covariance_of(own: Own, measured: Sequence[int] = ()) -> tuple[Floats, Floats]:
    """What runs share of their errors, and the variance of each run's own part.

        Cov = E[t^2] J S^2 J^T + s s^T (a^2 + m^2 + E[l^2] c^2 Cov f)

    ``measured``: runs whose errors say how far constants have moved and how good predictions are: E is over (t, l) given them.
             Other errors are not asked.
    Shapes:  ``[n, n]``, ``[n]``.
    Units:   log units squared.
    """
    log_weight = LOG_CHANCES.copy()
    if len(measured):
        told = own.of(measured)
        for number, (move, precision) in enumerate(PAIRS):
            noise = np.square(precision * OWN * told.spread) + FLOOR**2
            log_weight[number] += _robust(told.error, _covariances(told, move, precision)[0], noise)[1]
    move, precision = np.sqrt(_chances(log_weight) @ np.square(PAIRS))
    covariance, _ = _covariances(own, float(move), float(precision))
    return covariance, np.asarray(WIDER * (np.square(precision * OWN * own.spread) + FLOOR**2))


def _chances(log_weight: Floats) -> Floats:
    weight = np.exp(log_weight - log_weight.max())
    return np.asarray(weight / weight.sum())


def _covariances(own: Own, move: float, precision: float) -> tuple[Floats, Floats]:
    """Of own runs with each other, and of layouts at least ``APART`` from each with own runs; without their own parts."""
    reach = move * np.where(own.known, KNOWN, 1.0)
    spread, model = np.outer(own.spread, own.spread), own.model[:, None] == own.model[None, :]
    physics = np.outer(reach, reach) * (own.by @ own.by.T) * own.together
    rest = spread * (COMMON**2 + MODEL**2 * model * own.together)
    alike = (precision * ALIKE) ** 2 * spread * own.together
    near = np.exp(-own.distance / REACH)
    far = np.minimum(near, math.exp(-APART / REACH))
    return physics + rest + alike * near, BOUND_ALIKE * physics + rest + alike * far


def _robust(error: Floats, cov: Floats, noise: Floats) -> tuple[Floats, float]:
    """Inverse of what errors vary by, with the weight of each run's own error settled, and the log of how likely the errors are.

        w = (nu + 1) / (nu + E[x^2]),   x the own error over its scale

    Source:  variational Student's t: Tipping and Lawrence 2005, (12)-(16), the evidence without constants.
    """
    weight = np.ones(len(error))
    for _ in range(ROUNDS):
        inverse = np.linalg.inv(cov + np.diag(noise / weight))
        gain = cov @ inverse
        size = np.square(error - gain @ error) + np.maximum(np.diag(cov) - (gain * cov).sum(axis=1), 0.0)
        weight = (TAILS + 1.0) / (TAILS + size / noise)
    evidence = -0.5 * float(error @ inverse @ error) + 0.5 * float(np.linalg.slogdet(inverse)[1])
    rate = (TAILS + size / noise) / 2.0
    own = -0.5 * np.log(weight) - (TAILS + 1.0) / 2.0 * np.log(rate) + weight * size / noise / 2.0
    return np.asarray(inverse), evidence + float(own.sum())


def _half_width(weight: Floats, means: Floats, deviations: Floats, level: float = 0.9) -> Floats:
    """Of the interval about the mean of a mixture of normals that holds so much of it, by halving.

    Shapes:  ``[m]``, ``[m, n]``, ``[m, n] -> [n]``.
    """
    apart = np.abs(means - weight @ means)
    low, high = np.zeros(means.shape[1]), (apart + 6.0 * deviations).max(axis=0)
    for _ in range(40):
        middle = (low + high) / 2.0
        held = weight @ (_below((middle - apart) / deviations) - _below((-middle - apart) / deviations))
        low, high = np.where(held < level, middle, low), np.where(held < level, high, middle)
    return np.asarray((low + high) / 2.0)


def _below(z: Floats) -> Floats:
    """The normal distribution function."""
    return np.array([0.5 * math.erfc(-each / math.sqrt(2.0)) for each in np.ravel(z)]).reshape(np.shape(z))
