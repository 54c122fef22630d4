"""What a packing comes to: tokens, padding, overflows, and how even it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.packing.bins import flattened
from meshwright.packing.cost import TOKENS, Cost
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class Figures(Value, frozen=True, kw_only=True):
    """One optimizer step in micro-batches. Imbalance is the dearest over the mean."""

    microbatches: int
    most_of_a_rank: int
    """Micro-batches of the rank that has most: what the step waits for."""
    tokens: int
    most_tokens: int
    """Of the fullest micro-batch: what memory must hold."""
    slot_tokens: int
    """Of all micro-batches where each is as long as the fullest, or as the limit, or as itself where it is longer than that."""
    overflows: int
    """Micro-batches above the limit."""
    dearest: float
    """Cost of the dearest rank."""
    imbalance_ratio: float
    """Costs of ranks."""
    microbatch_imbalance_ratio: float
    """Costs of micro-batches: what stages of a pipeline wait for each other."""


def figures(
    ranks: Sequence[Sequence[Sequence[int]]], lengths: NDArray[np.int64], max_tokens: int, cost: Cost = TOKENS
) -> Figures:
    """Figures of ``[rank][micro-batch][sample]``; lengths as they are laid out, ``[samples]``.

    Units:   tokens.
    """
    bins = [each for rank in ranks for each in rank]
    flat, owner = flattened(bins)
    tokens = np.bincount(owner, weights=lengths[flat], minlength=len(bins)).astype(np.int64)
    price = np.bincount(owner, weights=cost.of_samples(lengths)[flat], minlength=len(bins)) + cost.microbatch_s
    of_rank = np.bincount(np.repeat(np.arange(len(ranks)), [len(rank) for rank in ranks]), weights=price, minlength=len(ranks))
    return Figures(
        microbatches=len(bins), most_of_a_rank=max(map(len, ranks)), tokens=int(tokens.sum()), most_tokens=int(tokens.max()),
        slot_tokens=int(np.maximum(tokens, min(max_tokens, int(tokens.max()))).sum()), overflows=int((tokens > max_tokens).sum()),
        dearest=float(of_rank.max()),
        imbalance_ratio=float(of_rank.max() / of_rank.mean()),
        microbatch_imbalance_ratio=float(price.max() / price.mean()),
    )
