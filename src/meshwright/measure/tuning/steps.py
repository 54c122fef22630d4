"""The posterior over step times: Gaussian, with trials that stalled set aside as far as they did."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

NOISE = 0.02
"""Standard deviation of the log of a step that is measured again on the same devices (``evidence.fit.noise.FLOOR``)."""
STALLED = 3.0
"""A run that stalls takes up to e^3 = 20 times as long, any factor being as likely (corpus: 1.3 to 20)."""
ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Steps:
    """What is believed of every candidate's log step where it does not stall."""

    mean: Floats
    covariance: Floats
    stalled: Floats
    """Probability that each trial stalled, in the order told."""
    degrees: float
    """Degrees of freedom of the Student-t that the covariance is the scale of."""


def update(
    mean: Floats, covariance: Floats, at: Sequence[int], log_step: Floats, noise: Floats, trouble: Floats, degrees: float
) -> Steps:
    """Condition on measured steps.

        m' = m + K_a S^-1 (y - m_a),   C' = b (C - K_a S^-1 K_a^T),   S = K_aa + diag(noise^2 / (1 - stalled))
        b = (nu + (y - m_a)^T S^-1 (y - m_a)) / (nu + t)

    Symbols: a the t trials; nu ``degrees``; b how much worse the predictions of this cell are than those of others, as its trials
             show; stalled the probability that a trial took longer than the layout need: q u / (q u + (1 - q) N(e; v)), with q the
             ``trouble``, e its distance above what the other trials let expect, v that expectation's variance, u 1 / ``STALLED``
             for e above 0.
    Shapes:  ``[n]``, ``[n, n]``, trials ``[t]``.
    Units:   log units.
    Holds:   without stalls and with endless ``degrees`` exactly Gaussian conditioning.
    Source:  Rasmussen and Williams 2006, (2.23), (5.12); Student-t processes: Shah et al. 2014, lemma 3.
    """
    index = np.array(at, dtype=np.int64)
    stalled, scale = np.zeros(len(index)), 1.0
    if not len(index):
        return Steps(mean, covariance, stalled, degrees)
    own, residual, noise2 = covariance[np.ix_(index, index)], log_step - mean[index], np.square(noise)
    for _ in range(ROUNDS if trouble.any() else 0):
        counted = noise2 / np.maximum(1.0 - stalled, 1e-6)
        inverse = np.linalg.inv(own + np.diag(counted))
        apart, variance = (inverse @ residual) / np.diag(inverse), 1.0 / np.diag(inverse) - counted + noise2
        stalled = stall_probability(apart, np.maximum(variance, noise2), trouble)
    counted = noise2 / np.maximum(1.0 - stalled, 1e-6)
    inverse = np.linalg.inv(own + np.diag(counted))
    scale = (degrees + float(residual @ inverse @ residual)) / (degrees + float((1.0 - stalled).sum()))
    across = covariance[:, index]
    return Steps(
        mean=np.asarray(mean + across @ (inverse @ residual)), stalled=stalled, degrees=degrees + float((1.0 - stalled).sum()),
        covariance=np.asarray(scale * (covariance - across @ inverse @ across.T)),
    )


def stall_probability(above: Floats, variance: Floats, trouble: Floats) -> Floats:
    """That a run which took so much longer than expected stalled."""
    normal = np.exp(-0.5 * np.square(above) / variance) / np.sqrt(2.0 * math.pi * variance)
    stall = below(above / np.sqrt(variance)) / STALLED
    return np.asarray(trouble * stall / (trouble * stall + (1.0 - trouble) * normal + 1e-300))


def below(z: Floats) -> Floats:
    """The normal distribution function."""
    return np.array([0.5 * math.erfc(-each / math.sqrt(2.0)) for each in np.ravel(z)]).reshape(np.shape(z))


def expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """Mean of how far a log step lies below the best one, nought where above.

        EI = s (z Phi(z) + phi(z)),   z = (best - m) / s

    Source:  Jones, Schonlau and Welch 1998.
    """
    safe = np.maximum(deviation, 1e-12)
    z = (best - mean) / safe
    density = np.exp(-0.5 * np.square(z)) / math.sqrt(2.0 * math.pi)
    return np.asarray(safe * np.maximum(z * below(z) + density, 0.0))
