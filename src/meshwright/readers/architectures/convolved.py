"""Attention behind short convolutions: Inkling and Inkling 2, Zaya."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.attention import Attention
from meshwright.domain.model import LayerKind, MixtureOfExperts, Mlp, Model, Side
from meshwright.readers.architectures.parts import grouped_attention, reads
from meshwright.readers.architectures.stacks import mtp_count, of_layers, stack_words

if TYPE_CHECKING:
    from meshwright.readers.fields import Fields

_FULL, _SLIDING = "full", "sliding"
_WORDS = {"hybrid": _FULL, "hybrid_sliding": _SLIDING}


def _taps(fields: Fields) -> int:
    return fields.size("conv_kernel_size", "sconv_kernel_size", default=4)


def _inkling_words(fields: Fields, layers: int) -> list[str]:
    """Windows but in every sixth layer, or where ``local_layer_ids`` says."""
    local = set(fields.numbers("local_layer_ids")) if fields.has("local_layer_ids") else None
    usual = [(index in local if local is not None else (index + 1) % 6 != 0) for index in range(layers)]
    return stack_words(fields, "layer_types", layers, _WORDS) or [_SLIDING if each else _FULL for each in usual]


def _inkling_attention(fields: Fields, word: str, *, window: int) -> Attention:
    """Attention of one sort; windows have heads of their own."""
    if word == _FULL:
        return grouped_attention(fields, fields.size("hidden_size"), bias=False, head_dim=128)
    heads = fields.size("swa_num_attention_heads", default=fields.size("num_attention_heads"))
    return Attention(
        num_heads=heads, num_key_value_heads=fields.size("swa_num_key_value_heads", default=heads),
        head_dim=fields.size("swa_head_dim", default=128),
        window_tokens=fields.size("sliding_window_size", "sliding_window", default=window),
    )


def _relative(fields: Fields, attention: Attention, reach: int) -> tuple[Side, ...]:
    """Positions that are learned as logits of distances. The second product is done for every head; its weights count once."""
    hidden, width = fields.size("hidden_size"), fields.size("d_rel", default=16)
    return (
        Side(name="relative queries", inputs=hidden, outputs=attention.num_heads * width),
        Side(name="logits of distances", inputs=width, outputs=reach),
    )


@reads("InklingForCausalLM", "inkling_text")
def inkling(fields: Fields) -> Model:
    """Inkling: short convolutions over keys, values and what both halves give, learned relative positions, a norm behind the
    embedding, shared experts that the router weighs; multi-token prediction has dense blocks."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    taps, reach = _taps(fields), fields.size("rel_extent", default=1024)
    wide, width = fields.size("intermediate_size"), fields.size("moe_intermediate_size", default=3072)
    if fields.has("dense_intermediate_size"):  # then the released file says the experts' width as intermediate_size
        wide, width = fields.size("dense_intermediate_size"), wide
    shared = fields.size("n_shared_experts", default=2, minimum=0)
    experts = MixtureOfExperts(
        num_experts=fields.size("n_routed_experts", "num_local_experts"), experts_per_token=fields.size("num_experts_per_tok"),
        expert_width=width, shared_width=shared * width, correction_bias=True,
        routed_scale=fields.number("route_scale", default=8.0),
    )
    router = Side(name="router of shared experts", inputs=hidden, outputs=shared, weights=1)
    dense = fields.size("dense_mlp_idx", default=0, minimum=0)
    blocks = fields.words("mlp_layer_types", layers, ("dense", "sparse")) or [
        "dense" if index < dense else "sparse" for index in range(layers)
    ]

    def layer(word: str, block: str) -> LayerKind:
        attention = replace(_inkling_attention(fields, word, window=512), query_key_norm="head")
        convolved = 2 * taps * (attention.key_width + hidden)
        sides = (*_relative(fields, attention, attention.window_tokens or reach), Side(name="convolutions", weights=convolved))
        if block == "sparse":
            return LayerKind(attention=attention, feed_forward=experts, sides=(*sides, router))
        return LayerKind(attention=attention, feed_forward=Mlp(width=wide), sides=(*sides, Side(name="scale", weights=1)))

    stack = [layer(*pair) for pair in zip(_inkling_words(fields, layers), blocks, strict=True)]
    heads = mtp_count(fields)
    model = of_layers(
        fields, stack, hidden=hidden, position="none", mtp_layers=heads, mtp=[layer(_FULL, "dense")] if heads else ()
    )
    return replace(model, embedding_norm=True, tied_embeddings=False)


@reads("Inkling2ForCausalLM", "inkling2_text")
def inkling2(fields: Fields) -> Model:
    """Inkling 2: a gate and sinks that the input makes, clipped queries, taps that the input makes in full layers, whose queries,
    keys and values are mixed of earlier blocks one by one."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    taps, reach = _taps(fields), fields.size("rel_extent", default=1024)
    experts = MixtureOfExperts(
        num_experts=fields.size("n_routed_experts", "num_local_experts"), experts_per_token=fields.size("num_experts_per_tok"),
        expert_width=fields.size("moe_intermediate_size", "intermediate_size"), correction_bias=True,
        routed_scale=fields.number("route_scale", "routed_scaling_factor", default=8.0),
    )
    words = _inkling_words(fields, layers)
    stack = []
    for index, word in enumerate(words):
        attention = replace(_inkling_attention(fields, word, window=1024), gate="full")
        full, keys = word == _FULL, 2 * taps * attention.key_width
        clipped = attention.num_heads * (attention.head_dim + fields.size("d_rel", default=16))
        mixed = (1 + (0 if index == 0 else 3 if full else 1)) * hidden
        sides = (
            *_relative(fields, attention, reach), Side(name="sinks", inputs=hidden, outputs=attention.num_heads),
            Side(name="convolutions, clips and mixes of blocks", weights=keys + 2 * taps * hidden + clipped + mixed),
        )
        if full:
            sides += (Side(name="taps", inputs=hidden, outputs=2 * taps * attention.num_key_value_heads),)
        stack.append(LayerKind(attention=attention, feed_forward=experts, norms=4 if full else 2, sides=sides))
    model = of_layers(fields, stack, hidden=hidden, position="none", mtp_layers=mtp_count(fields))
    last = Side(name="mix of blocks", weights=hidden)
    return replace(model, embedding_norm=True, tied_embeddings=False, back=(last,))


@reads("ZayaForCausalLM", "zaya")
def zaya(fields: Fields) -> Model:
    """Zaya: queries and keys mixed by two convolutions (one over channels of a head), a router that is a small network with
    memory of the layer before and a choice of no expert, scaled residuals. Of the router, one product as wide as the experts
    are many is the mixture's own; the rest stands beside it."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    attention = grouped_attention(fields, hidden)
    number, width = fields.size("num_experts"), fields.size("router_hidden_size", default=256)
    if width < number:
        fields.fault("router_hidden_size", "config.router", "{width} is less than {number} experts", width=width, number=number)
    experts = MixtureOfExperts(
        num_experts=number, experts_per_token=fields.size("num_experts_per_tok", default=1),
        expert_width=fields.size("moe_intermediate_size"), correction_bias=True,
    )
    channels = attention.query_width + attention.key_width
    first, second = (fields.size(name, default=2) for name in ("cca_time0", "cca_time1"))
    sides = (
        Side(name="convolutions of queries and keys", inputs=second * attention.head_dim, outputs=channels,
             weights=(first + 2) * channels + attention.num_key_value_heads),
        Side(name="router's input", inputs=hidden, outputs=max(0, width - number), weights=width),
        Side(name="router", inputs=width, outputs=2 * width + number + 1, weights=3 * width),
        Side(name="scales of the residuals", weights=8 * hidden),
    )
    memory = Side(name="memory of the router", weights=width)
    words = stack_words(fields, "layer_types", layers, _WORDS) or [_FULL] * layers
    if _SLIDING in words and not fields.has("sliding_window"):
        fields.fault("sliding_window", "config.missing", "is missing")
    window = fields.optional_size("sliding_window")
    stack = [
        LayerKind(
            attention=replace(attention, window_tokens=window if word == _SLIDING else None), feed_forward=experts,
            sides=(*sides, memory) if index else sides,
        )
        for index, word in enumerate(words)
    ]
    model = of_layers(fields, stack, hidden=hidden, tied=True)
    scaled = Side(name="scale of the embedding", weights=2 * hidden)
    return replace(model, front=(scaled,), head_bias=fields.flag("lm_head_bias", default=False))
