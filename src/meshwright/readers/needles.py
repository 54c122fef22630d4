"""Many literal strings sought in gigabytes at once, at about the speed of reading them.

Every occurrence of a string of seven bytes or more holds an aligned word of four of its bytes. So a block is looked at as words:
each is folded to small letters, hashed, and looked up in a table of the words that the strings have at their four alignments.
What is left is compared byte by byte, all places of one word at once. Shorter strings are sought one by one, which is slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import islice

import numpy as np
from numpy.typing import NDArray

SHORTEST = 7
"""Bytes of a string that surely holds an aligned word."""
_WORD = 4
PIECE = 1 << 18
"""Bytes looked at in one go: what stays in a cache."""
_BITS = 16
_FOLD = 0x20
_FOLD_WORD = 0x20202020
_FACTOR = 2654435761
"""Knuth's multiplier, 2^32 over the golden ratio: the upper half of the product is the hash."""
_FOLDED = bytes(byte | _FOLD for byte in range(256))

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint32]


def folded(text: bytes) -> bytes:
    """Capital and small letters alike.

    >>> folded(b"OOM: rank 3") == folded(b"oom: RANK 3")
    True
    """
    return text.translate(_FOLDED)


class Needles:
    """The strings, and the table by which they are found."""

    def __init__(self, needles: Sequence[bytes], sample: bytes = b"", thinned: int = 0) -> None:
        """``sample``: text like that which is searched; of a long string those seven bytes are sought that are rarest in it.

        ``thinned``: so many of the first strings are not sought everywhere.
        """
        self.needles = tuple(folded(each) for each in needles)
        self._short = [(index, bytes(each)) for index, each in enumerate(needles) if len(each) < SHORTEST]
        words, hashes = _words(self.needles)
        common = np.bincount(_hashes(np.frombuffer(sample, np.uint32, len(sample) // _WORD)), minlength=1 << _BITS)
        counts = iter(common[hashes].tolist())
        self._of: dict[int, list[tuple[int, int]]] = {}
        for index, own in enumerate(words):
            often = list(islice(counts, len(own)))
            windows = [range(at, at + SHORTEST - _WORD + 1) for at in range(len(self.needles[index]) - SHORTEST + 1)]
            for at in min(windows, key=lambda window: sum(often[window.start: window.stop]), default=()):
                self._of.setdefault(own[at], []).append((index, at))
        self._known, self._always = (self._table(first) for first in (0, thinned))

    def only_where_wanted(self) -> None:
        """From now on no string is sought everywhere."""
        self._always = np.zeros(1 << _BITS, bool)

    def _table(self, first: int) -> NDArray[np.bool_]:
        """Hashes of the words of all strings from the first on."""
        table = np.zeros(1 << _BITS, bool)
        table[[_hash(word) for word, found in self._of.items() if any(index >= first for index, _ in found)]] = True
        return table

    def places(
        self, block: bytes | bytearray, end: int, filled: int, wanted: Callable[[int], bool] = lambda offset: True,
    ) -> tuple[Ints, Ints]:
        """Places in the first ``end`` bytes of a block, ascending, and which string is there; the block ends at ``filled``.

        ``wanted``: whether the thinned strings are sought from this offset on, asked for every piece of the block.
        """
        words = np.frombuffer(block, np.uint32, min(-(-end // _WORD) + 1, filled // _WORD))
        content = np.frombuffer(block, np.uint8, filled)
        found: list[tuple[Ints, int]] = []
        at = self._candidates(words, wanted)
        if len(at):
            values = words[at] | np.uint32(_FOLD_WORD)
            order = np.argsort(values, kind="stable")
            at, values = at[order] * _WORD, values[order]
            breaks = np.flatnonzero(np.diff(values)) + 1
            for start, stop in zip([0, *breaks.tolist()], [*breaks.tolist(), len(at)], strict=True):
                for index, offset in self._of.get(int(values[start]), ()):
                    found.append((self._compared(content, at[start:stop] - offset, self.needles[index]), index))
        for index, needle in self._short:
            found.append((np.fromiter(_exact(block, needle, end), np.int64), index))
        found = [(where, index) for where, index in found if len(where)]
        if not found:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        where = np.concatenate([each for each, _ in found])
        which = np.repeat([index for _, index in found], [len(each) for each, _ in found])
        order = np.argsort(where, kind="stable")
        order = order[where[order] < end]
        return where[order], which[order]

    def _candidates(self, words: Words, wanted: Callable[[int], bool]) -> Ints:
        """Indices of words that have the hash of a known one."""
        pieces = []
        for at in range(0, len(words), PIECE // _WORD):
            table = self._known if wanted(at * _WORD) else self._always
            pieces.append(np.flatnonzero(np.take(table, _hashes(words[at: at + PIECE // _WORD]), mode="clip")) + at)
        return np.concatenate(pieces) if pieces else np.zeros(0, np.int64)

    def _compared(self, content: Bytes, at: Ints, needle: bytes) -> Ints:
        """Of the places those where the whole string is."""
        at = at[(at >= 0) & (at + len(needle) <= len(content))]
        for offset, byte in enumerate(needle):
            if not len(at):
                break
            at = at[content[at + offset] | np.uint8(_FOLD) == byte]
        return at


def _exact(block: bytes | bytearray, needle: bytes, end: int) -> Iterator[int]:
    """Places without folding: the only way that a short string can be had quickly."""
    at = block.find(needle, 0, end)
    while at >= 0:
        yield at
        at = block.find(needle, at + 1, end)


@lru_cache(maxsize=256)
def _words(needles: tuple[bytes, ...]) -> tuple[list[list[int]], NDArray[np.int64]]:
    """The words of each string at every place, and the hashes of all of them: readers seek the same strings in every file."""
    words = [[_word(needle, at) for at in range(len(needle) - _WORD + 1)] for needle in needles]
    return words, np.array([_hash(word) for each in words for word in each], np.int64)


def _word(needle: bytes, at: int) -> int:
    return int.from_bytes(needle[at: at + _WORD], "little")


def _hash(word: int) -> int:
    return (word * _FACTOR & 0xFFFFFFFF) >> _BITS


def _hashes(words: Words) -> NDArray[np.uint16]:
    folded_words = words | np.uint32(_FOLD_WORD)
    folded_words *= np.uint32(_FACTOR)
    return folded_words.view(np.uint16)[1::2]
