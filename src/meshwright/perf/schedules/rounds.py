"""Orders that send groups of microbatches through the chunks of a stage in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.perf.schedules.operations import BACKWARD, FORWARD, Order, loop_placement, require_counts

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.perf.schedules.values import Ints


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

    >>> order_in_rounds("x", 1, 2, num_chunks=1, group=2, warmup=lambda stage: 1, num_splits=2).stage(0)
    ((0, 0, 0), (0, 1, 0), (1, 1, 0), (1, 0, 0))
    """
    require_counts(num_stages, num_microbatches, num_chunks)
    if num_splits < 1 or num_microbatches % num_splits or group % num_splits:
        raise ValueError(
            "`num_microbatches` (counted in splits) must be a multiple of `num_splits`, "
            f"but got ({num_microbatches=}, {num_splits=}, {group=})."
        )
    m, chunk = _rounds(num_microbatches, num_chunks, group)
    mirrored = m - 2 * (m % num_splits) + num_splits - 1
    forwards = np.stack([np.full_like(m, FORWARD), m, chunk], axis=1)
    backwards = np.stack([np.full_like(m, BACKWARD), mirrored, num_chunks - 1 - chunk], axis=1)
    operations = np.empty((num_stages, 2 * len(m), 3), dtype=np.int64)
    for stage, own in enumerate(operations):
        first = min(warmup(stage), len(m))
        steady = len(m) - first
        own[:first] = forwards[:first]
        own[first : first + 2 * steady : 2] = forwards[first:]
        own[first + 1 : first + 2 * steady : 2] = backwards[:steady]
        own[first + 2 * steady :] = backwards[steady:]
    return Order(
        name=name,
        num_microbatches=num_microbatches,
        virtual_stage=loop_placement(num_stages, num_chunks),
        operations=operations.reshape(-1, 3),
        lengths=(2 * len(m),) * num_stages,
        pairs=(frozenset(),) * num_stages,
    )


def _rounds(num_microbatches: int, num_chunks: int, group: int) -> tuple[Ints, Ints]:
    """Micro-batch and chunk of every forward: whole groups, and what is left as the last one."""
    whole, rest = divmod(num_microbatches, group)
    chunks, first = np.arange(num_chunks), np.arange(whole * group).reshape(whole, 1, group)
    m = [first.repeat(num_chunks, axis=1).ravel(), np.tile(np.arange(whole * group, num_microbatches), num_chunks)]
    return np.concatenate(m), np.concatenate([np.tile(chunks.repeat(group), whole), chunks.repeat(rest)])
