"""The posterior over step times: Gaussian, with trials that stalled, or escaped a stall, set aside as far as they did."""

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
    aside: Floats
    """Probability that each trial took another time than its layout mostly does: it stalled, or it escaped."""
    degrees: float
    """Degrees of freedom of the Student-t that the covariance is the scale of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Luck:
    """What may have become of each trial beside what its layout mostly takes."""

    stall: Floats
    """Probability that it stalls before it has run."""
    escape: Floats
    """``Beliefs.escape`` of its layout."""
    chance: float
    """Probability that it escapes, where it can (``Scales.escape``)."""

    @property
    def escapes(self) -> Floats:
        """Probability that each escapes before it has run."""
        return np.where(self.escape < 0.0, self.chance, 0.0)

    @property
    def any(self) -> bool:
        """Whether anything may have become of any."""
        return bool(self.stall.any() or self.escapes.any())


def update(
    mean: Floats, covariance: Floats, at: Sequence[int], log_step: Floats, noise: Floats, luck: Luck, degrees: float,
    shifted: float = 0.0,
) -> Steps:
    """Condition on measured steps; with probability ``shifted`` all predictions of the cell are off by one factor.

        p = (1 - shifted) N(m, C) + shifted N(m, C + log(2)^2 1 1^T),   each conditioned and weighed by its evidence

    Shapes:  ``[n]``, ``[n, n]``, trials ``[t]``; ``luck`` beside the trials.
    Units:   log units.
    Holds:   mean and covariance are those of the mixture.
    """
    index = np.array(at, dtype=np.int64)
    if not len(index):
        return Steps(mean, covariance, np.zeros(0), np.zeros(0), degrees)
    found, evidence = conditioned(mean, covariance, index, log_step, noise, luck, degrees)
    if shifted <= 0.0:
        return found
    other, unlike = conditioned(mean, covariance + SHIFT**2, index, log_step, noise, luck, degrees)
    odds = math.log(shifted / (1.0 - shifted)) + unlike - evidence
    share = 1.0 / (1.0 + math.exp(min(max(-odds, -60.0), 60.0)))
    apart = other.mean - found.mean
    return Steps(
        mean=np.asarray(found.mean + share * apart), stalled=np.asarray(found.stalled + share * (other.stalled - found.stalled)),
        covariance=np.asarray(
            (1.0 - share) * found.covariance + share * other.covariance + share * (1.0 - share) * np.outer(apart, apart)
        ),
        degrees=found.degrees, aside=np.asarray(found.aside + share * (other.aside - found.aside)),
    )


def conditioned(
    mean: Floats, covariance: Floats, index: NDArray[np.int64], log_step: Floats, noise: Floats, luck: Luck, degrees: float
) -> tuple[Steps, float]:
    """What trials say of all candidates, and the log of how likely they are.

        m' = m + K_a S^-1 (y - m_a),   C' = b (C - K_a S^-1 K_a^T),   S = K_aa + diag(noise^2 / (1 - aside))
        b = (nu + (y - m_a)^T S^-1 (y - m_a)) / (nu + t)

    Symbols: a the t trials; nu ``degrees``; b how much worse the predictions of this cell are than those of others, as its trials
             show; aside the probability that a trial took another time than its layout mostly does (``set_aside``), by its distance
             above what the other trials let expect and that expectation's variance.
    Units:   log units.
    Holds:   without luck and with endless ``degrees`` exactly Gaussian conditioning.
    Source:  Rasmussen and Williams 2006, (2.23), (2.30), (5.12); Student-t processes: Shah et al. 2014, lemma 3.
    """
    stalled = escaped = np.zeros(len(index))
    own, residual, noise2 = covariance[np.ix_(index, index)], log_step - mean[index], np.square(noise)
    for _ in range(ROUNDS if luck.any else 0):
        counted = noise2 / np.maximum(1.0 - stalled - escaped, 1e-6)
        inverse = np.linalg.inv(own + np.diag(counted))
        apart, variance = (inverse @ residual) / np.diag(inverse), 1.0 / np.diag(inverse) - counted + noise2
        stalled, escaped = set_aside(apart, np.maximum(variance, noise2), luck)
    ran = np.maximum(1.0 - stalled - escaped, 0.0)
    inverse = np.linalg.inv(own + np.diag(noise2 / np.maximum(ran, 1e-6)))
    scale = (degrees + float(residual @ inverse @ residual)) / (degrees + float(ran.sum()))
    across = covariance[:, index]
    kept = ran > 0.5
    believed = own[np.ix_(kept, kept)] + np.diag(noise2[kept])
    evidence = -0.5 * float(residual[kept] @ np.linalg.solve(believed, residual[kept])) - 0.5 * float(
        np.linalg.slogdet(2.0 * math.pi * believed)[1]
    )
    if luck.any:
        else_ = luck.stall + luck.escapes
        evidence += float(np.where(kept, np.log1p(-else_), np.log(np.maximum(else_, 1e-300) / STALLED)).sum())
    return Steps(
        mean=np.asarray(mean + across @ (inverse @ residual)), stalled=stalled, aside=1.0 - ran, degrees=degrees + float(ran.sum()),
        covariance=np.asarray(scale * (covariance - across @ inverse @ across.T)),
    ), evidence


def set_aside(above: Floats, variance: Floats, luck: Luck) -> tuple[Floats, Floats]:
    """That runs which took so much longer than expected stalled, and that they escaped.

        stalled = q u / Z,   escaped = c N(e - x; v) / Z,   Z = q u + c N(e - x; v) + (1 - q - c) N(e; v)

    Symbols: q ``Luck.stall``; c ``Luck.escapes``; e ``above``; v ``variance``; x ``Luck.escape``; u 1 / ``STALLED`` for e above 0.
    """
    stall = luck.stall * below(above / np.sqrt(variance)) / STALLED
    escape = luck.escapes * _normal(above - luck.escape, variance)
    every = stall + escape + (1.0 - luck.stall - luck.escapes) * _normal(above, variance) + 1e-300
    return np.asarray(stall / every), np.asarray(escape / every)


def _normal(apart: Floats, variance: Floats) -> Floats:
    return np.asarray(np.exp(-0.5 * np.square(apart) / variance) / np.sqrt(2.0 * math.pi * variance))


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
