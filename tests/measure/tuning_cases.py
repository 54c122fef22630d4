"""Made-up beliefs, and cells drawn from the very prior that the tuner has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from meshwright.evidence.fit.likeness import KNOBS
from meshwright.measure.outcome import Outcome
from meshwright.measure.tuning.beliefs import Beliefs
from meshwright.measure.tuning.scales import Scales, covariance
from meshwright.measure.tuning.steps import NOISE

PLAIN = Scales(
    common=0.3, physics=0.2, alike=0.8, reach=2.0, own=0.4, cells=1e6, shifted=0.0, trouble=0.0, trouble_growth=1.0,
    trouble_reach=2.0, trouble_weight=2.0, escape=0.0, need_common=0.4,
)
"""Nothing stalls, and cells do not differ: exactly Gaussian."""


@dataclass(frozen=True)
class Thing:
    """A candidate that is only a name."""

    label: str


def drawn_beliefs(seed: int, count: int = 12, *, spread: float = 0.1, need: float = -1.0, failures: float = 0.0) -> Beliefs:
    """Layouts of a made-up cell; ``need``: the log of what they reserve over the edge."""
    dice = np.random.default_rng(seed)
    return Beliefs(
        log_step=dice.normal(0.0, 0.3, count), spread=np.full(count, spread), by=dice.normal(0.0, 0.1, (count, 3)),
        escape=np.zeros(count), by_new=np.zeros((count, 3)), words=dice.integers(0, 4, (count, len(KNOBS))).astype(float),
        log_need=need + dice.normal(0.0, 0.2, count), log_shown=np.full(count, 24.0), terms=dice.uniform(1.0, 9.0, (count, 6)),
        memory_width=0.05, failures=failures, legal=np.ones(count, dtype=bool),
    )


def things(known: Beliefs) -> list[Thing]:
    """A candidate for each."""
    return [Thing(f"layout {number}") for number in range(len(known))]


def drawn_steps(known: Beliefs, scales: Scales, seed: int) -> np.ndarray:
    """Seconds of every layout as the prior has them."""
    own = covariance(known, scales)
    return np.exp(np.random.default_rng(seed).multivariate_normal(known.log_step, own))


def ran(step_s: float, seed: int | None = None) -> Outcome:
    """A trial that ended well, measured with the usual noise where a seed is given."""
    noise = np.random.default_rng(seed).normal(0.0, NOISE) if seed is not None else 0.0
    return Outcome(status="ok", step_s=float(step_s * np.exp(noise)))
