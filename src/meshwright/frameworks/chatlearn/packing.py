"""How ChatLearn packs samples into micro-batches, and the ``max_token_in_packing`` under which its micro-batches fit.

Two passes of ``chatlearn/algorithm/grpo_utils/packing_utils.py`` (b7af31a9): the first finds how many bins are needed, the
second spreads the samples over that many bins and looks at no capacity. So the limit is not a bound: what is written is
``kept_limit``, under which nothing exceeds the plan; what files of others come to is told by what was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import floor

import numpy as np

from meshwright.packing.modes.chatlearn import fitting, kept_limit, level

HEADROOM = Fraction(7, 100)
"""Share by which a micro-batch may exceed the limit: at most 6.2 % was seen, for multiples of up to 64 tokens."""
MEASURED_MULTIPLE = 64
PER_MULTIPLE = Fraction(4, 100)
"""Further head-room for each further ``MEASURED_MULTIPLE`` tokens that a sequence is padded to."""

Bins = tuple[tuple[int, ...], ...]
"""Lengths of the samples of each micro-batch, tokens."""


def fitting_bins(lengths: Sequence[int], limit_tokens: int) -> Bins:
    """The first pass: best fit, longest sample first.

    The test is strict, so what would fill a bin exactly opens a new one; a sample that is longer than the limit has a bin
    of its own.

    >>> fitting_bins([4096, 4096], 8192)
    ((4096,), (4096,))
    >>> fitting_bins([3000, 9000, 4096], 8192)
    ((9000,), (4096, 3000))
    """
    return _as_lengths(fitting(np.asarray(lengths, dtype=np.int64), limit_tokens), lengths)


def level_bins(lengths: Sequence[int], count: int) -> Bins:
    """The second pass: longest sample first into the least filled of ``count`` bins; the fullest bin stands first.

    >>> level_bins([5, 4, 3, 3], 2)
    ((5, 3), (4, 3))
    """
    return _as_lengths(level(np.asarray(lengths, dtype=np.int64), count), lengths)


def _as_lengths(bins: Sequence[Sequence[int]], lengths: Sequence[int]) -> Bins:
    """The lengths of the samples of each bin."""
    return tuple(tuple(lengths[item] for item in each) for each in bins)


def packed(lengths: Sequence[int], limit_tokens: int, *, most_bins: int = 0) -> Bins:
    """Micro-batches of one rank: both passes; ``most_bins`` is the largest count among the ranks that must agree on one.

    Ranks of a model-parallel group hold the same samples; with expert parallelism the groups of all its ranks agree.
    """
    count = max(len(fitting_bins(lengths, limit_tokens)), most_bins)
    return level_bins(lengths, count)


def padded_tokens(lengths: Sequence[int], multiple: int) -> int:
    """Tokens of a micro-batch: each sequence is padded after packing, which no limit counts.

    >>> padded_tokens([100, 64], 64)
    192
    """
    return sum(-(-length // multiple) * multiple for length in lengths)


def padding_multiple(tensor_parallel: int, context_parallel: int) -> int:
    """What ChatLearn pads each sequence to, tokens (``megatron_utils/train_helper.py``)."""
    return 2 * tensor_parallel * context_parallel


def headroom_ratio(multiple: int) -> Fraction:
    """How much larger than the limit a micro-batch may become, for a padding multiple.

    >>> float(headroom_ratio(16)), float(headroom_ratio(128))
    (1.07, 1.11)
    """
    return 1 + HEADROOM + PER_MULTIPLE * max(0, multiple - MEASURED_MULTIPLE) / MEASURED_MULTIPLE


def limit_for(sequences: int, sequence_tokens: int) -> int:
    """The smallest ``max_token_in_packing`` under which so many of the longest samples share a micro-batch.

    >>> limit_for(2, 4096), fitting_bins([4096] * 4, limit_for(2, 4096))
    (8193, ((4096, 4096), (4096, 4096)))
    """
    return sequences * sequence_tokens + 1


def worst_tokens(limit_tokens: int, multiple: int = 1) -> int:
    """Tokens of the fullest micro-batch that was seen under a limit, with samples as people have them: no bound.

    >>> worst_tokens(8192)
    8766
    """
    return floor((limit_tokens + 1) * headroom_ratio(multiple))


def written_for(
    limit_tokens: int, longest_tokens: int, samples: int, multiple: int = 1, sequence_tokens: int | None = None
) -> int | None:
    """The sequences of a micro-batch for which a limit was written, where one was: the inverse of ``kept_limit``.

    A sequence is a pack of ``sequence_tokens``; where nothing is said of packs, one of the longest samples.

    >>> written_for(kept_limit(3 * 4096, 4096, 60), 4096, 60), written_for(8192, 3072, 64)
    (3, None)
    >>> written_for(kept_limit(12288, 4096, 60), 4096, 60, sequence_tokens=12288)
    1
    """
    for size in range(1, samples + 1):
        limit = kept_limit(size * (sequence_tokens or longest_tokens), longest_tokens, samples, multiple)
        if limit >= limit_tokens:
            return size if limit == limit_tokens else None
    return None


def sequences_for(limit_tokens: int, sequence_tokens: int, batch_sequences: int) -> int:
    """The micro-batch, in whole sequences, that stands for a packed one: of the longest samples so many as share a bin, or the next
    smaller divisor of a rank's batch.

    >>> sequences_for(limit_for(2, 3072), 3072, 64), sequences_for(8192, 3072, 64), sequences_for(2048, 3072, 64)
    (2, 2, 1)
    """
    most = max((limit_tokens - 1) // sequence_tokens, 1)
    return max(size for size in range(1, min(most, batch_sequences) + 1) if batch_sequences % size == 0)
