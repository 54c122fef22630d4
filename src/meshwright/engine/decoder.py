"""A decoder as PyTorch modules, built from the same description that predictions are made from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn import functional

from meshwright.domain.model import Mlp
from meshwright.engine.attention import attention_block
from meshwright.engine.experts import Experts
from meshwright.engine.feed_forward import FeedForward
from meshwright.engine.mixers import mixer_block
from meshwright.engine.norms import norm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshwright.domain.model import LayerKind, Model


class Block(nn.Module):
    """One layer: what mixes tokens (attention, a linear mixer, or both side by side) and a feed-forward block, with residuals.

    Each stands behind a norm, or both behind one; a layer may have one of them alone.
    """

    def __init__(self, model: Model, kind: LayerKind) -> None:
        super().__init__()
        hidden, attention, block = model.hidden, kind.attention, kind.feed_forward
        self.parallel = kind.parallel_block
        self.attention_norm = norm(model, hidden) if kind.mixes else None
        self.attention = None if attention is None else attention_block(model, attention)
        self.mixer = None if kind.mixer is None else mixer_block(hidden, kind.mixer)
        self.feed_norm = norm(model, hidden) if kind.has_block and (kind.norms > 1 or not kind.mixes) else None
        self.feed: nn.Module | None = None
        if kind.has_block:
            self.feed = FeedForward(hidden, block) if isinstance(block, Mlp) else Experts(hidden, block)
        behind = kind.norms == 4
        self.attention_end = norm(model, hidden) if behind else None
        self.feed_end = norm(model, hidden) if behind else None

    def forward(self, x: Tensor, documents: Tensor | None = None) -> Tensor:
        """``[batch, tokens, hidden]`` -> the same; ``documents`` ``[batch, tokens]`` says which packed document a token is of."""
        first = x if self.attention_norm is None else self.attention_norm(x)
        if self.parallel:
            assert self.feed is not None, "both are there"
            second = first if self.feed_norm is None else self.feed_norm(x)
            out: Tensor = x + self._mixed(first, documents) + self.feed(second)
            return out
        if self.attention_norm is not None:
            x = x + self._mixed(first, documents)
        if self.feed is None:
            return x
        second = x if self.feed_norm is None else self.feed_norm(x)
        fed = self.feed(second)
        if self.feed_end is not None:
            fed = self.feed_end(fed)
        result: Tensor = x + fed
        return result

    def _mixed(self, first: Tensor, documents: Tensor | None) -> Tensor:
        """What attention, the mixer, or both of them make of the normalised input."""
        made = None if self.attention is None else self.attention(first, documents)
        if self.mixer is not None:
            made = self.mixer(first) if made is None else made + self.mixer(first)
        assert isinstance(made, Tensor), "one of them is there"
        return made if self.attention_end is None else self.attention_end(made)


class Embedding(nn.Module):
    """Tokens, and learned positions where the model has them."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        width = model.embedding_width or model.hidden
        self.tokens = nn.Embedding(model.vocabulary, width)
        self.project = nn.Linear(width, model.hidden, bias=False) if model.embedding_width else None
        self.positions = nn.Embedding(model.position_table, model.hidden) if model.position_table else None
        self.norm = norm(model, model.hidden) if model.embedding_norm else None
        self.first_token = 0
        """Position of the first token that comes out here: context and sequence parallelism split them."""

    def forward(self, tokens: Tensor) -> Tensor:
        """``[batch, tokens]`` of identifiers -> ``[batch, tokens, hidden]``."""
        x = self.tokens(tokens)
        if self.project is not None:
            x = self.project(x)
        if self.positions is not None:
            x = x + self.positions(torch.arange(self.first_token, self.first_token + x.shape[1], device=tokens.device))
        if self.norm is not None:
            x = self.norm(x)
        out: Tensor = x
        return out


class Head(nn.Module):
    """The last norm and the output layer."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        width = model.embedding_width or model.hidden
        self.norm = norm(model, model.hidden) if model.final_norm else None
        self.project = nn.Linear(model.hidden, width, bias=False) if model.embedding_width else None
        self.output = nn.Linear(width, model.vocabulary, bias=model.head_bias)

    def forward(self, x: Tensor) -> Tensor:
        """``[batch, tokens, hidden]`` -> logits ``[batch, tokens, vocabulary]``."""
        if self.norm is not None:
            x = self.norm(x)
        if self.project is not None:
            x = self.project(x)
        out: Tensor = self.output(x)
        return out


class Decoder(nn.Module):
    """Layers in a row, with the embedding in front and the head behind where they stand on this part of the model.

    ``layers``: indices of the model's layers that this part holds; ``first``, ``last``: whether it has the ends.
    """

    def __init__(self, model: Model, layers: Sequence[int] | None = None, *, first: bool = True, last: bool = True) -> None:
        super().__init__()
        chosen = range(model.num_layers) if layers is None else layers
        self.tied_embeddings = model.tied_embeddings
        self.loss: Callable[[Tensor, Tensor], Tensor] = mean_loss
        self.embedding = Embedding(model) if first else None
        self.blocks = nn.ModuleDict({str(index): Block(model, model.kinds[model.pattern[index]]) for index in chosen})
        self.head = Head(model) if last else None
        if first and last and model.tied_embeddings:
            assert self.embedding is not None and self.head is not None, "both ends are here"
            self.head.output.weight = self.embedding.tokens.weight

    def forward(self, x: Tensor, documents: Tensor | None = None, targets: Tensor | None = None) -> Tensor:
        """Tokens or hidden states -> hidden states or logits, by which ends this part has; with ``targets`` the mean loss.

        The loss is part of the module so that logits live no longer than their gradient needs.
        """
        if self.embedding is not None:
            x = self.embedding(x)
        for block in self.blocks.values():
            x = block(x, documents)
        if self.head is None:
            return x
        logits: Tensor = self.head(x)
        return logits if targets is None else self.loss(logits, targets)


def mean_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy in FP32.

    Shapes:  logits ``[batch, tokens, vocabulary]``, which may be split over the vocabulary; targets ``[batch, tokens]``.
    """
    loss = functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
    return loss.to_local() if isinstance(loss, DTensor) else loss
