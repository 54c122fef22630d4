"""How far measurements of one cell are from their predictions, and how much of that its layouts share.

Learnt from cells that the calibration had not seen (``learning``, ``python -m benchmarks.replay --learn``), never from the cell
that is tuned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from meshwright.evidence.fit.likeness import likeness
from meshwright.measure.tuning.beliefs import Beliefs
from meshwright.measure.tuning.steps import Luck
from meshwright.readers.safe import require_mapping
from meshwright.readers.shipped import load_shipped
from meshwright.readers.structure import make_converter, structure

Floats = NDArray[np.float64]
TYPICAL = 0.1
"""Standard deviation of a step in a usual regime, in log units."""
FILE = Path(__file__).with_name("scales.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """Shares of the interval's standard deviation, and what happens beside it."""

    common: float
    """Of a shift that all layouts of a cell have."""
    physics: float
    """Of the spreads of the physical constants (``catalog`` freedoms) that runs of the same device and framework have fitted."""
    alike: float
    """Of a residual that similar layouts share."""
    reach: float
    """Doublings of a degree over which that falls to 1/e."""
    own: float
    """Of a residual that each layout has alone."""
    cells: float
    """Degrees of freedom of a cell's own scale: few where cells differ in how good their predictions are."""
    shifted: float
    """Probability that all predictions of a cell are off by one factor."""
    trouble: float
    """How many runs stall or fail for other reasons than memory, where the interval is as wide as ``TYPICAL``."""
    trouble_growth: float
    """Power of the interval's width with which that grows."""
    trouble_reach: float
    """Doublings over which trouble is shared."""
    trouble_weight: float
    """Runs that the share of trouble counts as."""
    escape: float
    """Probability that a run whose pipeline messages should stall takes the time of one whose do not."""
    need_common: float
    """Share of the variance of the needed memory that all layouts of a cell have in common."""

    def trouble_of(self, interval: Floats) -> Floats:
        """Probability of trouble before any trial, by the standard deviation of the interval; one half at most."""
        return np.asarray(np.minimum(self.trouble * np.power(interval / TYPICAL, self.trouble_growth), 0.5))

    def luck_of(self, known: Beliefs, at: Sequence[int]) -> Luck:
        """What may become of trials of some candidates beside what they mostly take."""
        return Luck(stall=self.trouble_of(known.spread[at]), escape=known.escape[at], chance=self.escape)


@cache
def shipped_scales() -> Scales:
    """The scales that ship with the calibration."""
    document = require_mapping(load_shipped(FILE), FILE.name)
    return structure(make_converter(), require_mapping(document["scales"], FILE.name), Scales, where=FILE.name)


def covariance(known: Beliefs, scales: Scales) -> Floats:
    """Of the log steps of candidates before any has run.

        C_ij = p^2 sum_k d_ik d_jk + sum_k e_ik e_jk + s_i s_j (a^2 + c^2 k_ij + o^2 [i = j])

    Symbols: d derivative by a constant times its spread where runs are known, e the same where none are; s the standard deviation
             of the interval; a common, p physics, c alike, o own.
    Shapes:  ``[n, n]``.
    Units:   log units squared.
    """
    shared = scales.common**2 + scales.alike**2 * likeness(known.words, scales.reach) + scales.own**2 * np.eye(len(known))
    physics = scales.physics**2 * known.by @ known.by.T + known.by_new @ known.by_new.T
    return np.asarray(physics + known.spread[:, None] * known.spread[None, :] * shared)
