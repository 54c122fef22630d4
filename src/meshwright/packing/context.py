"""Packed samples under context parallelism: every document split over the ranks by itself, or by as many ranks as it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.errors import fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def alignment(tensor_parallel: int, context_parallel: int) -> int:
    """What the length of each sample must be a multiple of: 2 CP pieces of each, each shared by TP.

    Source:  ChatLearn's ``megatron_utils/train_helper.py``, Megatron's THD layout under sequence parallelism.
    """
    return 2 * tensor_parallel * context_parallel if context_parallel > 1 or tensor_parallel > 1 else 1


def document_pieces(document_tokens: Sequence[int], context_parallel: int) -> list[list[tuple[int, int]]]:
    """For each rank the pieces of a pack, as (first, end): of every document its k-th and its k-th last of 2 CP pieces.

    All ranks have as many tokens, and as many pairs of causal attention, whatever the documents are.

    Units:   tokens from the start of the pack.
    Errors:  ``InputError`` for a document that is no multiple of 2 CP.

    >>> document_pieces([4, 8], 2)
    [[(0, 1), (3, 4), (4, 6), (10, 12)], [(1, 2), (2, 3), (6, 8), (8, 10)]]
    """
    pieces: list[list[tuple[int, int]]] = [[] for _ in range(context_parallel)]
    start, parts = 0, 2 * context_parallel
    for tokens in document_tokens:
        if context_parallel > 1 and tokens % parts:
            raise fault("pack.context", "a document of {tokens:,} tokens is no multiple of 2 x cp = {parts}", tokens=tokens,
                        parts=parts)
        piece = tokens // parts
        for rank, mine in enumerate(pieces):
            if context_parallel == 1:
                mine.append((start, start + tokens))
                continue
            early, late = start + rank * piece, start + (parts - 1 - rank) * piece
            mine += [(early, early + piece), (late, late + piece)]
        start += tokens
    return pieces


def dynamic_degrees(lengths: NDArray[np.int64], max_tokens_per_rank: int, most: int) -> NDArray[np.int64]:
    """Context parallelism of each sample: the power of two that brings a rank's part of it under the limit, at most ``most``.

    Source:  Megatron-LM's dynamic context parallelism (``max_seqlen_per_dp_cp_rank``).

    >>> dynamic_degrees(np.array([100, 1000, 3000, 9000]), 1000, 8).tolist()
    [1, 1, 4, 8]
    """
    needed = np.maximum(1, -(-lengths // max_tokens_per_rank))
    degrees: NDArray[np.int64] = np.power(2, np.ceil(np.log2(needed))).astype(np.int64)
    return np.minimum(degrees, most)
