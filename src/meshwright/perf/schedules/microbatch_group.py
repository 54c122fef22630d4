"""The number of microbatches that the interleaved schedule sends through a chunk in one go."""

import numpy as np

from meshwright.perf.schedules.values import Bools, Count, Ints, ints


def accepts_group(num_stages: Count, num_microbatches: Count, group: Count) -> Bools:
    """Whether Megatron runs this group: P <= g <= M and M mod g is 0 or at least P.

    Shapes:  scalars, or arrays that broadcast together.
    Units:   counts -> bool.
    Holds:   exact for Megatron-Core >= 0.8.
    Source:  Megatron-LM, megatron/core/pipeline_parallel/schedules.py, the checks on
             microbatch_group_size_per_vp_stage.

    >>> bool(accepts_group(4, 6, 4)), bool(accepts_group(4, 6, 6))
    (False, True)
    """
    p, m, g = ints(num_stages), ints(num_microbatches), ints(group)
    rest = m % g
    return np.asarray((p <= g) & (g <= m) & ((rest == 0) | (rest >= p)))


def microbatch_group(num_stages: Count, num_microbatches: Count) -> Ints:
    """The smallest group that Megatron accepts; P itself where P divides M.

    A larger group costs activations, so the smallest is the one to ask for
    (--microbatch-group-size-per-virtual-pipeline-stage; Megatron's default is P).

    Shapes:  scalars, or arrays that broadcast together.
    Units:   counts.
    Holds:   exact. M < P, which Megatron refuses, gives P.
    Source:  the rule of accepts_group.

    >>> microbatch_group(4, np.array([4, 5, 6, 7, 8, 9])).tolist()
    [4, 5, 6, 7, 4, 5]
    """
    p, m = np.broadcast_arrays(ints(num_stages), ints(num_microbatches))
    group = p + 0
    refused = (m > p) & ~accepts_group(p, m, group)
    while refused.any():  # ends: group = M is always accepted for M >= P
        group = np.where(refused, group + 1, group)
        refused = (m > p) & ~accepts_group(p, m, group)
    return np.asarray(group, dtype=np.int64)
