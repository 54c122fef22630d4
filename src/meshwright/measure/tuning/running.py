"""How likely each candidate runs as it should: by memory, and by the trouble that layouts like it had."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from meshwright.measure.tuning.beliefs import Beliefs
    from meshwright.measure.tuning.scales import Scales

    Floats = NDArray[np.float64]

GRID = np.linspace(-4.0, 4.0, 161)
"""Standard deviations of the shift of memory that all layouts of a cell share."""
LOGISTIC_SD = math.pi / math.sqrt(3.0)
"""Standard deviation of a logistic of width one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What one trial says of running."""

    candidate: int
    stalled: float
    """Probability that it ran, and stalled; 0 for one that failed."""
    failed: bool
    by_memory: bool | None = None
    """Of a failure: whether it ran out of memory; None where nobody knows."""
    log_memory: float | None = None
    """Of its measured peak."""


@dataclass(frozen=True, slots=True)
class Running:
    """Probabilities 0..1 of each candidate."""

    memory: Floats
    """That it fits."""
    trouble: Floats
    """That it stalls, or fails though it fits."""

    @property
    def runs(self) -> Floats:
        """That it fits and runs as fast as it should."""
        return np.asarray(self.memory * (1.0 - self.trouble))


def running(known: Beliefs, scales: Scales, alike: Floats, trials: Sequence[Ran]) -> Running:
    """What trials teach about running.

        p_i = E_s[1 / (1 + exp((x_i + s) / w))],   s the shift of the need that all layouts of the cell share, on a grid
        trouble_i = (n0 q_i + sum_j k_ij z_j) / (n0 + sum_j k_ij)

    Symbols: q ``Scales.trouble_of``; x log need less the edge; w the width that is each layout's own; k likeness; z the probability
             that trial j had trouble: it stalled, or failed for another reason than memory (of an unclassified failure: as far as
             memory does not explain it).
    Shapes:  ``alike [n, n]``.
    Holds:   a layout each of whose terms of memory is as large as those of one that ran out of memory does not run; one that is
             refused hardly does. More is never learnt from a trial than that one run did or did not.
    Source:  beta-binomial weights by a kernel: Goetschalckx et al. 2011.
    """
    weight, deviation = _shifts(known, scales, trials)
    own = known.memory_width * math.sqrt(max(1.0 - scales.need_common, 1e-6))
    fits = 1.0 / (1.0 + np.exp(np.clip((known.log_need[:, None] + GRID * deviation) / own, -60.0, 60.0)))
    memory = fits @ weight
    prior = scales.trouble_of(known.spread)
    count, sick = np.full(len(known), scales.trouble_weight), scales.trouble_weight * prior
    for each in trials:
        share = each.stalled
        if each.failed:
            own, fitting = float(prior[each.candidate]), float(memory[each.candidate])
            unknown = own * fitting / max(1.0 - fitting * (1.0 - own), 1e-12)
            share = unknown if each.by_memory is None else 0.0 if each.by_memory else 1.0
        count += alike[each.candidate]
        sick += alike[each.candidate] * share
    return Running(memory=np.where(known.legal & ~implied(known, trials), memory, 0.0), trouble=sick / count)


def implied(known: Beliefs, trials: Sequence[Ran], *, unknown: bool = False) -> NDArray[np.bool_]:
    """Candidates each of whose terms of memory is at least that of a trial which ran out of memory.

    ``unknown``: failures that nobody classified count, too.
    Shapes:  ``[n]``.
    Holds:   monotone: more trials and larger terms imply more.
    """
    found = np.zeros(len(known), dtype=bool)
    for each in trials:
        if each.failed and (each.by_memory or (unknown and each.by_memory is None)):
            found |= (known.terms >= known.terms[each.candidate]).all(axis=1)
    return found


def _shifts(known: Beliefs, scales: Scales, trials: Sequence[Ran]) -> tuple[Floats, float]:
    """Posterior weights of the shifts of ``GRID``, and the standard deviation that is its unit."""
    total = known.memory_width * LOGISTIC_SD
    deviation = total * math.sqrt(scales.need_common)
    own = known.memory_width * math.sqrt(max(1.0 - scales.need_common, 1e-6))
    shifts, log_weight = GRID * deviation, -0.5 * np.square(GRID)
    for each in trials:
        fits = 1.0 / (1.0 + np.exp(np.clip((known.log_need[each.candidate] + shifts) / own, -60.0, 60.0)))
        ran = fits * (1.0 - known.failures)
        if not each.failed:
            log_weight = log_weight + np.log(np.maximum(ran, 1e-12))
        elif each.by_memory is not False:
            log_weight = log_weight + np.log(np.maximum(1.0 - (fits if each.by_memory else ran), 1e-12))
        if each.log_memory is not None:
            apart = each.log_memory - known.log_shown[each.candidate] - shifts
            log_weight = log_weight - 0.5 * np.square(apart / (own * LOGISTIC_SD))
    weight = np.exp(log_weight - log_weight.max())
    return np.asarray(weight / weight.sum()), deviation
