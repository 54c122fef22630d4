"""Synthetic batches: the same tokens for every layout, cut to what a rank sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from meshwright.domain.layout import Layout

DOCUMENTS = 4
"""Documents of a packed sequence, of drawn lengths."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sample:
    """Tokens, what follows each of them, and which packed document it is of; ``[sequences, tokens]``."""

    tokens: Tensor
    targets: Tensor
    documents: Tensor | None


def global_sample(step: int, *, sequences: int, tokens: int, vocabulary: int, packed: bool, device: torch.device) -> Sample:
    """The whole batch of a step, drawn on the CPU so that it is the same on every device."""
    generator = torch.Generator().manual_seed(step)
    drawn = torch.randint(0, vocabulary, (sequences, tokens + 1), generator=generator)
    documents = None
    if packed:
        ends = torch.randint(1, tokens, (sequences, DOCUMENTS - 1), generator=generator)
        documents = (torch.arange(tokens)[None, :, None] >= ends[:, None, :]).sum(dim=-1).to(device)
    return Sample(tokens=drawn[:, :-1].to(device), targets=drawn[:, 1:].to(device), documents=documents)


def own_sample(sample: Sample, layout: Layout, *, replica: int, piece: int) -> Sample:
    """What one rank sees: its replica's sequences, and its piece of their tokens. Documents stay whole, as attention does."""

    def own(whole: Tensor) -> Tensor:
        return whole.chunk(layout.data_parallel)[replica]

    tokens, targets = (
        own(each).chunk(layout.context_parallel, dim=1)[piece].contiguous() for each in (sample.tokens, sample.targets)
    )
    return Sample(tokens=tokens, targets=targets, documents=None if sample.documents is None else own(sample.documents))
