"""When a user's own micro-batch stands for that of another layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.verl.batch import sequences_under
from meshwright.frameworks.verl.keys import Places
from meshwright.frameworks.verl.reading import DEFAULTS
from meshwright.frameworks.verl.sources import is_sft

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.domain.layout import Layout
    from meshwright.frameworks.settings import Reading


def packed_tokens(section: str, reading: Reading) -> Callable[[Layout], int] | None:
    """What a micro-batch of a layout is packed towards; None where files do not pack, or only the run knows under which cap.

    verl balances micro-batches, of which it makes as many as the cap asks for; it is no bound to the token.
    """
    tuning = is_sft(reading.source)
    places = Places("" if tuning else section)
    cap = reading.source.value(places.cap) if places.cap in reading.source.settings else DEFAULTS[places.cap]
    if reading.source.value(places.dynamic, tuning) is not True or not isinstance(cap, int):
        return None
    return lambda layout: cap * layout.context_parallel


def cap_stays(section: str, reading: Reading, layout: Layout, key: str) -> bool:
    """Whether a key of the micro-batch need not change: the one that the files' own switch leaves unread, and a cap that says the
    other layout's micro-batch as well."""
    tuning = is_sft(reading.source)
    places = Places("" if tuning else section)
    packed = reading.source.value(places.dynamic, tuning) is True
    if key == places.dynamic:
        return True
    if key == places.microbatch:
        return packed
    if key != places.cap:
        return False
    if not packed:
        return True
    cap, sequence = reading.source.value(key), reading.said.sequence_tokens
    if not isinstance(cap, int) or not sequence or reading.layout is None:
        return False
    samples = layout.microbatch_sequences * layout.num_microbatches
    ours = cap * reading.layout.context_parallel == reading.layout.microbatch_sequences * sequence
    return not ours and sequences_under(cap, layout.context_parallel, sequence, samples) == layout.microbatch_sequences
