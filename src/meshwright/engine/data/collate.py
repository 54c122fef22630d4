"""Samples side by side as one sequence: every sample sees itself alone, starts at position 0, and predicts nothing of the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from meshwright.errors import fault
from meshwright.packing.context import document_pieces

IGNORED = -100
"""Label of what is not predicted: ``cross_entropy`` leaves it out."""
Sample = Mapping[str, Tensor] | Tensor | Sequence[int]
"""Token ids, or a mapping with ``tokens`` and, where not all count, ``loss_mask`` of the same length: what may be predicted."""
Weighting = Literal["token", "sample"]


def collate_packed(
    samples: Sequence[Sample], *, align: int = 1, pad_to: int | None = None, pad_token: int = 0, loss: Weighting = "token"
) -> dict[str, Tensor]:
    """One micro-batch of the samples, one after the other.

    ``tokens labels position_ids loss_mask documents`` are ``[1, tokens]``; ``labels`` are what follows each token, and ``IGNORED``
    where that is padding, another sample, or masked; ``documents`` numbers the samples, for block-diagonal attention by a mask;
    ``cu_seqlens`` (``[samples + 1]``, int32, with ``max_seqlen``) is the same for kernels of variable length. ``loss_mask`` weighs
    each label: 1, or with ``loss="sample"`` so that a sample's labels sum to 1.

    ``align``: each sample is padded to a multiple; ``pad_to``: so is the whole, the rest as a document of its own.

    Units:   tokens.
    Errors:  ``InputError`` for no samples, an empty one, a mask of another length, and more tokens than ``pad_to``.

    >>> batch = collate_packed([[5, 6, 7], [8, 9]])
    >>> batch["labels"].tolist(), batch["cu_seqlens"].tolist()
    ([[6, 7, -100, 9, -100]], [0, 3, 5])
    """
    if not samples:
        raise fault("collate.empty", "no samples: a micro-batch has one at least")
    parts = [_laid_out(sample, place, align, pad_token, loss) for place, sample in enumerate(samples)]
    total = sum(len(tokens) for tokens, _, _ in parts)
    if pad_to is not None and total > pad_to:
        raise fault("collate.pad", "{total:,} tokens are more than {limit:,}", total=total, limit=pad_to)
    if pad_to is not None and total < pad_to:
        rest = pad_to - total
        parts.append((torch.full((rest,), pad_token), torch.full((rest,), IGNORED), torch.zeros(rest)))
    lengths = torch.tensor([len(tokens) for tokens, _, _ in parts])
    starts = functional.pad(lengths.cumsum(0), (1, 0))
    documents = torch.repeat_interleave(torch.arange(len(parts)), lengths)
    tokens, labels, weights = (torch.cat(column)[None] for column in zip(*parts, strict=True))
    return {
        "tokens": tokens, "labels": labels, "loss_mask": weights,
        "position_ids": (torch.arange(int(lengths.sum())) - starts[documents])[None], "documents": documents[None],
        "cu_seqlens": starts.to(torch.int32), "max_seqlen": lengths.max(),
    }


def _laid_out(sample: Sample, place: int, align: int, pad_token: int, loss: Weighting) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, labels and weights of one sample with its padding; ``[tokens]`` each."""
    given = sample.get("tokens", ()) if isinstance(sample, Mapping) else sample
    try:
        tokens = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        raise fault("collate.kind", "sample {place}: its tokens are no list of whole numbers", place=place) from None
    if len(tokens.shape) == 1 and len(tokens) and (tokens.is_floating_point() or tokens.is_complex()):
        raise fault("collate.kind", "sample {place}: its tokens are no list of whole numbers", place=place)
    tokens = tokens.long()
    if tokens.ndim != 1 or not len(tokens):
        raise fault("collate.tokens", "sample {place}: a list of at least one token is needed", place=place)
    counts = torch.ones(len(tokens), dtype=torch.bool)
    if isinstance(sample, Mapping) and "loss_mask" in sample:
        counts = torch.as_tensor(sample["loss_mask"]).to(torch.bool)
        if counts.shape != tokens.shape:
            raise fault("collate.mask", "sample {place}: a mask of {mask:,} for {tokens:,} tokens", place=place,
                        mask=counts.numel(), tokens=len(tokens))
    labels = torch.full_like(tokens, IGNORED)
    labels[:-1] = torch.where(counts[1:], tokens[1:], IGNORED)
    weights = (labels != IGNORED).to(torch.get_default_dtype())
    if loss == "sample":
        weights = weights / weights.sum().clamp(min=1)
    more = -len(tokens) % align
    return (
        functional.pad(tokens, (0, more), value=pad_token), functional.pad(labels, (0, more), value=IGNORED),
        functional.pad(weights, (0, more)),
    )


def packed_loss(logits: Tensor, batch: Mapping[str, Tensor], denominator: float | Tensor) -> Tensor:
    """The micro-batch's part of the loss of an optimizer step: its sum over all micro-batches of all ranks is the loss.

        sum of weight x cross entropy / denominator

    ``denominator``: with ``loss="token"`` the labels of the whole step (``loss_mask.sum()`` over its micro-batches), with
    ``loss="sample"`` its samples. Where gradients are averaged over ranks instead of summed, divide it by their number.

    Shapes:  logits ``[1, tokens, vocabulary]``.
    Units:   nats.
    """
    each = functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=IGNORED, reduction="none")
    return (each * batch["loss_mask"].flatten().to(each.dtype)).sum() / denominator


def context_part(batch: Mapping[str, Tensor], context_parallel: int, rank: int) -> dict[str, Tensor]:
    """The tokens of one rank of context parallelism: of every sample its early and its late piece, so that attention is even.

    ``cu_seqlens`` stay those of the whole, as kernels of context parallelism want them.

    Errors:  ``InputError`` for samples that are no multiple of 2 CP: see ``align``.
    """
    pieces = document_pieces(batch["cu_seqlens"].diff().tolist(), context_parallel)[rank]
    chosen = torch.cat([torch.arange(first, end) for first, end in pieces])
    return {name: each[:, chosen] if each.ndim == 2 else each for name, each in batch.items()}
