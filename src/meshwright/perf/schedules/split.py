"""Why a pipeline is longer than its ideal work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.balance import BubbleSplit
from meshwright.perf.schedules.simulation import makespans

if TYPE_CHECKING:
    import numpy.typing as npt

    from meshwright.perf.schedules.operations import Order


def bubble_split(
    order: Order,
    *,
    forward_s: npt.ArrayLike,
    backward_input_s: npt.ArrayLike,
    backward_weight_s: npt.ArrayLike,
    recompute_s: npt.ArrayLike = 0.0,
    hop_s: float = 0.0,
    rendezvous: bool = False,
) -> BubbleSplit:
    """The bubble of a pipeline and its reasons, each over the ideal work of a stage.

        W = M / P sum (F + I + G - R),    total = makespan / W - 1 = ideal + recompute + communication + imbalance
        ideal = makespan of alike chunks / W - 1,    recompute = M / P sum R / W
        communication = (makespan of alike chunks with hops - without) / W,    imbalance = the rest

    Symbols: F, I, G forward, input and weight gradient of a chunk; R the part of I that is recomputation; alike: every
             chunk takes the mean of all, nothing recomputed.
    Shapes:  times broadcast to [num_stages][num_chunks], per microbatch and chunk -> scalars.
    Units:   s -> ratios.
    Holds:   some ideal work. Ideal is (P - 1) / (M V) for 1F1B, Seq1F1B, and interleaved 1F1B where M >= P. Imbalance holds what
             neither stands in another part nor can be told apart: it may be below 0.
    Source:  mindspore-ai/toolkits, pipeline_balance/simulator/pp_simulator.py, _statistic_info: its closed forms of
             communication are this difference, by rendezvous.

    >>> from meshwright.perf.schedules.one_f_one_b import order_1f1b
    >>> split = bubble_split(order_1f1b(4, 16), forward_s=[[8.0], [8.0], [8.0], [8.8]],
    ...     backward_input_s=[[16.0], [16.0], [16.0], [17.6]], backward_weight_s=0.0, hop_s=0.1, rendezvous=True)
    >>> f"{split.total_ratio:.4f} = {split.ideal_ratio:.4f} + {split.imbalance_ratio:.4f} + {split.communication_ratio:.4f}"
    '0.2658 = 0.1875 + 0.0615 + 0.0168'
    """
    shape = (order.num_stages, order.num_chunks)
    forward, inputs, weights, again = (
        np.broadcast_to(np.asarray(value, dtype=np.float64), shape)
        for value in (forward_s, backward_input_s, backward_weight_s, recompute_s)
    )
    alike = [np.full(shape, each.mean()) for each in (forward, inputs - again, weights)]
    both = [np.stack(pair, axis=-1) for pair in zip((forward, inputs, weights), alike, strict=True)]
    real, even = makespans(
        order, forward_s=both[0], backward_input_s=both[1], backward_weight_s=both[2], hop_s=hop_s, rendezvous=rendezvous
    )
    (free,) = makespans(order, forward_s=alike[0], backward_input_s=alike[1], backward_weight_s=alike[2])
    times = order.num_microbatches * order.num_chunks
    return bubble_parts(
        real=float(real), alike=float(even), free=float(free), work=times * float(sum(each.mean() for each in alike)),
        recompute=times * float(again.mean()),
    )


def bubble_parts(*, real: float, alike: float, free: float, work: float, recompute: float) -> BubbleSplit:
    """The parts of a bubble from times that were simulated elsewhere.

    Symbols: real the pipeline; alike it with the mean of all chunks everywhere and nothing recomputed; free the same without hops;
             work the ideal work of a stage; recompute the mean recomputation of a stage.
    Units:   s -> ratios of the work.
    Holds:   some work.
    Source:  ``bubble_split``.
    """
    ideal, again, communication = free / work - 1.0, recompute / work, (alike - free) / work
    return BubbleSplit(
        ideal_ratio=ideal, imbalance_ratio=real / work - 1.0 - ideal - again - communication, recompute_ratio=again,
        communication_ratio=communication,
    )
