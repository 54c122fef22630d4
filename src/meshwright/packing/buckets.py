"""The alternative to packing: samples of like length together, each padded to the longest beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.packing.bins import Bins


def bucketed(lengths: NDArray[np.int64], max_tokens: int) -> Bins:
    """Samples by length, the longest first, into micro-batches that stay within the limit when all are as long as the longest.

    Units:   tokens; a sample above the limit stands alone.

    >>> bucketed(np.array([2, 9, 4, 5]), 10)
    [[1], [3, 2], [0]]
    """
    bins: Bins = []
    longest = 0
    for item in np.argsort(-lengths, kind="stable").tolist():
        if bins and longest * (len(bins[-1]) + 1) <= max_tokens:
            bins[-1].append(item)
        else:
            bins.append([item])
            longest = int(lengths[item])
    return bins


def bucketed_tokens(lengths: NDArray[np.int64], max_tokens: int) -> int:
    """Tokens of all micro-batches with their padding."""
    return sum(len(each) * int(lengths[each[0]]) for each in bucketed(lengths, max_tokens))


def padded_tokens(lengths: NDArray[np.int64]) -> int:
    """Tokens where each sample is padded to the longest of all."""
    return len(lengths) * int(lengths.max())
