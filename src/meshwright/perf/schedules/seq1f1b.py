"""Seq1F1B: every microbatch is cut along its sequence, and the parts go through the pipeline as microbatches do."""

from __future__ import annotations

from meshwright.perf.schedules.microbatch_group import accepts_group
from meshwright.perf.schedules.operations import Order, require_counts
from meshwright.perf.schedules.rounds import order_in_rounds


def order_seq1f1b(num_stages: int, num_microbatches: int, *, num_chunks: int = 1, num_splits: int = 1) -> Order:
    """1F1B, or with several chunks interleaved 1F1B, over k parts of each sequence.

    A part attends to the parts before it, so forwards go from the first and backwards from the last part of
    a microbatch; k - 1 more forwards warm up: P - i - 1 + k - 1 on stage i, interleaved 2 (P - i - 1) + (V - 1) g + k - 1.

    Shapes:  scalars -> Order; microbatches are counted in parts, part j of microbatch m is number m k + j.
    Units:   counts.
    Holds:   any P, V, k >= 1 and M a multiple of k (ValueError otherwise). The group g is the smallest multiple of k
             that microbatch_group's rule accepts. k = 1 is 1F1B or interleaved 1F1B itself.
    Source:  Sun et al. 2024, arXiv 2406.03488 (V = 1); with V > 1 the in-flight table of mindspore-ai/toolkits,
             pipeline_balance/sapp/sapp_solver.py, compute_activation_seq_nums, whose sum over chunks this order holds.

    >>> order = order_seq1f1b(2, 4, num_splits=2)
    >>> ["FB"[kind] + str(m) for kind, m, _ in order.stage(1)]
    ['F0', 'F1', 'B1', 'F2', 'B0', 'F3', 'B3', 'B2']
    """
    require_counts(num_stages, num_microbatches, num_chunks)
    group = _group(num_stages, num_microbatches, max(num_splits, 1))
    rounds = 2 if num_chunks > 1 else 1
    return order_in_rounds(
        "seq1f1b",
        num_stages,
        num_microbatches,
        num_chunks=num_chunks,
        group=group,
        warmup=lambda stage: rounds * (num_stages - stage - 1) + (num_chunks - 1) * group + num_splits - 1,
        num_splits=num_splits,
    )


def _group(num_stages: int, num_microbatches: int, num_splits: int) -> int:
    """The smallest legal group that no microbatch straddles; as long as all where there is none."""
    least = -(-num_stages // num_splits) * num_splits
    legal = (g for g in range(least, num_microbatches, num_splits) if accepts_group(num_stages, num_microbatches, g))
    return next(legal, max(least, num_microbatches))
