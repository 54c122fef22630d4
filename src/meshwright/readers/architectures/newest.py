"""Models that came to transformers at the end of 2026: A.X K2, Beam, GLM-5.3-Flash, Mistral Large 4, Muse."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.attention import Attention, Indexer
from meshwright.domain.mixers import KimiDelta
from meshwright.domain.model import LayerKind, MixtureOfExperts, Mlp, Model, Side
from meshwright.readers.architectures.dense import uniform
from meshwright.readers.architectures.experts import dense_first_blocks
from meshwright.readers.architectures.hybrids import latent_without_rank
from meshwright.readers.architectures.parts import gated_mlp, grouped_attention, reads, windows, with_windows
from meshwright.readers.architectures.sparse import choosing_layers
from meshwright.readers.architectures.stacks import mtp_count, of_layers, stack_words

if TYPE_CHECKING:
    from meshwright.readers.fields import Fields

_LINEAR, _INDEXED = "linear", "indexed"


def _gated_attention(fields: Fields, hidden: int, *, head_dim: int | None = None) -> Attention:
    """Attention with norms on heads and a gate for each element, which has no bias where the queries have one."""
    if fields.flag("attention_bias", default=False):
        fields.fault("attention_bias", "config.unsupported", "biases beside a gate that has none are not described")
    return replace(grouped_attention(fields, hidden, bias=False, query_key_norm="head", head_dim=head_dim), gate="full")


def _indexer(fields: Fields, heads: int) -> Indexer:
    return Indexer(num_heads=fields.size("index_n_heads", default=heads), head_dim=fields.size("index_head_dim", default=128))


@reads("AXK2ForCausalLM", "axk2")
def axk2(fields: Fields) -> Model:
    """A.X K2: sparse latent attention whose queries and gate come of the latent before and behind its norm together, and norms
    with a gate of low rank; dense layers have one in front of attention alone."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    fields.size("q_lora_rank")
    attention = replace(
        latent_without_rank(fields), selected_tokens=fields.size("index_topk", default=2048), indexer=_indexer(fields, 16)
    )
    latent = attention.latent
    assert latent is not None
    rank = latent.query_rank or 1
    sides = (
        Side(name="queries of the unnormed latent", inputs=rank, outputs=attention.query_width),
        Side(name="gate on attention", inputs=2 * rank, outputs=attention.output_width),
    )
    gate = Side(name="gate of a norm", inputs=hidden, outputs=2 * fields.size("gated_norm_rank", default=16))
    blocks = dense_first_blocks(fields, layers, correction_bias=True, routed_scale=2.5, first_dense=1)
    stack = [
        LayerKind(attention=attention, feed_forward=block, sides=(*sides, gate, *[gate] * isinstance(block, MixtureOfExperts)))
        for block in blocks
    ]
    return of_layers(fields, stack, hidden=hidden, mtp_layers=mtp_count(fields))


@reads("BeamForCausalLM", "beam")
def beam(fields: Fields) -> Model:
    """Beam: windows but in every sixth layer and the last, a gate on attention with a bias for each head, norms around both
    halves, three dense layers."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    attention = _gated_attention(fields, hidden, head_dim=128)
    experts = MixtureOfExperts(
        num_experts=fields.size("num_experts"), experts_per_token=fields.size("num_experts_per_tok"),
        expert_width=fields.size("moe_intermediate_size"), correction_bias=True, num_groups=fields.size("n_group", default=8),
        groups_per_token=fields.size("topk_group", default=4), routed_scale=fields.number("routed_scaling_factor", default=2.5),
    )
    types = fields.words("mlp_layer_types", layers, ("dense", "sparse")) or ["dense"] * min(3, layers) + ["sparse"] * (layers - 3)
    slides = [(index + 1) % 6 != 0 and index < layers - 1 for index in range(layers)]
    bias = Side(name="bias of the gate", weights=attention.num_heads)
    dense = gated_mlp(fields) if "dense" in types else experts
    stack = [
        LayerKind(attention=own, feed_forward=dense if word == "dense" else experts, norms=4, sides=(bias,))
        for own, word in zip(with_windows(attention, windows(fields, layers, slides, width=512)), types, strict=True)
    ]
    return of_layers(fields, stack, hidden=hidden)


def _muse_windows(fields: Fields, layers: int) -> list[int | None]:
    """Full attention in every fourth layer, counted from the last."""
    return windows(fields, layers, [(layers - 1 - index) % 4 != 0 for index in range(layers)], width=2048)


def _muse_attention(fields: Fields, hidden: int) -> Attention:
    """Gated attention with norms without weights on heads."""
    return replace(_gated_attention(fields, hidden), query_key_norm_weight=False)


@reads("muse_glimmer_text", inside="MuseGlimmerForConditionalGeneration")
def muse_glimmer(fields: Fields) -> Model:
    """Muse Glimmer: dense, gated attention, norms around both halves."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    return uniform(
        fields, hidden=hidden, attention=_muse_attention(fields, hidden), mlp=gated_mlp(fields),
        widths=_muse_windows(fields, layers), norms=4,
    )


@reads("muse_spark_text", inside="MuseSparkForConditionalGeneration")
def muse_spark(fields: Fields) -> Model:
    """Muse Spark: experts in a narrower space with a norm in front of and behind them, residuals weighed by a learned gate."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    latent = fields.size("moe_hidden_size", default=4096)
    experts = MixtureOfExperts(
        num_experts=fields.size("num_local_experts", "num_experts"), experts_per_token=fields.size("num_experts_per_tok"),
        expert_width=fields.size("moe_intermediate_size"), correction_bias=True, latent=latent,
        routed_scale=fields.number("routed_scaling_factor", default=1.0),
    )
    types = fields.words("mlp_layer_types", layers, ("dense", "sparse")) or ["sparse"] * layers
    dense = gated_mlp(fields) if "dense" in types else experts
    residuals = Side(name="gates of the residuals", weights=2 * hidden)
    norms = Side(name="norms of the experts' space", weights=2 * latent)
    stack = [
        LayerKind(attention=own, feed_forward=dense, norms=3, sides=(residuals,)) if word == "dense"
        else LayerKind(attention=own, feed_forward=experts, norms=3, sides=(residuals, norms))
        for own, word in zip(with_windows(_muse_attention(fields, hidden), _muse_windows(fields, layers)), types, strict=True)
    ]
    return of_layers(fields, stack, hidden=hidden)


@reads("mistral_large4_text", inside="MistralLarge4ForConditionalGeneration")
def mistral_large4(fields: Fields) -> Model:
    """Mistral Large 4: sparse latent attention with queries of full rank, every fourth layer without positions, scores scaled
    head by head with the position."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    sources = fields.numbers("kv_source_layers")
    if sources and sources != tuple(range(layers)):
        fields.fault("kv_source_layers", "config.unsupported", "latents of keys and values shared by layers are not described")
    whole = replace(latent_without_rank(fields), selected_tokens=fields.size("index_topk", default=2048))
    latent, indexer = whole.latent, _indexer(fields, 32)
    assert latent is not None
    latent = replace(latent, query_rank=None)
    unturned = replace(latent, nope_dim=whole.head_dim, rope_dim=0)
    rotary = [bool(each) for each in fields.numbers("no_rope_layers")]
    if len(rotary) not in {0, layers}:
        fields.fault("no_rope_layers", "config.length", "has {length} entries for {count} layers", length=len(rotary), count=layers)
        rotary = []
    step = fields.size("no_rope_layer_interval", default=4)
    rotary = rotary or [(index + 1) % step != 0 for index in range(layers)]
    own = Side(name="scaling of scores", weights=2 * whole.num_heads)
    chosen = Side(name="norm and scaling of the indexer's queries", weights=2 * hidden + 2 * indexer.num_heads)
    blocks = dense_first_blocks(fields, layers, correction_bias=False, first_dense=1)
    stack = [
        LayerKind(
            attention=replace(whole, latent=latent if turned else unturned, indexer=indexer if chooses else None),
            feed_forward=block, sides=(own, chosen) if chooses else (own,),
        )
        for turned, chooses, block in zip(rotary, choosing_layers(fields, layers), blocks, strict=True)
    ]
    return of_layers(fields, stack, hidden=hidden, mtp_layers=mtp_count(fields))


@reads("glm5_next_text", inside="Glm5NextForConditionalGeneration")
def glm5_next(fields: Fields) -> Model:
    """GLM-5.3-Flash: Kimi delta attention in three layers of four, then sparse latent attention without positions whose indexer
    pools keys; residual streams."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    words = stack_words(fields, "layer_types", layers, {
        "linear_attention": _LINEAR, "indexed_attention": _INDEXED, "full_attention": _INDEXED,
    }) or [_INDEXED if index % 4 == 3 else _LINEAR for index in range(layers)]
    given = fields.inner("linear_attn_config")
    dim = given.size("head_dim", default=fields.size("linear_head_dim", default=128))
    mixer = KimiDelta(
        num_heads=given.size("num_heads", default=fields.size("linear_num_heads", default=64)), head_dim=dim,
        convolution=given.size("short_conv_kernel_size", default=fields.size("linear_conv_kernel_dim", default=4)),
        decay_rank=dim, gate_rank=dim,
    )
    indexer = _indexer(fields, 32)
    attention = replace(
        latent_without_rank(fields, unturned=True), selected_tokens=fields.size("index_topk", default=2048), indexer=indexer
    )
    pooled = Side(
        name="pooled keys of the indexer", inputs=hidden, outputs=indexer.head_dim,
        weights=fields.size("index_kpool", default=16) * indexer.head_dim,
    )
    streams = fields.size("hc_mult", default=4)
    mixing = (2 + streams) * streams
    sides = (Side(name="hyper-connection", inputs=streams * hidden, outputs=mixing, weights=mixing + 3),) * 2
    types = fields.words("mlp_layer_types", layers, ("dense", "sparse"))
    blocks = dense_first_blocks(fields, layers, correction_bias=True, routed_scale=2.5, first_dense=0 if types else 3)
    stack = [
        _glm5_layer(word, chooses, attention, mixer, block, sides, pooled, streams)
        for word, chooses, block in zip(words, choosing_layers(fields, layers), blocks, strict=True)
    ]
    return of_layers(fields, stack, hidden=hidden, position="none", mtp_layers=mtp_count(fields))


def _glm5_layer(
    word: str, chooses: bool, attention: Attention, mixer: KimiDelta, block: Mlp | MixtureOfExperts, sides: tuple[Side, ...],
    pooled: Side, streams: int,
) -> LayerKind:
    """A layer of GLM-5.3-Flash: linear, or indexed with a choice of its own or that of a layer before."""
    if word == _LINEAR:
        return LayerKind(mixer=mixer, feed_forward=block, sides=sides, streams=streams)
    if not chooses:
        return LayerKind(attention=replace(attention, indexer=None), feed_forward=block, sides=sides, streams=streams)
    return LayerKind(attention=attention, feed_forward=block, sides=(*sides, pooled), streams=streams)
