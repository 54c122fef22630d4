"""What a packed micro-batch costs on a model, a device and a layout: the cost model's own slot, as a plane through three points."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.estimate.evaluate import evaluate
from meshwright.packing.cost import Cost

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout

NEAR = 0.5
"""Share of the pack at which the second point stands; attention's two points are one document and many."""
MANY = 64


def packing_cost(case: Case, layout: Layout) -> Cost:
    """Seconds of the busiest stage for a micro-batch, by its tokens and the sum of its squared lengths.

        b = (t(S, S^2) - t(S, S^2 / n)) / (S^2 - S^2 / n);   a = (t(S, q) - t(r S, q)) / (S - r S);   c = t - a S - b q, at least 0

    Symbols: t forward and backward of a micro-batch of one pack; S tokens of a pack; q = S^2 / n; n ``MANY``; r ``NEAR``.
    Units:   seconds, tokens.
    Holds:   near packs of the size of the case; context parallelism, recomputation and precision are the layout's and the case's.
    Source:  ``estimate.evaluate``; attention by sum of squares, ``perf.attention``.
    """
    tokens = case.batch.sequence_tokens
    short = max(1, int(NEAR * tokens))
    one, many = float(tokens) ** 2, float(tokens) ** 2 / MANY
    whole, split, less = (_slot_s(case, layout, each, square) for each, square in ((tokens, one), (tokens, many), (short, many)))
    square_s = max(0.0, (whole - split) / (one - many))
    token_s = max(0.0, (split - less) / (tokens - short)) if tokens > short else 0.0
    if token_s <= 0.0:
        token_s = split / tokens
    return Cost(token_s=token_s, square_s=square_s, microbatch_s=max(0.0, split - token_s * tokens - square_s * many))


def _slot_s(case: Case, layout: Layout, tokens: int, mean_square: float) -> float:
    """Forward and backward of one micro-batch on the stage that takes longest."""
    batch = replace(case.batch, sequence_tokens=tokens, mean_square_document_tokens=mean_square, packing=None)
    stages = evaluate(replace(case, batch=batch), layout).stages
    return float(np.max(np.asarray(stages.forward_s) + np.asarray(stages.backward_s)))
