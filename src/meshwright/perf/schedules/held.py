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


COMPARED = 64
"""So many vectors are compared each with each; of more those go first that one of them covers."""


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
    kind, _, chunk = order.operations.T
    ends = (kind == BACKWARD) | (kind == (WEIGHT if until_weight else BACKWARD_INPUT))
    own, forward = chunk[:, None] == np.arange(order.num_chunks), kind == FORWARD
    loss = own & ends[:, None]
    after = np.cumsum((own & forward[:, None]).astype(np.int64) - loss, axis=0)
    stops = np.cumsum(order.lengths)
    before = np.concatenate([np.zeros((1, order.num_chunks), dtype=np.int64), after[stops[:-1] - 1]])
    follows = np.append(forward[1:], False)
    follows[stops - 1] = False
    fullest = forward & ~follows  # a stage holds more once it has run the forward that follows
    parts = zip(np.split(after + loss, stops[:-1]), np.split(fullest, stops[:-1]), before, strict=True)
    return tuple(_largest(held[moments] - behind) for held, moments, behind in parts)


def _largest(held: Ints) -> Ints:
    """Of vectors those that no other covers."""
    if held.shape[1] == 1:
        largest: Ints = held.max(axis=0, keepdims=True)
    else:
        rows = np.array(sorted(set(map(tuple, held.tolist())), reverse=True), dtype=np.int64)
        left, kept = np.arange(len(rows)), []
        while left.size > COMPARED:  # nothing that is left covers the one of the largest total
            kept.append(int(left[np.argmax(rows[left].sum(axis=1))]))
            left = left[(rows[left] > rows[kept[-1]]).any(axis=1)]
        covered = np.logical_and.reduce([each >= each[:, None] for each in rows[left].T])
        largest = rows[sorted([*kept, *left[covered.sum(axis=1) == 1].tolist()])]
    largest.flags.writeable = False
    return largest
