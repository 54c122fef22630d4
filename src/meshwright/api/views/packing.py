"""JSON of samples in packs: what the file holds, what a pack holds, and the memory that its cap leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.api.views.estimates import plain, whole

if TYPE_CHECKING:
    from meshwright.api.cases import Setup
    from meshwright.domain.estimate import Estimate


def packing_view(given: Setup, predicted: Estimate | None) -> dict[str, Any]:
    """``lengths``, ``max_tokens`` and ``max_tokens_headroom_bytes``; nothing where no lengths were given."""
    batch = given.case.batch
    if given.samples is None or batch.packing is None:
        return {}
    packed = {
        "packs": batch.global_batch_sequences, "padding_ratio": batch.padding_ratio,
        "samples_per_pack": batch.packing.samples_per_sequence,
    }
    left = predicted.memory_capacity_bytes - predicted.memory_reserved_bytes if predicted else None
    return {
        "lengths": plain({**given.samples.figures(), **packed}), "max_tokens": batch.sequence_tokens,
        "max_tokens_headroom_bytes": whole(left),
    }
