"""ZB-V: two chunks of a stage folded into a V, weight gradients in the bubbles, at the memory of 1F1B."""

from __future__ import annotations

from collections import Counter

from meshwright.perf.schedules.operations import (
    BACKWARD_INPUT,
    FORWARD,
    WEIGHT,
    Operation,
    Order,
    require_counts,
    v_placement,
)


def order_zbv(num_stages: int, num_microbatches: int) -> Order:
    """The hand-made ZB-V: warm up down and up the V, then one forward and one backward of each chunk in turn.

    Shapes:  scalars -> Order.
    Units:   counts.
    Holds:   any P, M >= 1; with fewer than 2 P - 1 microbatches the order of 2 P - 1 without those that are missing. No bubble
             but filling and draining where forward, input and weight gradient take equally long.
    Source:  Qi et al. 2023, arXiv 2401.10241, section 6; torch.distributed.pipelining ScheduleZBVZeroBubble.

    >>> ["F_IW"[kind] + str(m) + "ab"[chunk] for kind, m, chunk in order_zbv(1, 1).stage(0)]
    ['F0a', 'F0b', 'I0b', 'W0b', 'I0a', 'W0a']
    """
    require_counts(num_stages, num_microbatches)
    return Order.of(
        name="zbv",
        num_microbatches=num_microbatches,
        virtual_stage=v_placement(num_stages),
        stages=[_stage(stage, num_stages, num_microbatches) for stage in range(num_stages)],
    )


def _stage(stage: int, num_stages: int, num_microbatches: int) -> tuple[Operation, ...]:
    below, total = num_stages - stage, max(2 * num_stages - 1, num_microbatches)
    forwards, inputs, weights = (tuple((kind, chunk) for chunk in (0, 1)) for kind in (FORWARD, BACKWARD_INPUT, WEIGHT))
    up = [forwards[1], inputs[1], weights[1]]
    rounds = total - num_stages
    full = total - (2 * num_stages - stage - 1)
    steps = (
        [forwards[0]] * (2 * below - 1)
        + [forwards[1], forwards[0]] * stage
        + up * below
        + [forwards[0], inputs[0], weights[0], *up] * full
        + [inputs[0], weights[0], *up] * (rounds - full)
        + [inputs[0], inputs[1]] * stage
        + [inputs[0], weights[0]] * below
        + [weights[1]] * stage
        + [weights[0]] * stage
    )
    seen: Counter[tuple[int, int]] = Counter()
    ops: list[Operation] = []
    for kind, chunk in steps:
        ops.append((kind, seen[kind, chunk], chunk))
        seen[kind, chunk] += 1
    return tuple(op for op in ops if op[1] < num_microbatches)
