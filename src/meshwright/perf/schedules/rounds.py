"""Orders that send groups of microbatches through the chunks of a stage in turn."""

from __future__ import annotations

from collections.abc import Callable

from meshwright.perf.schedules.operations import (
    BACKWARD,
    FORWARD,
    Operation,
    Order,
    loop_placement,
    require_counts,
)


def order_in_rounds(
    name: str,
    num_stages: int,
    num_microbatches: int,
    *,
    num_chunks: int,
    group: int,
    warmup: Callable[[int], int],
    num_splits: int = 1,
) -> Order:
    """Groups through chunk 0, 1, .. V - 1; so many forwards to warm up, then one forward, one backward, then the rest.

    Backwards take groups in the same order and chunks from the last; with `num_splits` parts of a sequence
    (each counted as a microbatch), the parts of one sequence in reverse, as their gradients flow.

    Shapes:  scalars, and a function of the stage -> Order.
    Units:   counts.
    Holds:   any P, M, V >= 1 with M and the group multiples of the splits (ValueError).
    Source:  the common part of Megatron-LM's get_schedule_table, and of the sources of the orders built with it.

    >>> order_in_rounds("x", 1, 2, num_chunks=1, group=2, warmup=lambda stage: 1, num_splits=2).stages[0]
    ((0, 0, 0), (0, 1, 0), (1, 1, 0), (1, 0, 0))
    """
    require_counts(num_stages, num_microbatches, num_chunks)
    if num_splits < 1 or num_microbatches % num_splits or group % num_splits:
        raise ValueError(
            "`num_microbatches` (counted in splits) must be a multiple of `num_splits`, "
            f"but got ({num_microbatches=}, {num_splits=}, {group=})."
        )
    table = [
        (m, chunk)
        for first in range(0, num_microbatches, group)
        for chunk in range(num_chunks)
        for m in range(first, min(first + group, num_microbatches))
    ]
    forwards: list[Operation] = [(FORWARD, m, chunk) for m, chunk in table]
    mirrored = [m - m % num_splits + num_splits - 1 - m % num_splits for m in range(num_microbatches)]
    backwards: list[Operation] = [(BACKWARD, mirrored[m], num_chunks - 1 - chunk) for m, chunk in table]
    stages: list[tuple[Operation, ...]] = []
    for stage in range(num_stages):
        first = min(warmup(stage), len(table))
        ops = forwards[:first]
        for forward, backward in zip(forwards[first:], backwards, strict=False):
            ops += [forward, backward]
        ops += backwards[len(table) - first :]
        stages.append(tuple(ops))
    return Order(
        name=name,
        num_microbatches=num_microbatches,
        virtual_stage=loop_placement(num_stages, num_chunks),
        stages=tuple(stages),
        pairs=(frozenset(),) * num_stages,
    )
