"""The bubble by a schedule's own formula: what a pipeline of equal stages would idle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.perf.schedules.known import SCHEDULES
from meshwright.perf.schedules.step import bubble_ratio_of_step
from meshwright.perf.schedules.values import floats

if TYPE_CHECKING:
    from meshwright.perf.schedules.values import Count, Floats, Value


def even_bubble_ratio(
    schedule: str, *, num_stages: Count, num_microbatches: Count, num_chunks: Count = 1, forward_s: Value = 1.0,
    backward_input_s: Value = 1.0, backward_weight_s: Value = 1.0,
) -> Floats:
    """Bubble of equal stages as a share of the pipeline's time, by the closed form of a schedule; no transfers.

        r = bubble / (M (F + B + W) + bubble)        1F1B and interleaved: (P-1) / (V M + P-1)

    Symbols: P stages, V chunks of each, M micro-batches; F, B, W forward, input gradient and weight gradient of a stage.
    Shapes:  scalars, or arrays that broadcast together.
    Units:   s -> ratio 0..1.
    Holds:   times only matter by their proportion, and in 1F1B and interleaved not at all.
    Source:  ``SCHEDULES[schedule].bubble_s``.

    >>> round(float(even_bubble_ratio("interleaved", num_stages=8, num_microbatches=16, num_chunks=2)), 4)
    0.1795
    """
    slot = floats(forward_s) + floats(backward_input_s) + floats(backward_weight_s)
    bubble = SCHEDULES[schedule].bubble_s(
        forward_s=forward_s, backward_input_s=backward_input_s, backward_weight_s=backward_weight_s,
        fill_s=(np.asarray(num_stages) - 1) * slot, hop_s=0.0, num_stages=num_stages, num_microbatches=num_microbatches,
        num_chunks=num_chunks,
    )
    return bubble_ratio_of_step(work_s=np.asarray(num_microbatches) * slot, bubble_s=bubble)
