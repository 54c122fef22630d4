"""When a user's own micro-batch stands for that of another layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.frameworks.slime.batch import sequences_under
from meshwright.frameworks.slime.flags import CAP, DYNAMIC, MICRO
from meshwright.frameworks.slime.reading import asked

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.domain.layout import Layout
    from meshwright.frameworks.settings import Reading


def packed_tokens(reading: Reading) -> Callable[[Layout], int] | None:
    """What a micro-batch of a layout holds at most; None where files do not pack, or only the run knows under which cap."""
    step = asked(reading)
    cap = step.cap
    return None if not step.dynamic or cap is None else lambda layout: cap * layout.context_parallel


def cap_stays(reading: Reading, layout: Layout, key: str) -> bool:
    """Whether a key of the micro-batch need not change: the one that the files' own switch leaves unread, and a cap that says the
    other layout's micro-batch as well."""
    step = asked(reading)
    if key == DYNAMIC:
        return True
    if key == MICRO:
        return step.dynamic
    if key != CAP:
        return False
    if not step.dynamic:
        return True
    if not step.cap or not step.longest or reading.layout is None:
        return False
    samples = layout.microbatch_sequences * layout.num_microbatches
    ours = step.cap * reading.layout.context_parallel == reading.layout.microbatch_sequences * step.longest
    group = layout.pipeline_parallel if layout.virtual_stages > 1 else 1
    size = sequences_under(step.cap * layout.context_parallel, step.longest, samples, group)
    return not ours and size == layout.microbatch_sequences
