"""Attention of a layer: its heads, and what their keys and values are made of. Widths are in elements."""

from __future__ import annotations

from typing import Literal

from meshwright.value import Value


class LatentAttention(Value, frozen=True, kw_only=True):
    """Widths of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): low-rank queries, keys and values."""

    query_rank: int | None
    """Width of the query latent; None projects queries directly."""
    key_value_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int


class CompressedAttention(Value, frozen=True, kw_only=True):
    """Widths of DeepSeek-V4's attention: low-rank queries, one key that is the value, too, grouped low-rank outputs, and entries
    that stand for blocks of tokens behind the window."""

    query_rank: int
    output_groups: int
    """Groups of heads that have an output projection of their own."""
    output_rank: int
    """Width of each group's projection."""
    rate: int = 0
    """Tokens of a block behind one entry; 0: there is the window alone."""
    overlapping: bool = False
    """Entries are made of two blocks, so that their projections are twice as wide (compressed sparse attention)."""


class Indexer(Value, frozen=True, kw_only=True):
    """What chooses the tokens (or compressed entries) that sparse attention looks at (DeepSeek-V3.2, arXiv 2512.02556)."""

    num_heads: int
    head_dim: int
    weighs_heads: bool = True
    """A projection weighs the heads of each query; False: their scores are pooled over blocks of keys (MiniMax M3)."""


class Attention(Value, frozen=True, kw_only=True):
    """One attention block. MHA, GQA and MQA differ only in ``num_key_value_heads``; MLA has ``latent``."""

    num_heads: int
    num_key_value_heads: int
    head_dim: int
    """Width of a query and key head (for MLA: nope_dim + rope_dim)."""
    value_head_dim: int | None = None
    """Width of a value head where it is another (MiMo V2 Flash)."""
    window_tokens: int | None = None
    """Each token attends to at most so many tokens (sliding window, or chunked attention); None: to all before it."""
    latent: LatentAttention | None = None
    query_key_norm: Literal["none", "head", "full"] = "none"
    """``head``: one weight of head_dim for queries, one for keys; ``full``: over all heads (OLMo-2)."""
    query_key_norm_weight: bool = True
    query_bias: bool = False
    key_value_bias: bool = False
    output_bias: bool = False
    sinks: bool = False
    """One learned logit per head (GPT-OSS)."""
    compressed: CompressedAttention | None = None
    selected_tokens: int | None = None
    """Sparse attention: each token attends to at most so many chosen tokens (of compressed attention: entries)."""
    indexer: Indexer | None = None
    """What chooses them; None with ``selected_tokens``: the choice of a layer before is taken over (GLM-5.2)."""
    gate: Literal["none", "full", "head"] = "none"
    """A gate on the output, from the layer's input: one for each element (Qwen3-Next), or one for each head (Step 3.5)."""
    shared_key_value: bool = False
    """Keys are the values, too (full attention of Gemma 4): no projection of values."""
    borrows_key_value: bool = False
    """Keys and values are those of a layer before (last layers of Gemma 3n): no projection of either."""
    causal: bool = True
    """False: patches of an image look at each other both ways."""

    @property
    def value_dim(self) -> int:
        """Width of a value head."""
        return self.latent.value_dim if self.latent else self.value_head_dim or self.head_dim

    @property
    def query_width(self) -> int:
        """All query heads together."""
        return self.num_heads * self.head_dim

    @property
    def key_width(self) -> int:
        """All key heads together (MLA expands a key for every head)."""
        return (self.num_heads if self.latent else self.num_key_value_heads) * self.head_dim

    @property
    def value_width(self) -> int:
        """All value heads together (MLA expands a value for every head)."""
        return (self.num_heads if self.latent else self.num_key_value_heads) * self.value_dim

    @property
    def output_width(self) -> int:
        """Input width of the output projection."""
        return self.num_heads * self.value_dim


NO_ATTENTION = Attention(num_heads=1, num_key_value_heads=1, head_dim=1)
"""What a model without attention is asked for."""
