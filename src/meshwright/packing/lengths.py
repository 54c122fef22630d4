"""Lengths made ready for packing: aligned, and what becomes of those that no micro-batch may hold."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from meshwright.errors import fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Oversize = Literal["error", "truncate", "alone"]
"""A sample longer than the limit is refused, cut to it, or has a micro-batch of its own."""
OVERSIZES: tuple[str, ...] = get_args(Oversize)
LONGEST_TOKENS = 2**36
"""Of a sample and of a limit: ten million such samples can still be added up in 64 bits."""


def whole(value: object, name: str) -> int:
    """A whole number of at least 1, as an ``int``.

    Errors:  ``InputError`` with the name for anything else.
    """
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    if not hasattr(number, "__index__") or isinstance(number, bool):
        raise fault("pack.number", "{name} is {value}: a whole number of at least 1 is needed", name=name, value=value)
    return index(number)


def prepared(
    lengths: Sequence[int] | NDArray[np.int64], max_tokens: int, *, align: int = 1, oversize: Oversize = "error"
) -> NDArray[np.int64]:
    """Tokens that each sample takes: a multiple of ``align``, at most ``max_tokens`` unless it is to be ``alone``.

    Units:   tokens; ``[samples]``.
    Errors:  ``InputError`` for no samples, for lengths below 1, for a limit that is no multiple of the alignment, and for
             samples above the limit where they are an error.

    >>> prepared([3, 8, 9], 16, align=8).tolist()
    [8, 8, 16]
    """
    found = np.asarray(lengths)
    if not found.size:
        raise fault("pack.empty", "no lengths: nothing can be packed")
    if found.ndim != 1 or not np.issubdtype(found.dtype, np.integer):
        raise fault("pack.whole", "lengths are a list of whole numbers of tokens")
    if found.max() > LONGEST_TOKENS:
        raise fault("pack.longest", "a sample of {length:,} tokens: {limit:,} is the most", length=int(found.max()),
                    limit=LONGEST_TOKENS)
    found = found.astype(np.int64)
    max_tokens, align = whole(max_tokens, "max_tokens"), whole(align, "align")
    if found.min() < 1:
        place = int(np.argmin(found))
        raise fault("pack.length", "sample {place:,} has {length:,} tokens: at least 1 is needed", place=place,
                    length=int(found[place]))
    if max_tokens < 1 or align < 1:
        raise fault("pack.limit", "a limit of {limit:,} tokens in multiples of {align:,}: both must be at least 1",
                    limit=max_tokens, align=align)
    if max(max_tokens, align) > LONGEST_TOKENS:
        raise fault("pack.limit-most", "a limit of {limit:,} tokens in multiples of {align:,}: {most:,} is the most",
                    limit=max_tokens, align=align, most=LONGEST_TOKENS)
    if max_tokens % align:
        below = max_tokens // align * align
        raise fault("pack.align", "{limit:,} tokens are no multiple of {align}; {near} would be", limit=max_tokens, align=align,
                    near=f"{below:,} or {below + align:,}" if below else f"{align:,}")
    aligned: NDArray[np.int64] = -(-found // align) * align
    over = aligned > max_tokens
    if over.any() and oversize == "error":
        raise fault(
            "pack.over", "{count:,} of {total:,} samples are longer than {limit:,} tokens, the longest has {most:,}; raise the "
            "limit, or let them be cut (oversize truncate) or stand alone (oversize alone)", count=int(over.sum()),
            total=len(found), limit=max_tokens, most=int(found.max()),
        )
    return np.minimum(aligned, max_tokens) if oversize == "truncate" else aligned
