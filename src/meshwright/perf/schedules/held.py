"""Activations that a stage holds while it works through its order."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from meshwright.perf.schedules.dependencies import Operations
from meshwright.perf.schedules.operations import BACKWARD, BACKWARD_INPUT, FORWARD, WEIGHT, Order
from meshwright.perf.schedules.values import Floats, Ints


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


@lru_cache(maxsize=16)
def held_vectors(order: Order, *, until_weight: bool = False) -> tuple[Ints, ...]:
    """For each stage, how many activations of each chunk it holds at once: the largest combinations over its order.

        memory of stage s = max over its vectors h of sum over chunks v of h_v activation_v

    A vector is left out if another one holds at least as many of every chunk: the maximum stays exact for any activations, and a
    stage of one chunk has one vector. `until_weight`: held until the weight gradient has run, not only the input gradient.

    Shapes:  an Order -> per stage [vector][num_chunks], read-only.
    Units:   counts (microbatches, or parts of sequences, by chunk).
    Holds:   exact for the order, at every operation, as held_per_operation counts.
    Source:  none, bookkeeping. SAPP's in-flight table (mindspore-ai/toolkits, pipeline_balance/sapp/sapp_solver.py,
             compute_activation_nums) is one such vector per stage, that of the first backward.

    >>> from meshwright.perf.schedules.interleaved import order_interleaved
    >>> [each.tolist() for each in held_vectors(order_interleaved(2, 4, num_chunks=2))]
    [[[4, 1], [3, 2]], [[3, 0], [2, 1]]]
    """
    ends = (BACKWARD, WEIGHT) if until_weight else (BACKWARD, BACKWARD_INPUT)
    return tuple(_largest(np.array(ops, dtype=np.int64), order.num_chunks, ends) for ops in order.stages)


def _largest(ops: Ints, num_chunks: int, ends: tuple[int, int]) -> Ints:
    kind, chunk = ops[:, 0], ops[:, 2]
    own = chunk[:, None] == np.arange(num_chunks)
    gain = own & (kind == FORWARD)[:, None]
    loss = own & np.isin(kind, ends)[:, None]
    held = np.cumsum(gain.astype(np.int64) - loss, axis=0) + loss
    rows = np.array(sorted({tuple(row) for row in held[kind == FORWARD].tolist()}, reverse=True), dtype=np.int64)
    covered = (rows[None, :, :] >= rows[:, None, :]).all(axis=2)
    largest: Ints = rows[covered.sum(axis=1) == 1]
    largest.flags.writeable = False
    return largest
