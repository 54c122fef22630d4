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
SHIFT = math.log(2.0)
"""Standard deviation of a factor that a whole cell may be off by: a machine, a network or a program that nobody measured
(docs/accuracy.md, priors alone)."""
ROUNDS = 8
"""Of the fixed point of stalls. Our judgement."""


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
    mean: Floats, covariance: Floats, at: Sequence[int], log_step: Floats, noise: Floats, trouble: Floats, degrees: float,
    shifted: float = 0.0,
) -> Steps:
    """Condition on measured steps; with probability ``shifted`` all predictions of the cell are off by one factor.

        p = (1 - shifted) N(m, C) + shifted N(m, C + log(2)^2 1 1^T),   each conditioned and weighed by its evidence

    Shapes:  ``[n]``, ``[n, n]``, trials ``[t]``; ``trouble`` beside the trials.
    Units:   log units.
    Holds:   mean and covariance are those of the mixture.
    """
    index = np.array(at, dtype=np.int64)
    if not len(index):
        return Steps(mean, covariance, np.zeros(0), degrees)
    found, evidence = conditioned(mean, covariance, index, log_step, noise, trouble, degrees)
    if shifted <= 0.0:
        return found
    other, unlike = conditioned(mean, covariance + SHIFT**2, index, log_step, noise, trouble, degrees)
    odds = math.log(shifted / (1.0 - shifted)) + unlike - evidence
    share = 1.0 / (1.0 + math.exp(min(max(-odds, -60.0), 60.0)))
    apart = other.mean - found.mean
    return Steps(
        mean=np.asarray(found.mean + share * apart), stalled=np.asarray(found.stalled + share * (other.stalled - found.stalled)),
        covariance=np.asarray(
            (1.0 - share) * found.covariance + share * other.covariance + share * (1.0 - share) * np.outer(apart, apart)
        ),
        degrees=found.degrees,
    )


def conditioned(
    mean: Floats, covariance: Floats, index: NDArray[np.int64], log_step: Floats, noise: Floats, trouble: Floats, degrees: float
) -> tuple[Steps, float]:
    """What trials say of all candidates, and the log of how likely they are.

        m' = m + K_a S^-1 (y - m_a),   C' = b (C - K_a S^-1 K_a^T),   S = K_aa + diag(noise^2 / (1 - stalled))
        b = (nu + (y - m_a)^T S^-1 (y - m_a)) / (nu + t)

    Symbols: a the t trials; nu ``degrees``; b how much worse the predictions of this cell are than those of others, as its trials
             show; stalled the probability that a trial took longer than the layout need: q u / (q u + (1 - q) N(e; v)), with q the
             ``trouble``, e its distance above what the other trials let expect, v that expectation's variance, u 1 / ``STALLED``
             for e above 0.
    Units:   log units.
    Holds:   without stalls and with endless ``degrees`` exactly Gaussian conditioning.
    Source:  Rasmussen and Williams 2006, (2.23), (2.30), (5.12); Student-t processes: Shah et al. 2014, lemma 3.
    """
    stalled = np.zeros(len(index))
    own, residual, noise2 = covariance[np.ix_(index, index)], log_step - mean[index], np.square(noise)
    for _ in range(ROUNDS if trouble.any() else 0):
        counted = noise2 / np.maximum(1.0 - stalled, 1e-6)
        inverse = np.linalg.inv(own + np.diag(counted))
        apart, variance = (inverse @ residual) / np.diag(inverse), 1.0 / np.diag(inverse) - counted + noise2
        stalled = stall_probability(apart, np.maximum(variance, noise2), trouble)
    inverse = np.linalg.inv(own + np.diag(noise2 / np.maximum(1.0 - stalled, 1e-6)))
    ran = 1.0 - stalled
    scale = (degrees + float(residual @ inverse @ residual)) / (degrees + float(ran.sum()))
    across = covariance[:, index]
    kept = stalled < 0.5
    believed = own[np.ix_(kept, kept)] + np.diag(noise2[kept])
    evidence = -0.5 * float(residual[kept] @ np.linalg.solve(believed, residual[kept])) - 0.5 * float(
        np.linalg.slogdet(2.0 * math.pi * believed)[1]
    )
    if trouble.any():
        evidence += float(np.where(kept, np.log1p(-trouble), np.log(trouble / STALLED)).sum())
    return Steps(
        mean=np.asarray(mean + across @ (inverse @ residual)), stalled=stalled, degrees=degrees + float(ran.sum()),
        covariance=np.asarray(scale * (covariance - across @ inverse @ across.T)),
    ), evidence


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
