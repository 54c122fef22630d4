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


def own_sample(sample: Sample, layout: Layout, *, replica: int, slice_: int) -> Sample:
    """What one rank sees: its replica's sequences, and of these its slice of the tokens. Documents stay whole, for attention does."""
    sequences = [None if each is None else each.chunk(layout.data_parallel)[replica] for each in (
        sample.tokens, sample.targets, sample.documents)]  # fmt: skip
    tokens, targets, documents = sequences
    assert tokens is not None and targets is not None, "only documents may be missing"
    cut = [each.chunk(layout.context_parallel, dim=1)[slice_].contiguous() for each in (tokens, targets)]
    return Sample(tokens=cut[0], targets=cut[1], documents=documents)
