"""Event simulation of an operation order: the oracle of the closed forms, and the timeline."""

import numpy as np
import numpy.typing as npt

from meshwright.perf.schedules.dependencies import Operations, operations
from meshwright.perf.schedules.held import held_per_operation
from meshwright.perf.schedules.operations import Order
from meshwright.perf.schedules.timeline import Timeline
from meshwright.perf.schedules.values import Floats


def simulate(
    order: Order,
    *,
    forward_s: npt.ArrayLike,
    backward_input_s: npt.ArrayLike,
    backward_weight_s: npt.ArrayLike,
    hop_s: float = 0.0,
    blocking: bool = False,
    activation: npt.ArrayLike = 1.0,
    kept_for_weight: float = 0.0,
) -> Timeline:
    """Run each stage through its order as early as dependencies allow.

        start = max(end of the previous operation on the stage, arrival of the awaited result)

    A result from another stage arrives `hop_s` after its operation (or pair) ends. `blocking`:
    the sender is also occupied for `hop_s` after each operation that sends.
    Activations are acquired when a forward starts and released when the backward ends; of a split
    backward, the share `kept_for_weight` stays until the weight gradient ends.

    Shapes:  times and activation broadcast to [num_stages][num_chunks], per microbatch and chunk.
    Units:   s -> s; activation in any unit, kept by `held` and `peak_held`.
    Holds:   buffers never block a sender; a pair lasts as long as its parts. AssertionError when
             the order deadlocks. Time linear in the number of operations.
    Source:  none, the definition of a static schedule.

    >>> from meshwright.perf.schedules.one_f_one_b import order_1f1b
    >>> simulate(order_1f1b(4, 8), forward_s=1.0, backward_input_s=1.0,
    ...          backward_weight_s=1.0).makespan_s
    33.0
    """
    ops = operations(order)
    shape = (order.num_stages, order.num_chunks)
    forward, inputs, weights, sizes = (
        np.broadcast_to(np.asarray(value, dtype=np.float64), shape)
        for value in (forward_s, backward_input_s, backward_weight_s, activation)
    )
    per_kind = np.stack((forward, inputs + weights, inputs, weights))
    duration = per_kind[ops.kind, ops.stage, ops.chunk]
    start, end = _resolve(ops, duration, hop_s, blocking=blocking)
    busy: Floats = np.bincount(ops.stage, weights=duration).astype(np.float64)
    makespan = float(end.max())
    held = held_per_operation(ops, sizes, kept_for_weight)
    return Timeline(
        stage=ops.stage,
        chunk=ops.chunk,
        microbatch=ops.microbatch,
        kind=ops.kind,
        start_s=start,
        end_s=end,
        held=held,
        makespan_s=makespan,
        busy_s=busy,
        bubble_s=np.asarray(makespan - busy),
        peak_held=np.maximum.reduceat(held, ops.first[:-1]),
    )


def _resolve(ops: Operations, duration_s: Floats, hop_s: float, *, blocking: bool) -> tuple[Floats, Floats]:
    """Event recurrence: run a stage until it waits, and wake it when what it awaits is done."""
    total = ops.kind.size
    needs: list[int] = ops.needs.tolist()
    delay: list[float] = np.where(ops.remote, hop_s, 0.0).tolist()
    stall: list[float] = np.where(ops.sends & blocking, hop_s, 0.0).tolist()
    duration: list[float] = duration_s.tolist()
    paired: list[bool] = ops.paired.tolist()
    stage_of: list[int] = ops.stage.tolist()
    cursor: list[int] = ops.first[:-1].tolist()
    bound: list[int] = ops.first[1:].tolist()
    free = [0.0] * len(cursor)
    start, end, ready = [0.0] * total, [0.0] * total, [-1.0] * total
    waiter = [-1] * total
    done = 0
    runnable = list(range(len(cursor) - 1, -1, -1))
    while runnable:
        stage = runnable.pop()
        at, now, stop = cursor[stage], free[stage], bound[stage]
        while at < stop:
            size = 2 if paired[at] else 1
            begin, awaited = now, -1
            for op in range(at, at + size):
                need = needs[op]
                if need >= 0:
                    if ready[need] < 0.0:
                        awaited = need
                        break
                    begin = max(begin, ready[need] + delay[op])
            if awaited >= 0:
                waiter[awaited] = stage
                break
            now = begin
            for op in range(at, at + size):
                start[op] = now
                now += duration[op]
                end[op] = now
            for op in range(at, at + size):
                ready[op] = now
                woken = waiter[op]
                if woken >= 0:
                    runnable.append(woken)
            now += max(stall[at : at + size])
            at += size
            done += size
        cursor[stage], free[stage] = at, now
    stuck = [stage_of[at] for at, stop in zip(cursor, bound, strict=True) if at < stop]
    assert done == total, f"deadlock: stages {stuck} wait for each other"
    return np.array(start), np.array(end)
