"""The samples of a file, optimizer step by optimizer step, in micro-batches; and what that comes to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from meshwright.errors import InputError, fault
from meshwright.packing import TOKENS, Cost, Figures, Oversize, figures, pack, prepared
from meshwright.packing.buckets import bucketed_tokens, padded_tokens
from meshwright.packing.modes import KEPT_LIMITS, MODES, others
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from meshwright.packing.balance import Ranks

OWN = "meshwright"
NAMES = (OWN, *MODES)
TOGETHER = 65_536
"""Samples of a step at most, where nobody says how many a step has."""
REPLAYED, LOWERED, LOWER_BY = 8, 40, 0.005
"""Steps on which a lower limit is tried for a program that exceeds it; how many limits, and the share between them."""
LOOKED_AT = 64
"""Steps that the figures are of; of more, evenly spaced ones."""


class Rules(Value, frozen=True, kw_only=True):
    """How samples are packed, and for whom."""

    max_tokens: int
    data_parallel: int = 1
    cost: Cost = TOKENS
    equal: bool = True
    multiple: int = 1
    """Micro-batches of a rank come in multiples of so many: of the stages, where they are interleaved."""
    align: int = 1
    oversize: Oversize | None = None
    """None: an error, or what the mode does."""
    mode: str = OWN

    def laid_out(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Tokens that the samples take."""
        theirs: Oversize = "truncate" if self.mode == "trl" else "error" if self.mode == OWN else "alone"
        return prepared(lengths, self.max_tokens, align=self.align, oversize=self.oversize or theirs)

    def ranks(self, lengths: NDArray[np.int64]) -> Ranks:
        """Micro-batches of one step; other modes count lengths before they are aligned, as those programs do."""
        if self.mode == OWN:
            return pack(
                lengths, self.max_tokens, self.data_parallel, self.cost, equal=self.equal, multiple=self.multiple,
                align=self.align, oversize=self.oversize or "error",
            )
        cut = np.minimum(lengths, self.max_tokens) if self.oversize == "truncate" else lengths
        return others(self.mode, cut, self.max_tokens, self.data_parallel, self.cost, equal=self.equal)

    def figures(self, lengths: NDArray[np.int64]) -> Figures:
        """What one step comes to."""
        return figures(self.ranks(lengths), self.laid_out(lengths), self.max_tokens, self.cost)


class Outcome(Value, frozen=True, kw_only=True):
    """All steps, or evenly spaced ones of many: counts are sums over those, imbalances their means."""

    steps: int
    looked_at: int
    left_over: int
    """Samples behind the last whole step."""
    step_samples: int
    padding_before: float
    """Where each sample is padded to the longest."""
    padding_buckets: float
    """Where samples of like length are padded to the longest beside them."""
    padding_after: float
    total: Figures


def steps_of(lengths: NDArray[np.int64], step_samples: int | None) -> tuple[list[NDArray[np.int64]], int]:
    """Samples of each optimizer step, in the order of the file, and how many are left over.

    Errors:  ``InputError`` where there are fewer samples than a step has.

    >>> [each.tolist() for each in steps_of(np.array([5, 6, 7, 8, 9]), 2)[0]]
    [[5, 6], [7, 8]]
    """
    if step_samples is None:
        return np.array_split(lengths, -(-len(lengths) // TOGETHER)), 0
    if step_samples > len(lengths):
        raise fault("pack.step", "a step of {batch:,} samples needs more than the {samples:,} there are", path="--global-batch",
                    batch=step_samples, samples=len(lengths))
    whole = len(lengths) // step_samples
    return np.split(lengths[: whole * step_samples], whole), len(lengths) - whole * step_samples


def looked_at(steps: list[NDArray[np.int64]]) -> list[NDArray[np.int64]]:
    """Some of many steps."""
    return steps[:: -(-len(steps) // LOOKED_AT)]


def outcome(lengths: NDArray[np.int64], step_samples: int | None, rules: Rules) -> Outcome:
    """Every step packed, or enough of them.

    Errors:  ``InputError`` for what cannot be packed.
    """
    steps, left = steps_of(lengths, step_samples)
    some = looked_at(steps)
    found = [rules.figures(each) for each in some]
    every = np.concatenate(some)
    longest = max(int(rules.laid_out(every).max()), 1)
    real = int(np.minimum(every, longest).sum())
    total = replace(
        found[0], microbatches=sum(each.microbatches for each in found), most_of_a_rank=max(each.most_of_a_rank for each in found),
        tokens=sum(each.tokens for each in found), most_tokens=max(each.most_tokens for each in found),
        slot_tokens=sum(each.slot_tokens for each in found), overflows=sum(each.overflows for each in found),
        dearest=sum(each.dearest for each in found),
        imbalance_ratio=float(np.mean([each.imbalance_ratio for each in found])),
        microbatch_imbalance_ratio=float(np.mean([each.microbatch_imbalance_ratio for each in found])),
    )
    buckets = sum(bucketed_tokens(rules.laid_out(each), rules.max_tokens) for each in some)
    return Outcome(
        steps=len(steps), looked_at=len(some), left_over=left, step_samples=len(some[0]),
        padding_before=1.0 - real / padded_tokens(np.minimum(every, longest)), padding_buckets=1.0 - real / buckets,
        padding_after=1.0 - real / total.slot_tokens, total=total,
    )


def keeping_limit(lengths: NDArray[np.int64], step_samples: int | None, rules: Rules) -> int | None:
    """The limit to give to a program that exceeds it, so that its micro-batches of these samples stay within ``max_tokens``.

    None where none of the looked at keeps it. Tokens are counted as they are laid out, padding to the alignment included.
    """
    steps = looked_at(steps_of(lengths, step_samples)[0])[:REPLAYED]
    sizes = [rules.laid_out(each) for each in steps]
    for place in range(1, LOWERED + 1):
        lower = replace(rules, max_tokens=int(rules.max_tokens * (1 - place * LOWER_BY)))
        try:
            dealt = [lower.ranks(each) for each in steps]
        except InputError:
            return None
        if all(figures(ranks, size, rules.max_tokens).overflows == 0 for ranks, size in zip(dealt, sizes, strict=True)):
            return lower.max_tokens
    return None


def keeping_any_limit(lengths: NDArray[np.int64], step_samples: int | None, rules: Rules) -> int | None:
    """The limit under which the mode keeps ``max_tokens`` whatever the samples are, up to the longest of these; None: not known."""
    kept = KEPT_LIMITS.get(rules.mode)
    if kept is None:
        return None
    most = max(map(len, looked_at(steps_of(lengths, step_samples)[0])))
    return kept(rules.max_tokens, int(lengths.max()), -(-most // rules.data_parallel), rules.align)


def pack_lines(lengths: NDArray[np.int64], step_samples: int | None, rules: Rules) -> Iterator[str]:
    """Every micro-batch of every step as a line of JSON: step, rank, place, tokens, and the samples by their place in the file."""
    start = 0
    for step, each in enumerate(steps_of(lengths, step_samples)[0]):
        sizes = rules.laid_out(each)
        for rank, microbatches in enumerate(rules.ranks(each)):
            for place, samples in enumerate(microbatches):
                inside = ", ".join(str(start + sample) for sample in samples)
                yield (
                    f'{{"step": {step}, "rank": {rank}, "microbatch": {place}, "tokens": {int(sizes[samples].sum())}, '
                    f'"samples": [{inside}]}}\n'
                )
        start += len(each)
