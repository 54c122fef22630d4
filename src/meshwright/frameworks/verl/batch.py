"""The batch as verl counts it: prompts, responses for each, and what a GPU takes at once, in samples or in tokens.

Source: verl 1dda039b9 verl/trainer/ppo/v1/trainer_base.py (mini-batch times n), verl/workers/engine/utils.py (cap times shards of a
sequence), verl/utils/config.py (``validate_config``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.domain.case import Case

RESPONSES = (8, 6, 5, 4, 3, 2, 1)
"""Responses for each prompt that are tried: group advantages want several, recipes have 5 to 16."""


def samples_of(case: Case) -> int:
    """Samples of an optimizer step."""
    return round(case.batch.samples)


def longest_tokens(case: Case) -> int:
    """Of a prompt and its response."""
    packing = case.batch.packing
    return packing.longest_sample_tokens if packing else case.batch.sequence_tokens


def responses_for(samples: int) -> int:
    """Responses for each prompt under which the samples of a step are whole prompts.

    >>> responses_for(512), responses_for(15), responses_for(7)
    (8, 5, 1)
    """
    return next(count for count in RESPONSES if samples % count == 0)


def prompts_for(mini: int, responses: int, unit: int) -> int:
    """``data.train_batch_size``: the fewest mini-batches of prompts whose samples fill every GPU alike.

    >>> prompts_for(64, 8, 16), prompts_for(3, 1, 2)
    (64, 6)
    """
    count = 1
    while mini * count * responses % unit:
        count += 1
    return mini * count


def cap_for(microbatch: int, sequence_tokens: int, shards: int) -> int:
    """The tokens of a GPU under which so many of the longest samples share a micro-batch: the limit of a pack is cap x shards.

    >>> cap_for(2, 4096, 4)
    2048
    """
    return -(-microbatch * sequence_tokens // shards)


def sequences_under(cap_tokens: int, shards: int, sequence_tokens: int, batch_sequences: int) -> int:
    """The micro-batch, in whole sequences, that stands for a packed one: so many of the longest samples as the limit holds, or the
    next smaller divisor of a rank's batch.

    >>> sequences_under(2048, 4, 4096, 64), sequences_under(24576, 1, 3072, 64), sequences_under(1000, 1, 4096, 4)
    (2, 8, 1)
    """
    most = max(cap_tokens * shards // sequence_tokens, 1)
    return max(size for size in range(1, min(most, batch_sequences) + 1) if batch_sequences % size == 0)
