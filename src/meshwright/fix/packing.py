"""ChatLearn's packing limit: what runs out is the fullest micro-batch, and the limit says how many tokens it has.

It changes how many samples share a micro-batch, and neither the samples of a step nor their weights: the loss is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING

from meshwright.domain.training import Batch
from meshwright.estimate.single import estimate
from meshwright.frameworks.chatlearn.asking import sequence_of
from meshwright.frameworks.chatlearn.deciding import TRAINER, multiple
from meshwright.frameworks.chatlearn.packing import worst_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.settings import Reading

KEY = f"{TRAINER}.max_token_in_packing"
DEFAULT = 32768
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
    limit_tokens: int
    longest_tokens: int
    """No sample is longer; a limit below it would not split it."""

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
        low, high = ceil((self.longest_tokens + 1) / QUANTUM), (self.limit_tokens - 1) // QUANTUM
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
        low, high = ceil((self.longest_tokens + 1) / QUANTUM), limit_tokens // QUANTUM
        step = max(1, (high - low) // CHOICES + 1)
        return tuple(count * QUANTUM for count in range(high, low - 1, -step))

    def one_sequence(self, limit_tokens: int) -> tuple[Case, Layout]:
        """Case and layout of micro-batches that are one packed sequence each; attention stays inside a sample."""
        batch, layout = self.case.batch, self.layout
        tokens = max(worst_tokens(limit_tokens, multiple(layout)), self.longest_tokens)
        tokens = ceil(tokens / ALIGNED) * ALIGNED
        count = max(1, ceil(batch.tokens / layout.data_parallel / tokens))
        squares = tokens * min(self.longest_tokens, tokens)
        own = Batch(
            global_batch_sequences=layout.data_parallel * count, sequence_tokens=tokens, mean_square_document_tokens=float(squares)
        )
        return replace(self.case, batch=own), replace(layout, microbatch_sequences=1, num_microbatches=count)


def packed(case: Case, layout: Layout, reading: Reading) -> Packed | None:
    """How the trainer of ChatLearn's files packs; None where it does not, or does not say what a limit would be."""
    setting = reading.source.settings.get(KEY)
    value = DEFAULT if setting is None or setting.value is None else setting.value
    longest = sequence_of(reading)
    if reading.source.value(f"{TRAINER}.packing") is not True or not isinstance(value, int) or isinstance(value, bool):
        return None
    if longest is None or value < 1 or case.batch.mean_square_document_tokens is not None:
        return None
    return Packed(case=case, layout=layout, limit_tokens=value, longest_tokens=longest)
