"""1F1B: warm up with one forward per stage below, then alternate one forward, one backward."""

from functools import lru_cache

import numpy as np

from meshwright.perf.schedules.operations import Order
from meshwright.perf.schedules.rounds import order_in_rounds
from meshwright.perf.schedules.values import Count, Floats, Ints, Value, floats, ints


@lru_cache(maxsize=64)
def order_1f1b(num_stages: int, num_microbatches: int) -> Order:
    """Megatron's non-interleaved schedule: P - i - 1 forwards, then forward, backward, then drain.

    Shapes:  scalars -> Order.
    Units:   counts.
    Holds:   any P >= 1, M >= 1; the warm-up is capped by M.
    Source:  Megatron-LM, megatron/core/pipeline_parallel/schedules.py,
             forward_backward_pipelining_without_interleaving.

    >>> order_1f1b(2, 2).stage(1)
    ((0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0))
    """
    return order_in_rounds(
        "1f1b", num_stages, num_microbatches, num_chunks=1, group=max(1, num_microbatches),
        warmup=lambda stage: num_stages - stage - 1,
    )


def bubble_1f1b_s(
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
    """Idle time of the busiest stage in 1F1B: one pass through all the other stages.

        bubble = fill + h H(P, M)        uniform stages: fill = (P - 1) (F + B)

    so that the step is fill + M max(F + B), the ranking form for unequal stages.

    Symbols: fill fill_s, forward + backward of one microbatch on all the other stages; h hop_s;
             H exposed_hops_1f1b.
    Shapes:  scalars, or arrays that broadcast together.
    Units:   s -> s.
    Holds:   uniform stages: equal to the simulation at any M and any hop_s. Unequal stages, as a
             step: the simulation lies between M max(F + B) and sum(F + B) + (M - 1) (max F + max B);
             with backward proportional to forward it never exceeds this form, and is up to 20 %
             below it at small M (a slow stage early on hides part of the fill).
    Source:  Narayanan et al. 2021, arXiv 2104.04473, section 2.2; checked against simulate().

    >>> float(bubble_1f1b_s(forward_s=1.0, backward_input_s=1.0, backward_weight_s=1.0, fill_s=9.0,
    ...     hop_s=0.0, num_stages=4, num_microbatches=8, num_chunks=1))
    9.0
    """
    hops = exposed_hops_1f1b(num_stages=num_stages, num_microbatches=num_microbatches, num_chunks=num_chunks)
    return np.asarray(floats(fill_s) + floats(hop_s) * hops)


def in_flight_1f1b(*, stage: Count, num_stages: Count, num_microbatches: Count, num_chunks: Count) -> Ints:
    """Most microbatches whose activations stage i holds at once.

        n = min(M, P - i)

    Shapes:  scalars, or arrays that broadcast together.
    Units:   counts (activations of one chunk; a stage is one chunk here).
    Holds:   0 <= i < P; exact.
    Source:  Narayanan et al. 2021, arXiv 2104.04473, section 2.2; checked against simulate().

    >>> int(in_flight_1f1b(stage=0, num_stages=4, num_microbatches=16, num_chunks=1))
    4
    """
    return np.asarray(np.minimum(ints(num_microbatches), ints(num_stages) - ints(stage)))


def exposed_hops_1f1b(*, num_stages: Count, num_microbatches: Count, num_chunks: Count) -> Ints:
    """Point-to-point transfers on the critical path when a transfer delays only its receiver.

        H = 2 (P - 1) (q + 1) + 2 max(r - 1, 0),     q, r = divmod(M - 1, P)

    The first stage sends a microbatch down and waits for it to come back once per P microbatches:
    1F1B has no slack, so hops stay exposed in the steady state too, close to 2 (P - 1) / P each.

    Shapes:  scalars, or arrays that broadcast together.
    Units:   counts.
    Holds:   uniform stages, any M >= 1, any hop time; exact. P = 1 gives 0.
    Source:  derived here; checked against simulate().

    >>> int(exposed_hops_1f1b(num_stages=4, num_microbatches=8, num_chunks=1))
    16
    """
    p, m = ints(num_stages), ints(num_microbatches)
    laps = (m - 1) // p
    rest = (m - 1) - laps * p
    return np.asarray(2 * (p - 1) * (laps + 1) + 2 * np.maximum(rest - 1, 0))
