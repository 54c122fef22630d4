"""ZB-H1 (ZB1P): 1F1B with the weight gradients moved into the bubble, at the memory of 1F1B."""

import numpy as np

from meshwright.perf.schedules.one_f_one_b import exposed_hops_1f1b, in_flight_1f1b
from meshwright.perf.schedules.operations import (
    BACKWARD_INPUT,
    FORWARD,
    WEIGHT,
    Operation,
    Order,
    loop_placement,
    require_counts,
)
from meshwright.perf.schedules.values import Count, Floats, Ints, Value, floats, ints


def order_zb1p(num_stages: int, num_microbatches: int) -> Order:
    """The hand-made ZB-H1: stage i lags its weight gradients by i microbatches.

    P - i - 1 forwards; i times forward, input gradient; then forward, input gradient, weight
    gradient; then input gradient, weight gradient; then the weight gradients that are left.

    Shapes:  scalars -> Order.
    Units:   counts.
    Holds:   any P >= 1, M >= 1. (The released scheduler searches orders for the given times; this
             is its fixed, time-free pattern.)
    Source:  Qi et al. 2023, arXiv 2401.10241, figure 3 (ZB-H1); the authors' Megatron fork,
             deepspeed_zbh1_schedule.py.

    >>> order_zb1p(1, 2).stage(0)
    ((0, 0, 0), (2, 0, 0), (3, 0, 0), (0, 1, 0), (2, 1, 0), (3, 1, 0))
    """
    require_counts(num_stages, num_microbatches)
    m_end = num_microbatches
    stages: list[tuple[Operation, ...]] = []
    for stage in range(num_stages):
        warmup = min(num_stages - stage - 1, m_end)
        delay = min(stage, m_end - warmup)
        ops: list[Operation] = [(FORWARD, m, 0) for m in range(warmup)]
        for b in range(m_end):
            if warmup + b < m_end:
                ops.append((FORWARD, warmup + b, 0))
            ops.append((BACKWARD_INPUT, b, 0))
            if b >= delay:
                ops.append((WEIGHT, b - delay, 0))
        ops += [(WEIGHT, m, 0) for m in range(m_end - delay, m_end)]
        stages.append(tuple(ops))
    return Order.of(
        name="zb1p",
        num_microbatches=num_microbatches,
        virtual_stage=loop_placement(num_stages, 1),
        stages=stages,
    )


def bubble_zb1p_s(
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
    """Idle time of the busiest stage in ZB-H1.

        bubble = [(P-1) (F + I) - min(k W, k F, max(k, P-2) I)] u + h H + later,   k = min(M, P) - 1

    and for M >= P, short hops, simply (P-1) max(F + I - W, F, I) u + 4 (P-1) h. The published form
    (P-1) (F + I - W) drops below what the order can reach once W > min(F, I): the last stage always
    waits (P-1) F, the first always (P-1) I. `later` is what 1F1B loses in the steady state, once
    the weight gradients no longer hide it: (P-1) (2 h - W) per further P microbatches if h > W / 2,

        later = [(q-1) (P-1) + max(r-1, 0)] max(2 h - W, 0) if q > 0,    q, r = divmod(M-1, P)

    Symbols: F, I, W forward, input gradient and weight gradient of the busiest stage;
             u = fill / ((P-1) (F + I + W)), 1 for uniform stages; h hop_s; H exposed_hops_zb1p.
    Shapes:  scalars, or arrays that broadcast together.
    Units:   s -> s.
    Holds:   uniform stages: equal to the simulation for any M >= 1 at hop_s = 0, and for
             W <= min(F, I) at any hop_s; for larger W an estimate, which counts too many short hops.
             Unequal stages: an estimate that scales with the fill. F + I + W > 0.
    Source:  Qi et al. 2023, arXiv 2401.10241, table 2; DeepSeek-V3, arXiv 2412.19437, table 2
             (F + B - 2 W with B = I + W); the clipping, M < P and hops derived here, checked
             against simulate().

    >>> float(bubble_zb1p_s(forward_s=1.0, backward_input_s=1.0, backward_weight_s=1.0, fill_s=9.0,
    ...     hop_s=0.0, num_stages=4, num_microbatches=8, num_chunks=1))
    3.0
    """
    p, m = ints(num_stages), ints(num_microbatches)
    f, i, w, h = floats(forward_s), floats(backward_input_s), floats(backward_weight_s), floats(hop_s)
    k = np.minimum(m, p) - 1
    saved = np.minimum(k * np.minimum(w, f), np.where(k > 0, np.maximum(k, p - 2), 0) * i)
    idle = (p - 1) * (f + i) - saved
    share = floats(fill_s) / (np.maximum(p - 1, 1) * (f + i + w))
    hops = exposed_hops_zb1p(num_stages=p, num_microbatches=m, num_chunks=num_chunks)
    laps = (m - 1) // p
    turns = (laps - 1) * (p - 1) + np.maximum((m - 1) - laps * p - 1, 0)
    later = np.where(laps > 0, turns, 0) * np.maximum(2 * h - w, 0.0)
    return np.asarray(idle * share + h * hops + later)


def in_flight_zb1p(*, stage: Count, num_stages: Count, num_microbatches: Count, num_chunks: Count) -> Ints:
    """Most microbatches that stage i holds between forward and input gradient: as 1F1B.

        n = min(M, P - i)

    Shapes:  scalars, or arrays that broadcast together.
    Units:   counts (activations of one chunk; a stage is one chunk here).
    Holds:   0 <= i < P; exact.
    Source:  Qi et al. 2023, arXiv 2401.10241, section 2.1; checked against simulate().

    >>> int(in_flight_zb1p(stage=3, num_stages=4, num_microbatches=16, num_chunks=1))
    1
    """
    return in_flight_1f1b(
        stage=stage,
        num_stages=num_stages,
        num_microbatches=num_microbatches,
        num_chunks=num_chunks,
    )


def in_flight_until_weight_zb1p(*, stage: Count, num_stages: Count, num_microbatches: Count, num_chunks: Count) -> Ints:
    """Most microbatches that a stage holds between forward and weight gradient.

        n = min(M, P), the same on every stage

    What the weight gradient needs stays that long: the last stages lose 1F1B's advantage.

    Shapes:  scalars, or arrays that broadcast together.
    Units:   counts (activations of one chunk; a stage is one chunk here).
    Holds:   exact.
    Source:  Qi et al. 2023, arXiv 2401.10241, section 2.1 (peak p M_B); checked against simulate().

    >>> int(in_flight_until_weight_zb1p(stage=3, num_stages=4, num_microbatches=16, num_chunks=1))
    4
    """
    return np.asarray(np.minimum(ints(num_microbatches), ints(num_stages)))


def exposed_hops_zb1p(*, num_stages: Count, num_microbatches: Count, num_chunks: Count) -> Ints:
    """Point-to-point transfers on the critical path when a transfer delays only its receiver.

        H = min(H of 1F1B, 4 (P - 1))

    The postponed weight gradients hide the hops of the steady state.

    Shapes:  scalars, or arrays that broadcast together.
    Units:   counts.
    Holds:   uniform stages, W <= min(F, I), hop <= W / 2: exact; longer hops are exposed in the
             steady state too (see bubble_zb1p_s). W > min(F, I): an upper count for short hops.
    Source:  derived here; checked against simulate().

    >>> int(exposed_hops_zb1p(num_stages=4, num_microbatches=64, num_chunks=1))
    12
    """
    p = ints(num_stages)
    steady = exposed_hops_1f1b(num_stages=p, num_microbatches=num_microbatches, num_chunks=num_chunks)
    return np.asarray(np.minimum(steady, 4 * (p - 1)))
