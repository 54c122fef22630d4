"""Files that count samples, and pack them as they run: what a pack is, where a file of lengths says how long the samples are.

Such files say how many tokens a micro-batch may have, and not whether it is one pack or several.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Framework
    from meshwright.frameworks.settings import Reading


def most_tokens(framework: Framework, reading: Reading) -> Callable[[Layout], int] | None:
    """What a micro-batch of a layout holds at most where the framework packs while it runs; None where the batch of the files
    counts what is packed."""
    facts = framework.facts
    if facts.packed_tokens is not None:
        return facts.packed_tokens(reading)
    limit = facts.packing(reading) if facts.packing is not None else None
    return None if limit is None else limit.bound


def pack_tokens(request: Mapping[str, Any], reading: Reading, most_tokens: Callable[[Layout], int]) -> int | None:
    """What a pack holds at most: so many of the longest samples that as many packs as were said hold all, within the files' limit.

    None where the request says it, or does not say how many packs there are.

    Errors:  ``InputError`` for lengths that cannot be read.
    """
    from meshwright.api.lengths import read_lengths
    from meshwright.api.packs import least_packs, samples_of

    layout = reading.layout
    if layout is None or "max_tokens" in request or not {"lengths", "packs", "global_batch"} <= request.keys():
        return None
    samples = samples_of(read_lengths(request["lengths"]), request.get("sequence"), split_long=bool(request.get("split_long")))
    most = -(-most_tokens(layout) // samples.longest_tokens)
    caps = (count * samples.longest_tokens for count in range(1, most + 1))
    return next((cap for cap in caps if least_packs(samples, request["global_batch"], cap) <= request["packs"]), None)
