"""When a user's own value of a key says another layout as well: caps that follow a micro-batch, multiples, what nothing reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.documents.source import Setting
from meshwright.frameworks.nemo_rl.keys import LENGTH, LOG_PROB, MICRO, MULTIPLE, PACKING, padding
from meshwright.frameworks.nemo_rl.reading import cap_key, packs
from meshwright.frameworks.nemo_rl.resolving import resolved
from meshwright.frameworks.nemo_rl.sources import merged
from meshwright.frameworks.verl.batch import sequences_under

if TYPE_CHECKING:
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.settings import Reading

ACCURACY_RANKS = 4
"""Tensor-parallel ranks from which NeMo-RL wants the micro-batches of update and log-probabilities alike."""


def packed_tokens(reading: Reading) -> Callable[[Layout], int] | None:
    """What a micro-batch holds at most; None where files do not pack, or only the run knows under which cap."""
    cap = reading.source.value(cap_key(reading.source))
    return (lambda layout: cap) if packs(reading.source) and isinstance(cap, int) else None


def stays(degrees: Mapping[str, str], reading: Reading, layout: Layout, key: str) -> bool:
    """Whether a key need not change. ``degrees``: the back end's key -> its knob, which references of other keys may lead to."""
    source = reading.source
    packed = packs(source) and (layout.context_parallel == 1 or source.value(f"{PACKING}.enabled") is True)
    raw = merged(source.documents)
    follows = "${" in str(raw[cap_key(source)].value) if cap_key(source) in raw else False
    alike = layout.tensor_parallel < ACCURACY_RANKS
    if key == MICRO:
        return packed and not follows and alike
    if key.startswith(PACKING) and key.endswith(".enabled"):
        return layout.context_parallel == 1
    if key.endswith("logprob_mb_tokens"):
        return True
    changed = {**{name: getattr(layout, knob) for name, knob in degrees.items()}, MICRO: layout.microbatch_sequences}
    after = resolved({
        name: replace(setting, value=changed.get(name, setting.value)) for name, setting in raw.items()
    }).get(key, Setting(key=key, value=None)).value
    if key == LOG_PROB:
        return alike or after == layout.microbatch_sequences
    if key == MULTIPLE:
        return isinstance(after, int) and after > 0 and after % padding(layout) == 0
    if key == f"{PACKING}.train_mb_tokens":
        return not packed or _says(after, reading, layout)
    return False


def _says(cap: object, reading: Reading, layout: Layout) -> bool:
    """Whether a cap stands for the micro-batch of a layout."""
    tokens = reading.source.value(LENGTH)
    if not isinstance(cap, int) or not isinstance(tokens, int) or cap < 1 or tokens < 1:
        return False
    sequences = layout.microbatch_sequences * layout.num_microbatches
    return sequences_under(cap, 1, tokens, sequences) == layout.microbatch_sequences
