"""From bubble to step time, and to the two fractions in which bubbles are quoted."""

import numpy as np

from meshwright.perf.schedules.values import Floats, Value, floats


def step_s(*, work_s: Value, bubble_s: Value) -> Floats:
    """Time of a step: the busiest stage's work on all microbatches, and its idle time.

        t = work + bubble

    Shapes:  scalars, or arrays that broadcast together.
    Units:   s -> s.
    Holds:   always; optimizer and data-parallel collectives are not in it.
    Source:  the definition of the bubble.

    >>> float(step_s(work_s=24.0, bubble_s=9.0))
    33.0
    """
    return np.asarray(floats(work_s) + floats(bubble_s))


def bubble_ratio_of_step(*, work_s: Value, bubble_s: Value) -> Floats:
    """Bubble as a share of the whole step, the convention of this program.

        r = bubble / (work + bubble)        uniform 1F1B: (P-1) / (M + P-1)

    Shapes:  scalars, or arrays that broadcast together.
    Units:   s -> ratio 0..1.
    Holds:   work + bubble > 0.
    Source:  docs/sources.md#flops.

    >>> float(bubble_ratio_of_step(work_s=24.0, bubble_s=8.0))
    0.25
    """
    bubble = floats(bubble_s)
    return np.asarray(bubble / (floats(work_s) + bubble))


def bubble_ratio_of_work(*, work_s: Value, bubble_s: Value) -> Floats:
    """Bubble relative to the ideal work, the convention of Narayanan et al. and of SAPP.

        r = bubble / work        uniform 1F1B: (P-1) / M

    Shapes:  scalars, or arrays that broadcast together.
    Units:   s -> ratio, may exceed 1.
    Holds:   work > 0.
    Source:  Narayanan et al. 2021, arXiv 2104.04473, section 2.2.

    >>> float(bubble_ratio_of_work(work_s=24.0, bubble_s=9.0))
    0.375
    """
    return np.asarray(floats(bubble_s) / floats(work_s))
