"""Which of some runs to measure first: those whose steps say most about the steps of all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.evidence.fit.sharing import covariance_of
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.evidence.fit.sharing import Own

    Floats = NDArray[np.float64]


SAID = 40
"""Steps that are asked how far constants have moved: more say it no better, and take longer. Our judgement."""


class Choice(Value, frozen=True, kw_only=True):
    """One run that should be measured, and what is unknown of all once it is and those chosen before it."""

    index: int
    left_ratio: float
    """Root of the mean variance of the errors of all runs over that before any of them was chosen."""


def most_telling(own: Own, measured: Sequence[int], count: int) -> list[Choice]:
    """The runs to measure, one after the other, each the one that leaves least unknown of all.

        C' = C - c_i c_i^T / (C_ii + s_i^2);   i = argmin of  sum over j of C'_jj

    Symbols: C covariance of what runs share of their errors, s a run's own part (``sharing.covariance_of``); c_i its column.
    Shapes:  ``measured``: places of the runs that are known already; at most ``count`` others are chosen.
    Holds:   of runs that are not known, no step is asked, only layouts and cases: the choice can be made before anything runs.
             Steps that are known say how far constants have moved and how good predictions are, and with that what is still
             unknown. One after the other is not the best set of ``count``, which nothing short of trying all would find.
    Source:  Rasmussen and Williams 2006, (2.24); A-optimality: Krause, Singh and Guestrin 2008, section 3.
    """
    cov, noise = covariance_of(own, [index for index in measured if np.isfinite(own.error[index])][:SAID])
    for index in measured:
        cov = _known(cov, noise, index)
    found: list[Choice] = []
    start, left = float(np.trace(cov)), sorted(set(range(len(noise))) - set(measured))
    while left and len(found) < count and start > 0.0:
        gains = np.square(cov).sum(axis=1) / (np.diag(cov) + noise)
        best = max(left, key=lambda index: float(gains[index]))
        cov = _known(cov, noise, best)
        left.remove(best)
        found.append(Choice(index=best, left_ratio=float(np.sqrt(max(np.trace(cov), 0.0) / start))))
    return found


def _known(cov: Floats, noise: Floats, index: int) -> Floats:
    return np.asarray(cov - np.outer(cov[index], cov[index]) / (cov[index, index] + noise[index]))
