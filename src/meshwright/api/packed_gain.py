"""What packing gains over padding each sample to the longest: by the cost model, or, without one, in tokens and squares."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from meshwright.api.packed_steps import OWN
from meshwright.value import Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.api.cases import Setup
    from meshwright.api.packed_curve import Point
    from meshwright.api.packed_steps import Rules
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout


class Speedup(Value, frozen=True, kw_only=True):
    """A step with each sample padded to the longest, over the step in micro-batches of packed samples."""

    ratio: float
    interval: tuple[float, float]
    by: Literal["cost model", "bounds"]
    """``bounds``: no seconds are known; tokens, and the interval to their squares, which are attention's work."""


def predicted(given: Setup, layout: Layout, step: NDArray[np.int64], rules: Rules, here: Point) -> Speedup:
    """By the cost model: the step of the limit, with the dearest rank of the mode in the place of an even one.

    The interval is the error of two plans of one case set side by side (``search.ranking``), from the ratio where attention gains
    nothing by shorter samples, whose kernels reach less of the peak, to the ratio that the cost model says.
    """
    from meshwright.search.ranking import ranking_error

    figures = rules.figures(step)
    own = figures if rules.mode == OWN else replace(rules, mode=OWN, oversize=rules.oversize or "alone", equal=True).figures(step)
    after_s = here.estimate.step_s * figures.dearest / (own.dearest / own.imbalance_ratio)
    before = padded(given, layout, len(step), int(rules.laid_out(step).max()), rules.max_tokens)
    share = before.layout.microbatch_sequences * before.layout.num_microbatches
    before_s = before.step_s * len(step) / (share * layout.data_parallel)
    ratio, apart = before_s / after_s, ranking_error(given.case)
    tokens = len(step) * int(rules.laid_out(step).max()) / (figures.slot_tokens * figures.imbalance_ratio)
    low, high = min(ratio, tokens), max(ratio, tokens)
    return Speedup(ratio=ratio, interval=(low / (1 + apart), high * (1 + apart)), by="cost model")


def bounded(step: NDArray[np.int64], rules: Rules) -> Speedup:
    """Without a model: the ratio by tokens, and the bounds that tokens alone and squares alone give."""
    figures, laid = rules.figures(step), rules.laid_out(step)
    longest = float(laid.max())
    tokens = len(step) * longest / (figures.slot_tokens * figures.imbalance_ratio)
    squares = len(step) * longest**2 / (float(np.square(laid, dtype=np.float64).sum()) * figures.imbalance_ratio)
    return Speedup(ratio=tokens, interval=(min(tokens, squares), max(tokens, squares)), by="bounds")


def padded(given: Setup, layout: Layout, samples: int, longest: int, max_tokens: int) -> Estimate:
    """The same samples, each padded to the longest, in micro-batches of as many sequences as are fastest under the limit.

    Samples are rounded up to what replicas share.
    """
    from meshwright.domain.training import Batch
    from meshwright.estimate import estimate

    ranks = layout.data_parallel
    share = -(-samples // ranks)
    case = replace(given.case, batch=Batch(global_batch_sequences=share * ranks, sequence_tokens=longest))
    sizes = [size for size in range(1, max(1, max_tokens // longest) + 1) if share % size == 0]
    found = (estimate(case, replace(layout, microbatch_sequences=size, num_microbatches=share // size)) for size in sizes)
    return min(found, key=lambda each: each.step_s)
