"""GPipe, or AFAB: all forwards, then all backwards."""

import numpy as np

from meshwright.perf.schedules.operations import (
    BACKWARD,
    FORWARD,
    Order,
    loop_placement,
    require_counts,
)
from meshwright.perf.schedules.values import Count, Floats, Ints, Value, floats, ints


def order_gpipe(num_stages: int, num_microbatches: int) -> Order:
    """All forwards in order, then all backwards in the same order, on every stage.

    Shapes:  scalars -> Order.
    Units:   counts.
    Holds:   any P >= 1, M >= 1.
    Source:  Huang et al. 2019, arXiv 1811.06965; torch.distributed.pipelining ScheduleGPipe.

    >>> order_gpipe(1, 2).stage(0)
    ((0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 0))
    """
    require_counts(num_stages, num_microbatches)
    ops = tuple((kind, m, 0) for kind in (FORWARD, BACKWARD) for m in range(num_microbatches))
    return Order.of(
        name="gpipe",
        num_microbatches=num_microbatches,
        virtual_stage=loop_placement(num_stages, 1),
        stages=(ops,) * num_stages,
    )


def bubble_gpipe_s(
    *,
    forward_s: Value,
    backward_input_s: Value,
    backward_weight_s: Value,
    fill_s: Value,
    hop_s: Value,
    num_stages: Count,
    num_microbatches: Count,
    num_chunks: Count,
) -> Floats:
    """Idle time of the busiest stage in GPipe: fill and drain once.

        bubble = fill + 2 (P - 1) h        uniform stages: fill = (P - 1) (F + B)

    Symbols: fill fill_s, forward + backward of one microbatch on all the other stages; h hop_s.
    Shapes:  scalars, or arrays that broadcast together.
    Units:   s -> s.
    Holds:   uniform stages: equal to the simulation at any M and hop_s. Unequal stages: the step
             of the simulation is sum F + (M - 1) max F + sum B + (M - 1) max B, which is larger
             when the slowest forward and the slowest backward are on different stages.
    Source:  Huang et al. 2019, arXiv 1811.06965, section 2.3; checked against simulate().

    >>> float(bubble_gpipe_s(forward_s=1.0, backward_input_s=1.0, backward_weight_s=1.0,
    ...     fill_s=9.0, hop_s=0.0, num_stages=4, num_microbatches=8, num_chunks=1))
    9.0
    """
    hops = exposed_hops_gpipe(num_stages=num_stages, num_microbatches=num_microbatches, num_chunks=num_chunks)
    return np.asarray(floats(fill_s) + floats(hop_s) * hops)


def in_flight_gpipe(*, stage: Count, num_stages: Count, num_microbatches: Count, num_chunks: Count) -> Ints:
    """Most microbatches whose activations a stage holds at once: all of them.

        n = M

    Shapes:  scalars, or arrays that broadcast together.
    Units:   counts (activations of one chunk; a stage is one chunk here).
    Holds:   exact.
    Source:  Huang et al. 2019, arXiv 1811.06965; checked against simulate().

    >>> int(in_flight_gpipe(stage=0, num_stages=4, num_microbatches=16, num_chunks=1))
    16
    """
    return ints(num_microbatches)


def exposed_hops_gpipe(*, num_stages: Count, num_microbatches: Count, num_chunks: Count) -> Ints:
    """Point-to-point transfers on the critical path when a transfer delays only its receiver.

        H = 2 (P - 1)

    Shapes:  scalars, or arrays that broadcast together.
    Units:   counts.
    Holds:   uniform stages, any hop time; exact.
    Source:  derived here; checked against simulate().

    >>> int(exposed_hops_gpipe(num_stages=4, num_microbatches=8, num_chunks=1))
    6
    """
    return np.asarray(2 * (ints(num_stages) - 1))
