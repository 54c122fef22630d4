"""Step 2 of the playbook: reach the global batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.units import count
from meshwright.value import Value
from meshwright.words import percent, plural

if TYPE_CHECKING:
    from meshwright.domain.training import Batch
    from meshwright.judging.facts import Facts


class BatchTrial(Value, frozen=True, kw_only=True):
    """The same layout at another global batch."""

    global_batch_sequences: int
    num_microbatches: int
    step_s: float
    mfu_ratio: float
    bubble_ratio: float


class BatchStep(Value, frozen=True, kw_only=True):
    """Step 2: reach the global batch."""

    global_batch_sequences: int
    tokens_per_step: int
    data_parallel: int
    microbatch_sequences: int
    num_microbatches: int
    smallest_batch_sequences: int
    twice: BatchTrial | None
    half: BatchTrial | None
    sentence: str


def batch_step(facts: Facts) -> BatchStep:
    """The product that makes the batch, and the layout at twice and half of it."""
    layout, batch = facts.layout, facts.case.batch
    least = _smallest(facts)
    twice, half = _batch_trial(facts, 2.0), _batch_trial(facts, 0.5)
    down = (
        f"half of it would run at {percent(half.mfu_ratio)} MFU"
        if half is not None
        else f"half of it is not legal with dp{layout.data_parallel}"
    )
    up = f"twice of it at {percent(twice.mfu_ratio)}" if twice is not None else "twice of it is not legal"
    whole = count_of(batch)
    return BatchStep(
        global_batch_sequences=batch.global_batch_sequences, tokens_per_step=batch.tokens, data_parallel=layout.data_parallel,
        microbatch_sequences=layout.microbatch_sequences, num_microbatches=layout.num_microbatches, smallest_batch_sequences=least,
        twice=twice, half=half,
        sentence=f"dp{layout.data_parallel} x mb{layout.microbatch_sequences} x {layout.num_microbatches} "
        f"micro-batches = {whole} = "
        f"{count(batch.tokens)} tokens, at {percent(facts.estimate.mfu_ratio)} MFU; {up}; {down}; the smallest batch "
        f"of this layout is {least}",
    )


def count_of(batch: Batch) -> str:
    """``64 sequences``, ``28 packs``: what the product of the degrees counts."""
    return plural(batch.global_batch_sequences, "pack" if batch.packing is not None else "sequence")


def _smallest(facts: Facts) -> int:
    """The smallest global batch under which the layout runs: its schedule may want several micro-batches, or multiples."""
    counts = range(1, facts.layout.num_microbatches)
    least = next((count for count in counts if facts.in_microbatches(count) is not None), facts.layout.num_microbatches)
    return facts.layout.data_parallel * facts.layout.microbatch_sequences * least


def _batch_trial(facts: Facts, factor: float) -> BatchTrial | None:
    trial = facts.with_batch(factor)
    if trial is None:
        return None
    return BatchTrial(
        global_batch_sequences=round(facts.case.batch.global_batch_sequences * factor),
        num_microbatches=trial.layout.num_microbatches,
        step_s=trial.step_s,
        mfu_ratio=trial.estimate.mfu_ratio,
        bubble_ratio=trial.estimate.bubble_ratio,
    )
