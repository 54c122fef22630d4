"""Models that came to transformers late in 2026: A.X K1, Kolibri, Flint, Laguna, Trinity (AFMoE), Mellum, LFM3, Qwen4-Exp."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.attention import Attention, Indexer
from meshwright.domain.mixers import ShortConvolution
from meshwright.domain.model import LayerKind, Lookup, MixtureOfExperts, Mlp, Model, Side
from meshwright.readers.architectures.experts import dense_first_blocks, mixture
from meshwright.readers.architectures.hybrids import gated_delta, latent_without_rank
from meshwright.readers.architectures.parts import gated_mlp, grouped_attention, reads, windows, with_windows
from meshwright.readers.architectures.stacks import mtp_count, of_layers, stack_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.readers.fields import Fields

_MOST_TABLES = 4096
"""Heads of n-grams of all layers together, each with a table of its own."""
_INDEXED, _LINEAR, _FULL, _SLIDING, _CONVOLUTION = "indexed", "linear", "full", "sliding", "conv"


def _experts(fields: Fields, *, shared: int, correction_bias: bool, shared_gate: bool = False) -> MixtureOfExperts:
    """The usual keys of a mixture beside shared experts of a width."""
    return MixtureOfExperts(
        num_experts=fields.size("num_experts", "num_local_experts"), experts_per_token=fields.size("num_experts_per_tok"),
        expert_width=fields.size("moe_intermediate_size"), shared_width=shared, correction_bias=correction_bias,
        shared_gate=shared_gate, routed_scale=fields.number("moe_routed_scaling_factor", "route_scale", default=1.0),
    )


def _normed_twice(model: Model) -> Model:
    """Norms in front of and behind both halves of every layer."""
    return replace(model, kinds=tuple(replace(kind, norms=4) for kind in model.kinds))


def _dense_where(
    fields: Fields, layers: int, dense: Sequence[bool], experts: MixtureOfExperts
) -> list[Mlp | MixtureOfExperts]:
    """One block for each layer; ``mlp_layer_types`` wins where it stands there."""
    types = fields.words("mlp_layer_types", layers, ("dense", "sparse"))
    flags = [word == "dense" for word in types] if types else list(dense)
    narrow = gated_mlp(fields) if any(flags) else experts
    return [narrow if flag else experts for flag in flags]


@reads("AXK1ForCausalLM", "axk1")
def axk1(fields: Fields) -> Model:
    """A.X K1: DeepSeek-V3 with a norm behind each mixture."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    model = mixture(
        fields, hidden=hidden, attentions=[latent_without_rank(fields)] * layers,
        blocks=dense_first_blocks(fields, layers, correction_bias=True, routed_scale=2.5, first_dense=1),
    )
    return replace(model, kinds=tuple(replace(kind, norms=3) if kind.experts else kind for kind in model.kinds))


@reads("Kolibri1ForCausalLM", "kolibri1")
def kolibri(fields: Fields) -> Model:
    """Kolibri: windows but in every fifth layer, norms on heads and behind both halves, a shared expert."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    experts = _experts(fields, shared=fields.size("shared_expert_intermediate_size", default=512, minimum=0), correction_bias=True)
    attention = grouped_attention(fields, hidden, bias=False, query_key_norm="head", head_dim=128)
    widths = windows(fields, layers, [(index + 1) % 5 != 0 for index in range(layers)])
    return _normed_twice(mixture(fields, hidden=hidden, attentions=with_windows(attention, widths), blocks=[experts] * layers))


@reads("FlintForCausalLM", "flint")
def flint(fields: Fields) -> Model:
    """Flint: sinks everywhere, windows in three of four layers, two dense layers, a shared expert."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    shared = fields.size("shared_expert_intermediate_size", default=1024, minimum=0)
    experts = _experts(fields, shared=shared, correction_bias=False)
    attention = replace(grouped_attention(fields, hidden, query_key_norm="head", head_dim=128, output_bias=None), sinks=True)
    slides = [index >= 2 and index % 4 != 1 and index < layers - 1 for index in range(layers)]
    listed = fields.numbers("mlp_only_layers") if fields.has("mlp_only_layers") else (0, 1)
    return mixture(
        fields, hidden=hidden, attentions=with_windows(attention, windows(fields, layers, slides)),
        blocks=_dense_where(fields, layers, [index in listed for index in range(layers)], experts),
    )


@reads("LagunaForCausalLM", "laguna")
def laguna(fields: Fields) -> Model:
    """Laguna: a gate on each head or element, as many heads as a layer says, one dense layer, a shared expert."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    shared = fields.size("shared_expert_intermediate_size", default=512, minimum=0)
    attention = grouped_attention(fields, hidden, query_key_norm="head", head_dim=128)
    attention = replace(attention, gate="full" if fields.data.get("gating") == "per-element" else "head")
    heads = [int(each) for each in fields.numbers("num_attention_heads_per_layer")] or [attention.num_heads] * layers
    if len(heads) != layers:
        fields.fault("num_attention_heads_per_layer", "config.length", "has {length} entries for {count} layers",
                     length=len(heads), count=layers)
        heads = [attention.num_heads] * layers
    each = with_windows(attention, windows(fields, layers, default=False))
    return mixture(
        fields, hidden=hidden,
        attentions=[replace(own, num_heads=max(1, count)) for own, count in zip(each, heads, strict=True)],
        blocks=_dense_where(fields, layers, [index < 1 for index in range(layers)],
                            _experts(fields, shared=shared, correction_bias=True)),
    )


@reads("AfmoeForCausalLM", "afmoe")
def afmoe(fields: Fields) -> Model:
    """AFMoE (Trinity): gated attention with windows but in every fourth layer, norms behind both halves, first layers dense."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    width = fields.size("moe_intermediate_size")
    experts = _experts(fields, shared=width * fields.size("num_shared_experts", default=2, minimum=0), correction_bias=True)
    attention = replace(grouped_attention(fields, hidden, query_key_norm="head", head_dim=128), gate="full")
    step = fields.size("global_attn_every_n_layers", default=4)
    first = fields.size("num_dense_layers", default=1, minimum=0)
    model = mixture(
        fields, hidden=hidden,
        attentions=with_windows(attention, windows(fields, layers, [(index + 1) % step != 0 for index in range(layers)])),
        blocks=_dense_where(fields, layers, [index < first for index in range(layers)], experts),
    )
    return _normed_twice(model)


@reads("MellumForCausalLM", "mellum")
def mellum(fields: Fields) -> Model:
    """Mellum: Qwen3's mixtures, with windows and dense layers where its lists say so."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    attention = grouped_attention(fields, hidden, query_key_norm="head", head_dim=128)
    return mixture(
        fields, hidden=hidden, attentions=with_windows(attention, windows(fields, layers, default=False)),
        blocks=_dense_where(fields, layers, [False] * layers, _experts(fields, shared=0, correction_bias=False)),
        mtp_layers=mtp_count(fields),
    )


@reads("Lfm3ForCausalLM", "lfm3")
def lfm3(fields: Fields) -> Model:
    """LFM3: short convolutions between windows and full attention with a gate on each head, norms around both halves."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    words = stack_words(fields, "layer_types", layers, {
        "conv": _CONVOLUTION, "full_attention": _FULL, "sliding_attention": _SLIDING,
    }) or [_FULL if index % 4 == 2 else _SLIDING if index % 4 == 0 and index else _CONVOLUTION for index in range(layers)]
    attention = replace(
        grouped_attention(fields, hidden, query_key_norm="head", head_dim=128),
        gate="head" if fields.flag("use_attention_gate", default=True) else "none",
    )
    window = replace(attention, window_tokens=fields.size("sliding_window", default=256))
    mixer = ShortConvolution(
        width=hidden, convolution=fields.size("conv_L_cache", "conv_kernel_size", default=7),
        bias=fields.flag("conv_bias", default=False),
    )
    norms = 4 if fields.flag("use_sandwich_norm", default=True) else 2
    block = gated_mlp(fields)
    stack = [
        LayerKind(mixer=mixer, feed_forward=block, norms=norms) if word == _CONVOLUTION
        else LayerKind(attention=window if word == _SLIDING else attention, feed_forward=block, norms=norms) for word in words
    ]
    return of_layers(fields, stack, hidden=hidden, tied=True)


@reads("Qwen4ExpForCausalLM", "qwen4_exp_text")
def qwen4_exp(fields: Fields) -> Model:
    """Qwen4-Exp: gated delta nets and gated attention over chosen blocks, residual streams that low ranks mix, tables of hashed
    n-grams in some layers."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    interval = fields.size("full_attention_interval", default=4)
    words = stack_words(fields, "layer_types", layers, {
        "linear_attention": _LINEAR, "indexed_attention": _INDEXED, "full_attention": _INDEXED,
    }) or [_LINEAR if (index + 1) % interval else _INDEXED for index in range(layers)]
    attention = _chosen_blocks(fields, hidden)
    experts = _experts(
        fields, shared=fields.size("shared_expert_intermediate_size", default=512, minimum=0), correction_bias=False,
        shared_gate=True,
    )
    streams, rank = fields.size("hc_count", default=4), fields.size("hc_lowrank", default=320)
    wide = streams * hidden
    sides = (Side(name="hyper-connection", inputs=wide, outputs=2 * rank + streams, weights=wide),) * 2
    listed = sorted({int(each) for each in fields.numbers("ple_layer_ids")})
    width = fields.size("ple_embed_dim", default=hidden)
    grams = Side(
        name="n-grams", inputs=width, outputs=wide + hidden,
        weights=wide * (3 + fields.size("ple_conv_kernel_size", default=4)),
    )
    mixer = gated_delta(fields)
    stack = [
        LayerKind(
            attention=attention if word == _INDEXED else None, mixer=None if word == _INDEXED else mixer, feed_forward=experts,
            norms=0, streams=streams, sides=(*sides, *[grams] * (index + 1 in listed)),
        )
        for index, word in enumerate(words)
    ]
    model = of_layers(fields, stack, hidden=hidden, mtp_layers=mtp_count(fields))
    head = Side(name="joined streams", inputs=wide, outputs=2 * rank, weights=wide)
    return replace(model, final_norm=False, back=(head,), lookups=_tables(fields, listed, width))


def _chosen_blocks(fields: Fields, hidden: int) -> Attention:
    """Gated attention to the tokens of blocks that an indexer chooses, by one averaged key a block."""
    attention = replace(grouped_attention(fields, hidden, query_key_norm="head", head_dim=256), gate="full")
    return replace(
        attention, selected_tokens=fields.size("indexer_budget"),
        indexer=Indexer(num_heads=fields.size("indexer_n_heads"), head_dim=fields.size("indexer_head_dim"), weighs_heads=False),
    )


def _tables(fields: Fields, listed: Sequence[int], width: int) -> tuple[Lookup, ...]:
    """The table of n-grams of each layer that has one: as many rows as the primes of its heads, one prime after another."""
    heads = (fields.size("ngram_size", default=3, minimum=2) - 1) * fields.size("heads_per_ngram", default=8)
    base = fields.size("ngram_vocab_size_base", default=20_000_000)
    step = fields.size("make_ngram_vocab_size_divisible_by", default=128)
    if not listed:
        return ()
    layers = fields.layers("num_hidden_layers")
    if not 1 <= listed[0] <= listed[-1] <= layers:
        fields.fault("ple_layer_ids", "config.layer-numbers", "{listed} are not all of the layers 1 to {layers}",
                     listed=", ".join(map(str, listed[:8])), layers=layers)
        return ()
    if width % heads or heads * len(listed) > _MOST_TABLES:
        fields.fault("ple_embed_dim", "config.ngrams", "{width} is not split over {heads} heads of n-grams, or there are too many",
                     width=width, heads=heads)
        return ()
    primes = primes_from(base, heads * len(listed))
    rows = [sum(primes[place * heads : (place + 1) * heads]) for place in range(len(listed))]
    return tuple(
        Lookup(name=f"n-grams of layer {layer}", rows=-(-count // step) * step, width=width // heads)
        for layer, count in zip(listed, rows, strict=True)
    )


def primes_from(base: int, count: int) -> list[int]:
    """The first primes that are not below a number.

    >>> primes_from(20, 3)
    [23, 29, 31]
    """
    found: list[int] = []
    number = max(2, base)
    while len(found) < count:
        if all(number % divisor for divisor in range(2, int(number**0.5) + 1)):
            found.append(number)
        number += 1
    return found
