"""A transformer as the planner sees it: the kinds of its layers, in order, and what stands around them.

Widths are in elements, counts are counts. A model is a value; where it comes from (catalogue, ``config.json``) is the
business of ``catalog`` and ``readers``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Literal

from meshwright.errors import InputError, Message

PositionEncoding = Literal["rope", "learned", "alibi", "none"]
NormKind = Literal["rms", "layer", "layer-no-bias", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Widths of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): low-rank queries, keys and values."""

    query_rank: int | None
    """Width of the query latent; None projects queries directly."""
    key_value_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One attention block. MHA, GQA and MQA differ only in ``num_key_value_heads``; MLA has ``latent``."""

    num_heads: int
    num_key_value_heads: int
    head_dim: int
    """Width of a query and key head (for MLA: nope_dim + rope_dim)."""
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

    @property
    def value_dim(self) -> int:
        """Width of a value head."""
        return self.latent.value_dim if self.latent else self.head_dim

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Mlp:
    """A dense feed-forward block: two matrices, or three where it is gated."""

    width: int
    gated: bool = True
    bias: bool = False

    @property
    def num_inputs(self) -> int:
        """Projections from hidden to width: 2 where gated, else 1."""
        return 2 if self.gated else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureOfExperts:
    """A mixture of experts: router, routed experts, and shared experts that see every token."""

    num_experts: int
    experts_per_token: int
    expert_width: int
    gated: bool = True
    shared_width: int = 0
    """Width of all shared experts together; 0: none."""
    shared_gate: bool = False
    """A one-wide gate in front of the shared expert (Qwen2-MoE)."""
    router_bias: bool = False
    correction_bias: bool = False
    """Score-correction bias of auxiliary-loss-free balancing (DeepSeek-V3); a buffer, no parameter."""
    expert_bias: bool = False
    num_groups: int = 1
    groups_per_token: int = 1
    """Experts stand in groups; a token is routed to at most so many groups (node-limited routing)."""
    routed_scale: float = 1.0
    """Weights of the routed experts are multiplied by this (``routed_scaling_factor``); no shape depends on it."""

    @property
    def num_inputs(self) -> int:
        """Projections from hidden to width: 2 where gated, else 1."""
        return 2 if self.gated else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """One kind of transformer layer; layers of a kind have equal shapes."""

    attention: Attention
    feed_forward: Mlp | MixtureOfExperts
    norms: int = 2
    """Norms of hidden width in the layer: 2 (pre-norm), 4 (Gemma 2/3: before and after), 1 (parallel block)."""
    parallel_block: bool = False
    """Attention and feed-forward read the same norm and add in parallel (Falcon, GPT-J)."""

    @property
    def experts(self) -> MixtureOfExperts | None:
        """The mixture of experts of the layer, or None where it is dense."""
        return self.feed_forward if isinstance(self.feed_forward, MixtureOfExperts) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A decoder-only transformer.

    ``kinds`` lists the different layers, ``pattern`` gives for every layer in order the index of its kind.
    """

    name: str
    hidden: int
    vocabulary: int
    kinds: tuple[LayerKind, ...]
    pattern: tuple[int, ...]
    norm: NormKind = "rms"
    position: PositionEncoding = "rope"
    position_table: int = 0
    """Rows of a learned position table (0: no table)."""
    rotary_base: float | None = None
    """Base of the rotary frequencies (``rope_theta``; of full attention where windows have another); None: unknown."""
    rotary_ratio: float = 1.0
    """Share of a head that rotary positions turn, from its front (``partial_rotary_factor``); latent attention says it
    by its widths."""
    norm_epsilon: float | None = None
    """What a norm adds to the mean square (``rms_norm_eps``); None: unknown."""
    tied_embeddings: bool = False
    head_bias: bool = False
    embedding_norm: bool = False
    final_norm: bool = True
    num_mtp_layers: int = 0
    """Multi-token-prediction layers after the last: each a layer of the last kind, a 2h x h projection and three norms."""
    embedding_width: int | None = None
    """Width of the token embedding where it differs from hidden (OPT-350M); then projections in and out."""
    max_sequence: int | None = None
    architecture: str = ""
    """The Hugging Face architecture that this describes, where there is one."""
    source: str = ""
    assumed: tuple[str, ...] = field(default=())
    """Names of figures that nobody published and that are assumed here."""

    def __post_init__(self) -> None:
        messages = [
            Message("model.positive", "{field}={value} must be at least 1", {"field": name, "value": value}, path=self.name)
            for name, value in (("hidden", self.hidden), ("vocabulary", self.vocabulary), ("layers", len(self.pattern)))
            if value < 1
        ]
        scales = ((kind.experts.routed_scale, inf) for kind in self.kinds if kind.experts)
        messages += [
            Message("model.ratio", "{value} is not above 0 and at most {limit}", {"value": value, "limit": limit}, path=self.name)
            for value, limit in ((self.rotary_base, inf), (self.rotary_ratio, 1.0), *scales)
            if value is not None and not 0 < value <= limit
        ]
        for kind in self.kinds:
            attention = kind.attention
            if attention.num_heads % attention.num_key_value_heads:
                messages.append(
                    Message(
                        "model.heads",
                        "num_key_value_heads={kv} does not divide num_heads={heads}",
                        {"kv": attention.num_key_value_heads, "heads": attention.num_heads},
                        path=self.name,
                    )
                )
            experts = kind.experts
            if experts and experts.experts_per_token > experts.num_experts:
                messages.append(
                    Message(
                        "model.experts",
                        "experts_per_token={top} exceeds num_experts={experts}",
                        {"top": experts.experts_per_token, "experts": experts.num_experts},
                        path=self.name,
                    )
                )
        if messages:
            raise InputError(messages)

    @property
    def num_layers(self) -> int:
        """Transformer layers without multi-token-prediction layers."""
        return len(self.pattern)

    @property
    def is_moe(self) -> bool:
        """Whether any layer routes tokens to experts."""
        return any(kind.experts for kind in self.kinds)

    @property
    def experts(self) -> MixtureOfExperts | None:
        """The mixture of the first MoE kind (all published models use one mixture), or None for a dense model."""
        return next((kind.experts for kind in self.kinds if kind.experts), None)
