"""A time that no order of the work can beat."""

import numpy as np
import numpy.typing as npt

from meshwright.perf.schedules.operations import Order


def lower_bound_s(
    order: Order,
    *,
    forward_s: npt.ArrayLike,
    backward_input_s: npt.ArrayLike,
    backward_weight_s: npt.ArrayLike,
    hop_s: float = 0.0,
) -> float:
    """Seconds that a step takes at least, whatever the order of operations on each stage.

        max over stages s of [ forwards before the first chunk of s + M work_s ],
        one microbatch alone: all forwards, then all input gradients

    each with the hops that it crosses.

    Shapes:  times broadcast to [num_stages][num_chunks], per microbatch and chunk -> a scalar.
    Units:   s -> s.
    Holds:   any placement; also a bound on every simulate() of the order.
    Source:  the usual resource and path bounds of a flow shop.

    >>> from meshwright.perf.schedules.one_f_one_b import order_1f1b
    >>> lower_bound_s(order_1f1b(4, 8), forward_s=1.0, backward_input_s=1.0, backward_weight_s=1.0)
    27.0
    """
    table = order.virtual_stage_table()
    forward, inputs, weights = (
        np.broadcast_to(np.asarray(value, dtype=np.float64), table.shape)
        for value in (forward_s, backward_input_s, backward_weight_s)
    )
    by_place = np.argsort(table, axis=None)
    home = by_place // order.num_chunks
    hops = hop_s * (np.diff(home) != 0)
    in_order = forward.reshape(-1)[by_place]
    before = np.concatenate(([0.0], np.cumsum(in_order[:-1] + hops)))
    work = order.num_microbatches * (forward + inputs + weights).sum(axis=1)
    alone = in_order.sum() + inputs.sum() + 2 * hops.sum()
    return float(max((before[table.min(axis=1)] + work).max(), alone))
