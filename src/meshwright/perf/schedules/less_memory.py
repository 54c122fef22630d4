"""Interleaved 1F1B that warms up like 1F1B: fewer activations, more waiting."""

from __future__ import annotations

from meshwright.perf.schedules.microbatch_group import microbatch_group
from meshwright.perf.schedules.operations import Order, require_counts
from meshwright.perf.schedules.rounds import order_in_rounds


def order_interleaved_less_memory(num_stages: int, num_microbatches: int, *, num_chunks: int) -> Order:
    """MindSpore's interleaved schedule with less memory: P - i - 1 + (V - 1) g forwards to warm up.

    Stage i holds P - i + (V - 1) g chunks at most, where Megatron's order holds 2 (P - i) - 1 + (V - 1) g.

    Shapes:  scalars -> Order.
    Units:   counts.
    Holds:   any P, M, V >= 1; g is microbatch_group(P, M). Where P does not divide M, SAPP makes the first group
             longer instead; the two are the same order for M < 2 P.
    Source:  mindspore-ai/toolkits, pipeline_balance/simulator/pipeline_builder.py, build_virtualpipeline2, and the
             in-flight table of sapp_solver.py, compute_less_activation_nums.

    >>> order = order_interleaved_less_memory(2, 2, num_chunks=2)
    >>> ["FB"[kind] + str(m) + "ab"[chunk] for kind, m, chunk in order.stage(1)]
    ['F0a', 'F1a', 'F0b', 'B0b', 'F1b', 'B1b', 'B0a', 'B1a']
    """
    require_counts(num_stages, num_microbatches, num_chunks)
    group = int(microbatch_group(num_stages, num_microbatches))
    return order_in_rounds(
        "interleaved-less-memory",
        num_stages,
        num_microbatches,
        num_chunks=num_chunks,
        group=group,
        warmup=lambda stage: num_stages - stage - 1 + (num_chunks - 1) * group,
    )
