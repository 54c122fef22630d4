"""Samples of a file in packs of at most so many tokens: how many packs a step has, and what attention sees of them.

No sample is split over packs, and none sees another, so attention costs the sum of squared lengths. Samples of a step go into packs
by the longest first, each where it leaves the least room. Data are shuffled before they are packed, so those of a step are drawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from meshwright.api.lengths import MAX_LENGTHS
from meshwright.api.numbers import MOST
from meshwright.domain.training import Batch, Packing
from meshwright.errors import fault
from meshwright.packing import best_fit
from meshwright.words import integer

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALIGNED = 512
"""The longest sample of a file is taken as a multiple of so many tokens, which all degrees divide."""
TOGETHER, DRAWS = 4096, 16
"""Samples that are packed together at most, and how many such lots are looked at: their mean is known to a few per mille."""
ROUNDED = (0.01, 0.05, 0.25)
"""Packs of a step are rounded up by at most these shares, to a multiple of the largest power of two, so that replicas get as many
each: a search tries all, since few replicas need no more packs than the samples fill, and many share only round numbers."""
UNSAID = 0.05
"""The share where nobody says how many packs there are, and nothing is searched."""


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Lengths of the samples of a file; none is longer than ``longest_tokens``."""

    lengths: NDArray[np.int64]
    documents: int
    """Entries of the file; fewer than samples where long ones were cut."""
    longest_tokens: int

    @cached_property
    def mean_tokens(self) -> float:
        """Of a sample."""
        return float(self.lengths.mean())

    @cached_property
    def mean_square_tokens(self) -> float:
        """Mean of squared lengths."""
        return float(np.square(self.lengths, dtype=np.float64).mean())

    def figures(self) -> Mapping[str, float]:
        """Counts and percentiles, in tokens."""
        half, most = np.percentile(self.lengths, (50, 99))
        return {
            "samples": len(self.lengths), "documents": self.documents, "tokens": int(self.lengths.sum()),
            "mean": self.mean_tokens, "p50": float(half), "p99": float(most), "max": int(self.lengths.max()),
        }


def samples_of(lengths: Sequence[int], sequence_tokens: int | None, *, split_long: bool = False) -> Samples:
    """The samples of a file under the longest that is allowed; by default its own longest.

    Errors:  ``InputError`` for samples that are longer, where they are not to be cut.

    >>> samples_of([3, 10], 4, split_long=True).lengths.tolist()
    [3, 4, 4, 2]
    """
    found = np.asarray(lengths, dtype=np.int64)
    if found.max() > MOST["sequence"]:
        raise fault("lengths.high", "a sample of {most} tokens: more than {limit} are not taken", most=integer(int(found.max())),
                    limit=integer(MOST["sequence"]))
    longest = sequence_tokens or ceil(int(found.max()) / ALIGNED) * ALIGNED
    over = found > longest
    if over.any() and not split_long:
        raise fault(
            "lengths.long", "{count} of {total} samples are longer than --sequence {limit}, the longest has {most} tokens; raise "
            "it, or let --split-long cut them", count=integer(int(over.sum())), total=integer(len(found)), limit=integer(longest),
            most=integer(int(found.max())),
        )
    if over.any():
        pieces = -(-found // longest)
        if pieces.sum() > MAX_LENGTHS:
            raise fault("lengths.pieces", "cut to {limit} tokens the samples would be {pieces} pieces, more than {most}",
                        limit=integer(longest), pieces=integer(int(pieces.sum())), most=integer(MAX_LENGTHS))
        whole = np.full(int(pieces.sum()), longest, dtype=np.int64)
        whole[np.cumsum(pieces) - 1] = found - (pieces - 1) * longest
        return Samples(lengths=whole, documents=len(found), longest_tokens=longest)
    return Samples(lengths=found, documents=len(found), longest_tokens=longest)


def num_packs(lengths: Sequence[int] | NDArray[np.int64], max_tokens: int) -> int:
    """Packs that hold all samples, none above the cap: the longest sample first, each where it leaves the least room.

    Units:   tokens.
    Holds:   no sample is longer than the cap.
    Source:  best fit decreasing; at most 11/9 of the fewest, and one.

    >>> num_packs([6, 5, 4, 3, 2], 10)
    2
    """
    return len(best_fit(np.asarray(lengths, dtype=np.int64), max_tokens))


def samples_per_pack(samples: Samples, num_samples: int, max_tokens: int) -> float:
    """Mean over packs, where so many samples of a step are packed together.

    Holds:   the same each time: the draws have a fixed seed.
    """
    together = min(num_samples, TOGETHER, len(samples.lengths))
    lots = min(DRAWS, len(samples.lengths) // together)
    drawn = np.random.default_rng(0).choice(samples.lengths, (lots, together), replace=False)
    return together * lots / sum(num_packs(lot, max_tokens) for lot in drawn)


def least_packs(samples: Samples, num_samples: int, max_tokens: int) -> int:
    """Packs that so many samples of a step need, in the mean."""
    return ceil(num_samples / samples_per_pack(samples, num_samples, max_tokens))


def pack_counts(samples: Samples, num_samples: int, max_tokens: int) -> tuple[int, ...]:
    """Packs of a step that replicas can share evenly, the fewest first: rounded up a little, and rounded up more."""
    least = least_packs(samples, num_samples, max_tokens)
    return tuple(dict.fromkeys(_rounded(least, num_samples, share) for share in ROUNDED))


def _rounded(least: int, num_samples: int, share: float) -> int:
    """Packs rounded up by at most a share, and to no more than there are samples."""
    return even_packs(least, max(least, min(int((1.0 + share) * least), num_samples)))


def batch_of_samples(samples: Samples, num_samples: int, max_tokens: int, packs: int | None = None) -> Batch:
    """The batch of an optimizer step of so many samples, in so many packs, or in as many as they need.

        mean square of a pack = N / packs * mean of squared lengths

    Symbols: N samples of a step.
    Units:   tokens.
    Errors:  ``InputError`` for fewer packs than they need, or more than there are samples.
    """
    least = least_packs(samples, num_samples, max_tokens)
    if packs is not None and not least <= packs <= num_samples:
        raise fault("lengths.packs", "{packs:,} packs of at most {cap:,} tokens do not hold {samples:,} samples: {least:,} are "
                    "needed, and each holds one at least", path="--packs", packs=packs, cap=max_tokens, samples=num_samples,
                    least=least)
    chosen = packs or _rounded(least, num_samples, UNSAID)
    return _batch(samples, chosen, num_samples / chosen, max_tokens)


def even_packs(least: int, most: int) -> int:
    """The smallest multiple of the largest power of two that has one between two counts.

    >>> even_packs(139, 145)
    144
    """
    rounded = (-(-least // (1 << power)) << power for power in range(least.bit_length(), -1, -1))
    return next(count for count in rounded if count <= most)


def batch_of_packs(samples: Samples, num_packs: int, max_tokens: int) -> Batch:
    """The batch of an optimizer step of so many packs, as files count it."""
    return _batch(samples, num_packs, samples_per_pack(samples, TOGETHER, max_tokens), max_tokens)


def _batch(samples: Samples, packs: int, per_pack: float, max_tokens: int) -> Batch:
    packing = Packing(
        samples_per_sequence=per_pack, mean_sample_tokens=samples.mean_tokens, longest_sample_tokens=samples.longest_tokens
    )
    return Batch(
        global_batch_sequences=packs, sequence_tokens=max_tokens, packing=packing,
        mean_square_document_tokens=per_pack * samples.mean_square_tokens,
    )
