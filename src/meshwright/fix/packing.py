"""The limit of a trainer that packs: what runs out is the fullest micro-batch, and the limit says how many tokens it has.

It changes how many samples share a micro-batch, and neither the samples of a step nor their weights: the loss is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING

from meshwright.domain.training import Batch
from meshwright.estimate.single import estimate

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.base import Framework
    from meshwright.frameworks.facts import PackingLimit
    from meshwright.frameworks.settings import Reading

QUANTUM = 1024
"""Limits are proposed in multiples of so many tokens."""
CHOICES = 32
ALIGNED = 512
"""A packed sequence is taken as a multiple of so many tokens, which all degrees divide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A trainer that packs: its case and layout as they are read in whole sequences, and its limit."""

    case: Case
    layout: Layout
    limit: PackingLimit

    def estimate(self, limit_tokens: int) -> Estimate:
        """The prediction with the fullest micro-batch under a limit as one sequence of packed samples."""
        case, layout = self.one_sequence(limit_tokens)
        return estimate(case, layout)

    def in_sequences(self, layout: Layout) -> Layout:
        """A layout of packed sequences as the files have it: the limit stays, so micro-batches are read as before."""
        share = layout.data_parallel * self.layout.microbatch_sequences
        return replace(
            layout, microbatch_sequences=self.layout.microbatch_sequences,
            num_microbatches=max(1, self.case.batch.global_batch_sequences // share),
        )

    def largest(self, fits: Callable[[Estimate], bool]) -> int | None:
        """The largest limit below the present one, in ``QUANTUM`` tokens, that fits; None where not even the smallest does.

        The smallest is that which holds the longest sample. Memory grows with the limit, so halving finds it.
        """
        low, high = ceil((self.limit.longest_tokens + 1) / QUANTUM), (self.limit.tokens - 1) // QUANTUM
        if high < low or not fits(self.estimate(low * QUANTUM)):
            return None
        while low < high:
            middle = (low + high + 1) // 2
            if fits(self.estimate(middle * QUANTUM)):
                low = middle
            else:
                high = middle - 1
        return low * QUANTUM

    def up_to(self, limit_tokens: int) -> tuple[int, ...]:
        """Limits to choose from, the largest first: at most ``CHOICES``, down to that which holds the longest sample."""
        low, high = ceil((self.limit.longest_tokens + 1) / QUANTUM), limit_tokens // QUANTUM
        step = max(1, (high - low) // CHOICES + 1)
        return tuple(count * QUANTUM for count in range(high, low - 1, -step))

    def one_sequence(self, limit_tokens: int) -> tuple[Case, Layout]:
        """Case and layout of micro-batches that are one packed sequence each; attention stays inside a sample."""
        batch, layout = self.case.batch, self.layout
        tokens = max(self.limit.fullest(limit_tokens, layout), self.limit.longest_tokens)
        tokens = ceil(tokens / ALIGNED) * ALIGNED
        count = max(1, ceil(batch.tokens / layout.data_parallel / tokens))
        squares = tokens * min(self.limit.longest_tokens, tokens)
        own = Batch(
            global_batch_sequences=layout.data_parallel * count, sequence_tokens=tokens, mean_square_document_tokens=float(squares)
        )
        return replace(self.case, batch=own), replace(layout, microbatch_sequences=1, num_microbatches=count)


def packed(case: Case, layout: Layout, framework: Framework, reading: Reading) -> Packed | None:
    """How the trainer of some files packs; None where it does not, or where the case packs documents already."""
    limit = framework.facts.packing(reading) if framework.facts.packing is not None else None
    if limit is None or case.batch.mean_square_document_tokens is not None:
        return None
    return Packed(case=case, layout=layout, limit=limit)
