"""ChatLearn: best fit to learn how many micro-batches there are, then levelled over so many, with no look at the limit.

So the limit is no bound on a micro-batch. ``most_tokens`` is one, for whatever lengths, and ``kept_limit`` its inverse.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right, insort
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.packing.balance import Ranks
    from meshwright.packing.bins import Bins


def chatlearn(lengths: NDArray[np.int64], max_tokens: int, ranks: int, *, agreed: bool = True) -> Ranks:
    """Each rank packs its own samples; ``agreed``: the ranks have as many micro-batches as the one with most (expert parallelism).

    Source:  ``chatlearn/algorithm/grpo_utils/packing_utils.py`` (ChatLearn b7af31a9).
    """
    shares = [part.tolist() for part in np.array_split(np.arange(len(lengths)), ranks)]
    counts = [len(fitting(lengths[share], max_tokens)) for share in shares]
    most = [max(counts)] * ranks if agreed else counts
    return [
        [[share[item] for item in each] for each in level(lengths[share], count)] for share, count in zip(shares, most, strict=True)
    ]


def fitting(lengths: NDArray[np.int64], max_tokens: int) -> Bins:
    """The first pass: best fit, longest sample first. What would fill a micro-batch exactly opens a new one.

    >>> fitting(np.array([4096, 4096]), 8192), fitting(np.array([3000, 9000, 4096]), 8192)
    ([[0], [1]], [[1], [2, 0]])
    """
    bins: Bins = []
    rooms: list[tuple[int, int]] = []
    for item in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[item])
        place = bisect_right(rooms, (length, len(lengths)))
        room, index = rooms.pop(place) if place < len(rooms) else (max_tokens, len(bins))
        if index == len(bins):
            bins.append([])
        bins[index].append(item)
        insort(rooms, (room - length, index))
    return bins


def level(lengths: NDArray[np.int64], count: int) -> Bins:
    """The second pass: longest sample first into the least filled of so many; the fullest stands first.

    >>> level(np.array([5, 4, 3, 3]), 2)
    [[0, 3], [1, 2]]
    """
    bins: Bins = [[] for _ in range(count)]
    heap = [(0, index) for index in range(count)]
    for item in np.argsort(-lengths, kind="stable").tolist():
        filled, index = heap[0]
        heapq.heapreplace(heap, (filled + int(lengths[item]), index))
        bins[index].append(item)
    return [each for _, each in sorted(((int(lengths[each].sum()), each) for each in bins), reverse=True)]


def most_tokens(limit_tokens: int, longest_tokens: int, samples: int, multiple: int = 1) -> int:
    """Tokens that no micro-batch of a rank exceeds, whatever its samples are; each is padded to the multiple after packing.

        max of  pad(M)  and, over k = 2 .. N,  min(x(k) + (m - 1) k, k pad(min(M, s)))
        x(2) = s;   x(k) = min(4/3 s, k/(k - 1) s, s + min(M, s));   s = limit - 1;   pad(x) = ceil(x / m) m

    Symbols: M longest sample; N samples of the rank; m multiple; k samples of the fullest micro-batch; x(k) its tokens unpadded.
    Holds:   a sample of ``limit`` tokens or more stays alone in both passes: in the second one a micro-batch without such a sample
             always is emptier. The others had fitted s tokens in as many micro-batches or fewer, so the second pass is within 4/3
             of s (Graham), and optimal where the fullest has two samples. Its last sample l, the shortest there, met the emptiest
             micro-batch: x <= s + l, with l <= x / k and l <= M. More micro-batches, as other ranks may ask for, lower s.
    Units:   tokens.
    Source:  Graham 1969, longest processing time first.

    >>> most_tokens(8192, 8000, 64), most_tokens(8192, 1000, 64), most_tokens(8192, 8000, 64, 16)
    (10921, 9101, 10981)
    """
    fitted = limit_tokens - 1
    alone = _padded(longest_tokens, multiple)
    if fitted < 1 or samples < 2:
        return alone
    longest = min(longest_tokens, fitted)
    count = np.arange(2, min(samples, 2 * fitted) + 1, dtype=np.int64)
    level = np.minimum(np.minimum(4 * fitted // 3, count * fitted // (count - 1)), fitted + longest)
    level[0] = fitted
    padded = np.minimum(level + (multiple - 1) * np.minimum(count, level), count * _padded(longest, multiple))
    return max(alone, int(padded.max()))


def kept_limit(microbatch_tokens: int, longest_tokens: int, samples: int, multiple: int = 1) -> int:
    """The largest limit under which no micro-batch has more than so many tokens, whatever the samples are; at least 1.

    Holds:   a sample of the longest length is a micro-batch even where it alone has more.

    >>> kept_limit(8192, 8000, 64), kept_limit(8192, 1000, 64)
    (6145, 7283)
    """
    allowed = max(microbatch_tokens, _padded(longest_tokens, multiple))
    low, high = 1, allowed + 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if most_tokens(middle, longest_tokens, samples, multiple) <= allowed else (low, middle)
    return low


def _padded(tokens: int, multiple: int) -> int:
    """The next multiple."""
    return -(-tokens // multiple) * multiple
