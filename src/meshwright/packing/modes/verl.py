"""verl: ranks of as many samples each and even workload, then micro-batches of even workload; the limit only says how many."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.errors import fault
from meshwright.packing.modes.differencing import differenced

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.packing.balance import Ranks

LINEAR = 24_576
"""verl's workload of every model is 24576 L + L^2: that of 7 B parameters, hidden size 4096."""
FILLER_TOKENS = 2
"""Samples that verl adds where the ranks do not share the batch."""


def verl(
    lengths: NDArray[np.int64], max_tokens: int, ranks: int, *, agreed: bool = True, multiple: int = 1, balanced: bool = True
) -> Ranks:
    """``agreed``: ranks have as many micro-batches as the one with most; ``multiple``: a multiple of those, for virtual stages.

    Holds:   fillers are not among the samples of the answer.
    Errors:  ``InputError`` for a sample above the limit.
    Source:  ``verl/utils/seqlen_balancing.py`` (verl b178a3c): ``calculate_workload``, ``rearrange_micro_batches``.
    """
    if int(lengths.max()) > max_tokens:
        raise fault("pack.verl", "verl refuses a sample of {most:,} tokens under a limit of {limit:,}", most=int(lengths.max()),
                    limit=max_tokens)
    full = np.concatenate((lengths, np.full(-len(lengths) % ranks, FILLER_TOKENS, dtype=np.int64)))
    loads = workloads(full)
    shares = differenced(loads.tolist(), ranks, equal_size=True) if balanced else np.arange(len(full)).reshape(ranks, -1).tolist()
    counts = [min(len(share), -(-int(full[share].sum()) // max_tokens)) for share in shares]
    if agreed:
        counts = [max(counts)] * ranks
    dealt = []
    for share, count in zip(shares, counts, strict=True):
        parts = differenced(loads[share].tolist(), -(-count // multiple) * multiple, equal_size=False)
        own = [[share[item] for item in part] for part in _small_outside(parts, loads[share])]
        dealt.append([kept for part in own if (kept := [item for item in part if item < len(lengths)])])
    return dealt


def workloads(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """24576 L + L^2."""
    return LINEAR * lengths + np.square(lengths)


def _small_outside(parts: list[list[int]], loads: NDArray[np.int64]) -> list[list[int]]:
    """Light micro-batches at both ends, where stages of a pipeline fill and drain."""
    ranked = sorted(parts, key=lambda part: (int(loads[part].sum()), part[0]), reverse=True)
    return [*ranked[::2][::-1], *ranked[1::2]]
