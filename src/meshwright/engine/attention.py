"""Attention blocks: grouped-query and multi-head latent attention, on PyTorch's scaled dot product."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn import functional

from meshwright.engine.norms import norm
from meshwright.engine.positions import alibi_slopes, allowed, rotate

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.domain.attention import Attention
    from meshwright.domain.model import Model

    Exchange = Callable[[Tensor, bool], Tensor]
    """Heads for tokens (True), or back: what Ulysses does around attention. ``[batch, heads, tokens, width]``."""


class Core(nn.Module):
    """Softmax attention of one rank's heads: causal, with a window, documents, ALiBi or sinks where the model has them."""

    def __init__(self, model: Model, attention: Attention) -> None:
        super().__init__()
        self.window, self.alibi = attention.window_tokens, model.position == "alibi"
        self.all_heads = attention.num_heads
        self.exchange: Exchange | None = None
        self.first_head = 0
        """Which of the model's heads is the first here: tensor parallelism and exchanges split them."""
        self.first_sink = 0
        """Which of this rank's sinks is the first that its heads use after an exchange."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, documents: Tensor | None, sinks: Tensor | None) -> Tensor:
        """Queries, keys, values ``[batch, heads, tokens, width]`` (fewer heads of keys) -> ``[batch, heads, tokens, width]``."""
        if self.exchange is not None:
            query, key, value = (self.exchange(each, True) for each in (query, key, value))
        scale = query.shape[-1] ** -0.5
        if self.window is None and documents is None and not self.alibi and sinks is None:
            out = functional.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=True)
        else:
            out = self._masked(query, key, value, documents, sinks, scale)
        return out if self.exchange is None else self.exchange(out, False)

    def _masked(
        self, query: Tensor, key: Tensor, value: Tensor, documents: Tensor | None, sinks: Tensor | None, scale: float
    ) -> Tensor:
        heads, tokens = query.shape[1], query.shape[2]
        mask = allowed(tokens, self.window, documents, query.device)
        bias = torch.zeros(mask.shape, dtype=query.dtype, device=query.device).masked_fill(~mask, float("-inf"))
        if self.alibi:
            distance = torch.arange(tokens, device=query.device)
            slopes = alibi_slopes(self.all_heads, query.device)[self.first_head : self.first_head + heads]
            bias = bias + (slopes[:, None, None] * (distance[None, :] - distance[:, None])).to(query.dtype)
        if sinks is None:
            return functional.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=scale, enable_gqa=True)
        key, value = (each.repeat_interleave(heads // key.shape[1], dim=1) for each in (key, value))
        scores = query @ key.transpose(-1, -2) * scale + bias
        column = sinks[self.first_sink : self.first_sink + heads].view(1, -1, 1, 1).expand(scores.shape[0], -1, tokens, 1)
        shares = torch.cat([scores, column.to(scores.dtype)], dim=-1).softmax(dim=-1)[..., :-1]
        return shares @ value


class GroupedAttention(nn.Module):
    """Multi-head, grouped-query or multi-query attention."""

    def __init__(self, model: Model, attention: Attention) -> None:
        super().__init__()
        hidden, width = model.hidden, attention.head_dim
        self.width, self.attention = width, attention
        self.position, self.base, self.ratio = model.position, model.rotary_base or 10000.0, model.rotary_ratio
        self.query = nn.Linear(hidden, attention.query_width, bias=attention.query_bias)
        self.key = nn.Linear(hidden, attention.key_width, bias=attention.key_value_bias)
        self.value = nn.Linear(hidden, attention.value_width, bias=attention.key_value_bias)
        gates = {"none": 0, "full": attention.output_width, "head": attention.num_heads}[attention.gate]
        self.gate = nn.Linear(hidden, gates, bias=False) if gates else None
        self.output = nn.Linear(attention.output_width, hidden, bias=attention.output_bias)
        self.sinks = nn.Parameter(torch.zeros(attention.num_heads)) if attention.sinks else None
        kinds, weight = attention.query_key_norm, attention.query_key_norm_weight
        whole = kinds == "full"
        self.query_norm = norm(model, attention.query_width if whole else width, weight=weight) if kinds != "none" else None
        self.key_norm = norm(model, attention.key_width if whole else width, weight=weight) if kinds != "none" else None
        self.core = Core(model, attention)
        self.first_token = 0
        """Position of the first token here: context parallelism splits them."""

    def forward(self, x: Tensor, documents: Tensor | None = None) -> Tensor:
        """``[batch, tokens, hidden]`` -> the same."""
        query, key, value = self.query(x), self.key(x), self.value(x)
        if self.attention.query_key_norm == "full":
            query, key = self._normed(query, key)
        query, key, value = (each.unflatten(-1, (-1, self.width)).transpose(1, 2) for each in (query, key, value))
        if self.attention.query_key_norm == "head":
            query, key = self._normed(query, key)
        if self.position == "rope":
            query, key = (rotate(each, base=self.base, ratio=self.ratio, first=self.first_token) for each in (query, key))
        sinks = self.sinks.to_local() if isinstance(self.sinks, DTensor) else self.sinks
        out = self.core(query, key, value, documents, sinks).transpose(1, 2)
        if self.gate is not None:
            out = out * torch.sigmoid(self.gate(x)).reshape(*out.shape[:3], -1)
        result: Tensor = self.output(out.flatten(2))
        return result

    def _normed(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        assert self.query_norm is not None and self.key_norm is not None, "the model has them"
        return self.query_norm(query), self.key_norm(key)


class LatentAttentionBlock(nn.Module):
    """Multi-head latent attention: low-rank queries, and keys and values expanded from one latent."""

    def __init__(self, model: Model, attention: Attention) -> None:
        super().__init__()
        latent = attention.latent
        assert latent is not None, "the caller has checked"
        hidden, heads = model.hidden, attention.num_heads
        self.latent, self.base = latent, model.rotary_base or 10000.0
        self.query_down = nn.Linear(hidden, latent.query_rank, bias=False) if latent.query_rank else None
        self.query_norm = nn.RMSNorm(latent.query_rank, eps=1e-6) if latent.query_rank else None
        self.query = nn.Linear(latent.query_rank or hidden, attention.query_width, bias=False)
        self.key_value_down = nn.Linear(hidden, latent.key_value_rank + latent.rope_dim, bias=False)
        self.key_value_norm = nn.RMSNorm(latent.key_value_rank, eps=1e-6)
        self.key_value = nn.Linear(latent.key_value_rank, heads * (latent.nope_dim + latent.value_dim), bias=False)
        self.output = nn.Linear(attention.output_width, hidden, bias=attention.output_bias)
        self.core = Core(model, attention)
        self.first_token = 0
        self.shared: Callable[[Tensor], Tensor] | None = None
        """What the one rotary key of all heads passes through: tensor parallelism sums the gradients of its ranks' heads."""

    def forward(self, x: Tensor, documents: Tensor | None = None) -> Tensor:
        """``[batch, tokens, hidden]`` -> the same."""
        latent = self.latent
        low = x if self.query_down is None or self.query_norm is None else self.query_norm(self.query_down(x))
        query = self.query(low).unflatten(-1, (-1, latent.nope_dim + latent.rope_dim)).transpose(1, 2)
        plain, turned = query.split([latent.nope_dim, latent.rope_dim], dim=-1)
        query = torch.cat([plain, rotate(turned, base=self.base, first=self.first_token)], dim=-1)
        shared, rotary = self.key_value_down(x).split([latent.key_value_rank, latent.rope_dim], dim=-1)
        rotary = rotary if self.shared is None else self.shared(rotary)
        rotary = rotate(rotary.unsqueeze(1), base=self.base, first=self.first_token)
        both = self.key_value(self.key_value_norm(shared)).unflatten(-1, (-1, latent.nope_dim + latent.value_dim)).transpose(1, 2)
        key, value = both.split([latent.nope_dim, latent.value_dim], dim=-1)
        key = torch.cat([key, rotary.expand(-1, key.shape[1], -1, -1)], dim=-1)
        out = self.core(query, key, value, documents, None)
        result: Tensor = self.output(out.transpose(1, 2).flatten(2))
        return result


def attention_block(model: Model, attention: Attention) -> GroupedAttention | LatentAttentionBlock:
    """The module of an attention."""
    return LatentAttentionBlock(model, attention) if attention.latent else GroupedAttention(model, attention)
