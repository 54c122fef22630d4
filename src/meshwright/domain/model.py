"""A transformer as the planner sees it: the kinds of its layers, in order, and what stands around them.

Widths are in elements, counts are counts. A model is a value; where it comes from (catalogue, ``config.json``) is the
business of ``catalog`` and ``readers``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Literal

from meshwright.domain.attention import NO_ATTENTION, Attention
from meshwright.domain.mixers import GatedDelta, Mamba2, Mixer
from meshwright.domain.tower import Tower
from meshwright.errors import InputError, Message
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Iterator

PositionEncoding = Literal["rope", "learned", "alibi", "none"]
NormKind = Literal["rms", "layer", "layer-no-bias", "none"]


class Mlp(Value, frozen=True, kw_only=True):
    """A dense feed-forward block: two matrices, or three where it is gated."""

    width: int
    gated: bool = True
    bias: bool = False

    @property
    def num_inputs(self) -> int:
        """Projections from hidden to width: 2 where gated, else 1."""
        return 2 if self.gated else 1


class MixtureOfExperts(Value, frozen=True, kw_only=True):
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
    latent: int | None = None
    """Routed experts work in a space of so many elements, with one projection there and one back (Nemotron-3 Super and Ultra)."""

    @property
    def num_inputs(self) -> int:
        """Projections from hidden to width: 2 where gated, else 1."""
        return 2 if self.gated else 1


class Side(Value, frozen=True, kw_only=True):
    """A thin projection beside the blocks of a layer or of the model, on every rank (hyper-connections, AltUp, Laurel)."""

    name: str
    inputs: int = 0
    outputs: int = 0
    weights: int = 0
    """Further weights: of a norm, biases, scales."""


class Lookup(Value, frozen=True, kw_only=True):
    """A table beside the token embedding that is only looked up: per-layer inputs (Gemma 3n), n-grams (LongCat-Flash-Lite)."""

    name: str
    rows: int
    width: int


NO_BLOCK = Mlp(width=0)
"""The feed-forward block of a layer that has none."""


class LayerKind(Value, frozen=True, kw_only=True):
    """One kind of layer; layers of a kind have equal shapes.

    What mixes tokens is attention, a linear mixer, both side by side (Falcon-H1), or nothing (feed-forward layers of Nemotron-H).
    """

    attention: Attention | None = None
    feed_forward: Mlp | MixtureOfExperts = NO_BLOCK
    """``NO_BLOCK``: the layer has none."""
    mixer: Mixer | None = None
    norms: int = 2
    """Norms of hidden width in the layer: 2 (pre-norm), 4 (Gemma 2/3: before and after), 1 (parallel block, a single block)."""
    parallel_block: bool = False
    """Attention and feed-forward read the same norm and add in parallel (Falcon, GPT-J)."""
    sides: tuple[Side, ...] = ()
    streams: int = 1
    """Residual streams side by side between layers (hyper-connections of DeepSeek-V4, AltUp of Gemma 3n)."""

    @property
    def experts(self) -> MixtureOfExperts | None:
        """The mixture of experts of the layer, or None where it is dense."""
        return self.feed_forward if isinstance(self.feed_forward, MixtureOfExperts) else None

    @property
    def mixes(self) -> bool:
        """Whether tokens meet in the layer: it has attention or a linear mixer."""
        return self.attention is not None or self.mixer is not None

    @property
    def has_block(self) -> bool:
        """Whether the layer has a feed-forward block."""
        return self.feed_forward != NO_BLOCK


class Model(Value, frozen=True, kw_only=True):
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
    """Multi-token-prediction layers after the last: each the layers of ``mtp_pattern``, a 2h x h projection and three norms."""
    num_mtp_passes: int = 0
    """How often the one multi-token-prediction layer runs, where further tokens share it (Nemotron-3: twice); 0: each runs once."""
    mtp_pattern: tuple[int, ...] = ()
    """Kinds of the layers of one of them; empty: one layer of the last kind."""
    embedding_width: int | None = None
    """Width of the token embedding where it differs from hidden (OPT-350M); then projections in and out."""
    max_sequence: int | None = None
    lookups: tuple[Lookup, ...] = ()
    front: tuple[Side, ...] = ()
    """Projections in front of the first layer, beside the embedding."""
    back: tuple[Side, ...] = ()
    """Projections behind the last layer, beside the output layer."""
    tower: Tower | None = None
    """In front of the first layer, and counted."""
    vision: Tower | None = None
    """The tower of its file, which is counted where a launch says so (``vision=frozen``, ``vision=trained``)."""
    beside: tuple[str, ...] = ()
    """What its file has beside the layers described here and nothing counts: towers of a multi-modal wrapper, with their sizes."""
    architecture: str = ""
    """The Hugging Face architecture that this describes, where there is one."""
    source: str = ""
    assumed: tuple[str, ...] = ()
    """Names of figures that nobody published and that are assumed here."""

    def __hash__(self) -> int:
        """Of what tells models apart at a glance: what is remembered of a model is asked for often."""
        return hash((self.name, self.hidden, self.vocabulary))

    def __post_init__(self) -> None:
        messages = [
            Message("model.positive", "{field}={value} must be at least 1", {"field": name, "value": value}, path=self.name)
            for name, value in (("hidden", self.hidden), ("vocabulary", self.vocabulary), ("layers", len(self.pattern)))
            if value < 1
        ]
        messages += [
            _not_a_ratio(value, limit, self.name) for value, limit in ((self.rotary_base, inf), (self.rotary_ratio, 1.0))
            if value is not None and not 0 < value <= limit
        ]
        messages += self._layer_faults()
        if self.num_mtp_passes > self.num_mtp_layers > 1:
            messages.append(
                Message(
                    "model.mtp-passes",
                    "num_mtp_passes={passes} with {layers} layers that predict further tokens: one layer is shared, or none",
                    {"passes": self.num_mtp_passes, "layers": self.num_mtp_layers}, path=self.name,
                )
            )
        if messages:
            raise InputError(messages)

    def _layer_faults(self) -> Iterator[Message]:
        """What cannot be of layers, each fault once, with how many of the layers have it where not all do."""
        found: dict[tuple[object, ...], tuple[Message, int]] = {}
        layers = Counter(self.pattern)
        for place, kind in enumerate(self.kinds):
            for message in _faults_of(kind, self.name):
                key = message.id, *message.values.values()
                found[key] = message, found.get(key, (message, 0))[1] + layers[place]
        for message, count in found.values():
            if 0 < count < len(self.pattern):
                values = {**message.values, "count": count, "all": len(self.pattern)}
                yield replace(message, template=f"{message.template} in {{count}} of {{all}} layers", values=values)
            else:
                yield message

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

    @property
    def attentions(self) -> tuple[Attention, ...]:
        """The attention of every kind that has one, in order."""
        return tuple(kind.attention for kind in self.kinds if kind.attention is not None)

    @property
    def attention(self) -> Attention:
        """The attention of the first kind that has one; of a model without any, a single narrow head."""
        return next(iter(self.attentions), NO_ATTENTION)

    @property
    def mixers(self) -> tuple[Mixer, ...]:
        """The linear mixer of every kind that has one, in order."""
        return tuple(kind.mixer for kind in self.kinds if kind.mixer is not None)

    @property
    def streams(self) -> int:
        """Residual streams that travel between layers."""
        return max(kind.streams for kind in self.kinds)

    @property
    def feed_forward(self) -> Mlp | MixtureOfExperts:
        """The feed-forward block of the first kind that has one."""
        return next((kind.feed_forward for kind in self.kinds if kind.has_block), NO_BLOCK)

    @property
    def mtp_passes(self) -> int:
        """Further tokens that are predicted: runs of multi-token-prediction layers, each with projection and output layer."""
        return max(self.num_mtp_layers, self.num_mtp_passes) if self.num_mtp_layers else 0

    @property
    def shares_mtp(self) -> bool:
        """Whether one multi-token-prediction layer predicts several further tokens."""
        return self.mtp_passes > self.num_mtp_layers

    @property
    def mtp_kinds(self) -> tuple[int, ...]:
        """Kinds of the layers behind the last that predict further tokens, in the order in which they run: shared ones again."""
        return (self.mtp_pattern or self.pattern[-1:]) * self.mtp_passes


def _not_a_ratio(value: float, limit: float, path: str) -> Message:
    return Message("model.ratio", "{value} is not above 0 and at most {limit}", {"value": value, "limit": limit}, path)


def _faults_of(kind: LayerKind, path: str) -> Iterator[Message]:
    """What cannot be of a kind of layer."""
    experts, attention = kind.experts, kind.attention
    if experts and not 0 < experts.routed_scale <= inf:
        yield _not_a_ratio(experts.routed_scale, inf, path)
    yield from _mixer_faults(kind, path)
    if attention is not None and attention.num_heads % attention.num_key_value_heads:
        values: dict[str, object] = {"kv": attention.num_key_value_heads, "heads": attention.num_heads}
        yield Message("model.heads", "num_key_value_heads={kv} does not divide num_heads={heads}", values, path)
    if experts and experts.experts_per_token > experts.num_experts:
        values = {"top": experts.experts_per_token, "experts": experts.num_experts}
        yield Message("model.experts", "experts_per_token={top} exceeds num_experts={experts}", values, path)


def _mixer_faults(kind: LayerKind, path: str) -> Iterator[Message]:
    """What cannot be of a layer's blocks."""
    if not kind.mixes and not kind.has_block:
        yield Message("model.empty-layer", "a layer has neither attention, nor a mixer, nor a feed-forward block", {}, path)
    mixer = kind.mixer
    known: dict[type, tuple[str, str]] = {GatedDelta: ("key_heads", "value_heads"), Mamba2: ("num_groups", "num_heads")}
    pairs = known.get(type(mixer))
    if pairs is not None:
        few, many = (getattr(mixer, name) for name in pairs)
        if many % few:
            yield Message("model.mixer-heads", "{few_name}={few} does not divide {many_name}={many}",
                          {"few_name": pairs[0], "few": few, "many_name": pairs[1], "many": many}, path)
