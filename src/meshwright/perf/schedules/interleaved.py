"""Interleaved 1F1B: each stage holds V chunks, so the pipeline fills in 1/V of the time."""

from functools import lru_cache

import numpy as np

from meshwright.perf.schedules.microbatch_group import microbatch_group
from meshwright.perf.schedules.operations import Order, require_counts
from meshwright.perf.schedules.rounds import order_in_rounds
from meshwright.perf.schedules.values import Count, Floats, Ints, Value, floats, ints


def order_interleaved(num_stages: int, num_microbatches: int, *, num_chunks: int, group: int | None = None) -> Order:
    """Megatron's interleaved schedule: groups of microbatches through chunk 0, 1, .. V - 1.

    Stage i warms up with 2 (P - i - 1) + (V - 1) g chunk forwards, then alternates.

    Shapes:  scalars -> Order.
    Units:   counts.
    Holds:   any P, M, V >= 1. group None is microbatch_group(P, M), the smallest that Megatron
             accepts. Megatron refuses M < P, and a last group shorter than P; such orders can be
             built here with an explicit group, may stall, and for V >= 3 may deadlock.
    Source:  Megatron-LM, megatron/core/pipeline_parallel/schedules.py, get_schedule_table and
             forward_backward_pipelining_with_interleaving.

    >>> order_interleaved(1, 1, num_chunks=2).stage(0)
    ((0, 0, 0), (0, 0, 1), (1, 0, 1), (1, 0, 0))
    """
    require_counts(num_stages, num_microbatches, num_chunks)
    size = int(microbatch_group(num_stages, num_microbatches)) if group is None else group
    return _spelled(num_stages, num_microbatches, num_chunks, size)


@lru_cache(maxsize=64)
def _spelled(num_stages: int, num_microbatches: int, num_chunks: int, size: int) -> Order:
    """The order with groups of a size, kept: what asks for it by another way gets the same one."""
    return order_in_rounds(
        "interleaved",
        num_stages,
        num_microbatches,
        num_chunks=num_chunks,
        group=size,
        warmup=lambda stage: 2 * (num_stages - stage - 1) + (num_chunks - 1) * size,
    )


def bubble_interleaved_s(
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
    """Idle time of the busiest stage in interleaved 1F1B.

        bubble = fill / V + 2 (P-1) h
                 + (V-1) [max(P h + (P - g) f, 0) + max(P h + (P - r) b, 0)]

    P divides M and h = 0: (P-1) (F + B) / V. The bracket is what a chunk waits for its first
    microbatch to come round, while filling (first group, g) and while draining (last group, r).

    Symbols: f = F / V, b = B / V forward and whole backward of one chunk of the busiest stage;
             fill fill_s, forward + backward of one microbatch on all the other stages; h hop_s;
             g = min(microbatch_group(P, M), M), r the size of the last group.
    Shapes:  scalars, or arrays that broadcast together.
    Units:   s -> s.
    Holds:   uniform chunks, groups of microbatch_group(P, M), hop_s <= min(f, b) (any hop_s if
             M <= P): equal to the simulation. Longer hops are exposed in the steady state too.
             With groups of exactly P and P < M not a multiple of P there is no short form: the
             real order stalls or, for V >= 3, deadlocks, and Megatron refuses it. Calculon's extra
             term (V-1) (P - M mod P) (f + b) is right for M < P only (refused as well).
    Source:  Narayanan et al. 2021, arXiv 2104.04473, section 2.2 (M a multiple of P); the rest
             derived here; checked against simulate().

    >>> float(bubble_interleaved_s(forward_s=2.0, backward_input_s=2.0, backward_weight_s=2.0,
    ...     fill_s=18.0, hop_s=0.0, num_stages=4, num_microbatches=8, num_chunks=2))
    9.0
    """
    p, m, v = ints(num_stages), ints(num_microbatches), ints(num_chunks)
    forward = floats(forward_s) / v
    backward = (floats(backward_input_s) + floats(backward_weight_s)) / v
    hop = np.where(p > 1, floats(hop_s), 0.0)
    first, last = _edge_groups(p, m)
    filling = np.maximum(p * hop + (p - first) * forward, 0.0)
    draining = np.maximum(p * hop + (p - last) * backward, 0.0)
    return np.asarray(floats(fill_s) / v + 2 * (p - 1) * hop + (v - 1) * (filling + draining))


def in_flight_interleaved(
    *,
    stage: Count,
    num_stages: Count,
    num_microbatches: Count,
    num_chunks: Count,
    group: Count | None = None,
) -> Ints:
    """Most chunk activations that stage i holds at once.

        n = min(2 (P - i - 1) + (V - 1) g + 1, M V)

    Symbols: g the microbatch group, P where P divides M.
    Shapes:  scalars, or arrays that broadcast together.
    Units:   counts (activations of one chunk; a stage has V).
    Holds:   0 <= i < P; exact. group None is microbatch_group(P, M), larger than P where P does
             not divide M: the price of a legal order is memory.
    Source:  Megatron-LM warm-up rule (schedules.py); docs/sources.md#in-flight; checked against simulate().

    >>> int(in_flight_interleaved(stage=0, num_stages=4, num_microbatches=8, num_chunks=2))
    11
    """
    p, m, v = ints(num_stages), ints(num_microbatches), ints(num_chunks)
    size = microbatch_group(p, m) if group is None else ints(group)
    return np.asarray(np.minimum(2 * (p - ints(stage) - 1) + (v - 1) * size + 1, m * v))


def exposed_hops_interleaved(*, num_stages: Count, num_microbatches: Count, num_chunks: Count) -> Ints:
    """Point-to-point transfers on the critical path when a transfer delays only its receiver.

        H = 2 (P-1) + (V-1) P ([g <= P] + [r <= P]),   0 when P = 1

    2 (P V - 1) where P divides M: filling and draining. The doubled warm-up hides the rest,
    whatever M is; groups larger than P hide the rounds as well.

    Symbols: g, r size of the first and of the last group of microbatch_group(P, M).
    Shapes:  scalars, or arrays that broadcast together.
    Units:   counts.
    Holds:   uniform chunks, V >= 2, hops short against min(f, b) / P of a chunk: exact. For longer
             ones see bubble_interleaved_s. (V = 1 is not this schedule: use 1f1b.)
    Source:  derived here; checked against simulate().

    >>> int(exposed_hops_interleaved(num_stages=4, num_microbatches=8, num_chunks=2))
    14
    """
    p, v = ints(num_stages), ints(num_chunks)
    first, last = _edge_groups(p, ints(num_microbatches))
    rounds = np.where(first <= p, 1, 0) + np.where(last <= p, 1, 0)
    return np.where(p > 1, 2 * (p - 1) + (v - 1) * p * rounds, 0)


def _edge_groups(num_stages: Ints, num_microbatches: Ints) -> tuple[Ints, Ints]:
    """Sizes of the first and of the last group."""
    group = microbatch_group(num_stages, num_microbatches)
    first = np.asarray(np.minimum(group, num_microbatches))
    return first, np.asarray(num_microbatches - (num_microbatches - 1) // group * group)
