"""Fits that a few bad samples do not spoil, in log space. Pure numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable

Array: TypeAlias = NDArray[np.float64]

ROUNDS = 60
FREEDOM = 3.0
"""Degrees of freedom of the Student-t noise: a sample three spreads off has a third of its weight."""
LOOSE = 3.0
"""Standard deviation of a parameter's log around its start: a factor of twenty either way."""
LEAST_SPREAD = 0.02
"""No machine is steadier than that."""


def weighted_median(values: Array, weights: Array) -> float:
    """The value with half of the weight on either side, between its two neighbours where it falls between them.

    Shapes:  two vectors of one length, at least 1.
    Units:   of ``values``.
    """
    order = np.argsort(values, kind="stable")
    values, weights = np.asarray(values)[order], np.asarray(weights)[order]
    middle = np.cumsum(weights) - 0.5 * weights
    return float(np.interp(0.5 * weights.sum(), middle, values))


def spread(residuals: Array) -> float:
    """Standard deviation of the bulk: 1.48 median absolute residuals, at least ``LEAST_SPREAD``."""
    return max(LEAST_SPREAD, 1.4826 * float(np.median(np.abs(residuals))))


def fit_logs(
    residuals: Callable[[Array], Array],
    start: Array,
    low: Array,
    high: Array,
    *,
    noise: Array | float = 0.0,
    loose: Array | float = LOOSE,
) -> tuple[Array, float]:
    """Parameters that make log residuals small, and the spread of what remains.

        minimise sum w_i r_i(p)^2 + sum ((log p - log start) / l)^2;   w_i = (nu + 1) / (nu s_i^2 + r_i^2)

    Symbols: s_i^2 = spread^2 + noise_i^2; nu ``FREEDOM``; l ``loose``, how far a parameter may stray.
             Levenberg-Marquardt on log p, derivatives by differences.
    Shapes:  ``start``, ``low``, ``high`` of the parameters, above 0; ``residuals`` maps parameters to one log a sample.
    Units:   the parameters' own.
    Holds:   smooth formulas; a parameter that no sample depends on stays where it starts.
    Source:  iteratively reweighted least squares for Student-t noise (Lange, Little and Taylor 1989).
    """
    bottom, top, first = np.log(low), np.log(high), np.log(start)
    at, damping = first.copy(), 1e-3

    def cost(place: Array, found: Array, weights: Array) -> float:
        return float(np.sum(weights * np.square(found)) + np.sum(np.square((place - first) / loose)))

    found = residuals(np.exp(at))
    step = 1e-4
    for _ in range(ROUNDS):
        scale = np.square(spread(found)) + np.square(noise)
        weights = (FREEDOM + 1.0) / (FREEDOM * scale + np.square(found))
        sides = [(residuals(np.exp(at + step * unit)), residuals(np.exp(at - step * unit))) for unit in np.eye(len(at))]
        jacobian = np.stack([(above - below) / (2.0 * step) for above, below in sides], axis=1)
        normal = jacobian.T @ (weights[:, None] * jacobian) + np.eye(len(at)) / np.square(loose)
        gradient = jacobian.T @ (weights * found) + (at - first) / np.square(loose)
        before = cost(at, found, weights)
        for _ in range(12):
            trial = np.clip(at - np.linalg.solve(normal + damping * np.diag(np.diag(normal)), gradient), bottom, top)
            tried = residuals(np.exp(trial))
            if cost(trial, tried, weights) <= before:
                damping = max(1e-9, damping / 4.0)
                break
            damping *= 4.0
        else:
            break
        moved = float(np.max(np.abs(trial - at)))
        at, found = trial, tried
        if moved < 1e-7:
            break
    return np.exp(at), spread(found)
