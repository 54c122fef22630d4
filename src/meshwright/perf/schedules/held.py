"""Activations that a stage holds while it works through its order."""

import numpy as np

from meshwright.perf.schedules.dependencies import Operations
from meshwright.perf.schedules.operations import BACKWARD, BACKWARD_INPUT, FORWARD, WEIGHT
from meshwright.perf.schedules.values import Floats


def held_per_operation(ops: Operations, sizes: Floats, kept_for_weight: float) -> Floats:
    """Activation units held on its stage while each operation runs.

    A forward counts from its start; a backward still holds what it frees at its end.

    Shapes:  operations; sizes [num_stages][num_chunks] -> one value per operation.
    Units:   those of sizes.
    Holds:   0 <= kept_for_weight <= 1, the share that a split backward leaves to its weight
             gradient. Depends on the order only, not on times.
    Source:  none, bookkeeping.
    """
    size = sizes[ops.stage, ops.chunk]
    gained = np.where(ops.kind == FORWARD, size, 0.0)
    share = np.zeros(4)
    share[BACKWARD] = 1.0
    share[BACKWARD_INPUT] = 1.0 - kept_for_weight
    share[WEIGHT] = kept_for_weight
    freed = share[ops.kind] * size
    held = np.empty_like(size)
    for begin, stop in zip(ops.first[:-1], ops.first[1:], strict=True):
        gain, loss = gained[begin:stop], freed[begin:stop]
        held[begin:stop] = np.cumsum(gain - loss) + loss
    return held
