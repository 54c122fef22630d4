"""Many literal strings sought in gigabytes at once, at about the speed of reading them.

Every occurrence of a string of seven bytes or more holds an aligned word of four of its bytes. So a block is looked at as words:
each is folded to small letters, hashed, and looked up in a table of the words that the strings have at their four alignments.
What is left are candidates, which whoever asked compares whole. Shorter strings are sought one by one, which is slower.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

SHORTEST = 7
"""Bytes of a string that surely holds an aligned word."""
_WORD = 4
_PIECE = 1 << 18
"""Bytes looked at in one go: what stays in a cache."""
_BITS = 16
_FOLD = 0x20202020
_FACTOR = 2654435761
"""Knuth's multiplier, 2^32 over the golden ratio: the upper half of the product is the hash."""
_FOLDED = bytes(byte | 0x20 for byte in range(256))

Ints = NDArray[np.int64]


def folded(text: bytes) -> bytes:
    """Capital and small letters alike.

    >>> folded(b"OOM: rank 3") == folded(b"oom: RANK 3")
    True
    """
    return text.translate(_FOLDED)


class Needles:
    """The strings, and the table by which they are found."""

    def __init__(self, needles: Sequence[bytes], sample: bytes = b"") -> None:
        """``sample``: text like that which is searched; of a long string those seven bytes are sought that are rarest in it."""
        self.needles = tuple(folded(each) for each in needles)
        common = _counts(sample)
        table: dict[int, set[int]] = {}
        self._short: list[tuple[int, bytes]] = []
        for index, needle in enumerate(self.needles):
            if len(needle) < SHORTEST:
                table[-1 - index] = {index}
                self._short.append((-1 - index, bytes(needles[index])))
                continue
            windows = [_words(needle[at: at + SHORTEST]) for at in range(len(needle) - SHORTEST + 1)]
            for word in min(windows, key=lambda words: sum(common.get(word, 0) for word in words)):
                table.setdefault(word, set()).add(index)
        self.of: Mapping[int, frozenset[int]] = {word: frozenset(found) for word, found in table.items()}
        """Word -> indices of the strings that it may be of; a negative one stands for a short string."""
        self._hashes = np.zeros(1 << _BITS, bool)
        self._hashes[[(word * _FACTOR & 0xFFFFFFFF) >> _BITS for word in table if word >= 0]] = True

    def candidates(self, block: bytes) -> tuple[Ints, Ints]:
        """Offsets in the block, ascending, and the words there, of which few are of no string (``of`` says which)."""
        words = np.frombuffer(block, np.uint32, len(block) // _WORD)
        found: list[Ints] = []
        for start in range(0, len(words), _PIECE // _WORD):
            piece = words[start: start + _PIECE // _WORD] | np.uint32(_FOLD)
            piece *= np.uint32(_FACTOR)
            found.append(np.flatnonzero(self._hashes[piece.view(np.uint16)[1::2]]) + start)
        at = np.concatenate(found) if found else np.zeros(0, np.int64)
        where, what = at * _WORD, (words[at] | np.uint32(_FOLD)).astype(np.int64)
        short = np.array([(each, word) for word, needle in self._short for each in _places(block, needle)], np.int64).reshape(-1, 2)
        if not len(short):
            return where, what
        where, what = np.concatenate((where, short[:, 0])), np.concatenate((what, short[:, 1]))
        order = np.argsort(where, kind="stable")
        return where[order], what[order]

    def within(self, text: bytes, may: frozenset[int]) -> tuple[int, ...]:
        """Which of the strings ``may`` are in the text, in their order."""
        plain = folded(text)
        return tuple(index for index in sorted(may) if self.needles[index] in plain)


def _places(block: bytes, needle: bytes) -> Iterator[int]:
    """Exact places, without folding: the only way that a short string can be had quickly."""
    at = block.find(needle)
    while at >= 0:
        yield at
        at = block.find(needle, at + 1)


def _words(seven: bytes) -> tuple[int, ...]:
    return tuple(int.from_bytes(seven[at: at + _WORD], "little") for at in range(SHORTEST - _WORD + 1))


def _counts(sample: bytes) -> dict[int, int]:
    words: NDArray[Any] = np.frombuffer(sample, np.uint32, len(sample) // _WORD) | np.uint32(_FOLD)
    values, counts = np.unique(words, return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))
