"""Llama and what grew from it: pre- or post-norm, rotary positions, gated or squared-ReLU blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.attention import Attention
from meshwright.domain.model import LayerKind, Mlp, Model, NormKind
from meshwright.readers.architectures.parts import (
    gated_mlp,
    grouped_attention,
    layer_pattern,
    reads,
    windows,
    with_windows,
)

if TYPE_CHECKING:
    from meshwright.readers.fields import Fields


def uniform(
    fields: Fields,
    *,
    hidden: int,
    attention: Attention,
    mlp: Mlp,
    widths: list[int | None],
    norms: int = 2,
    norm: NormKind = "rms",
    tied: bool = False,
    vocabulary: int | None = None,
) -> Model:
    """A model whose layers differ in their windows only."""
    layers = [LayerKind(attention=own, feed_forward=mlp, norms=norms) for own in with_windows(attention, widths)]
    kinds, pattern = layer_pattern(layers)
    return Model(
        name="",
        hidden=hidden,
        vocabulary=fields.size("vocab_size", default=vocabulary),
        kinds=kinds,
        pattern=pattern,
        norm=norm,
        tied_embeddings=fields.flag("tie_word_embeddings", default=tied),
        max_sequence=fields.optional_size("max_position_embeddings"),
    )


@reads("LlamaForCausalLM", "llama", "exaone", "InternLMForCausalLM", "InternLM2ForCausalLM", "internlm", "internlm2",
       "InternLM3ForCausalLM", "internlm3", "iquestcoder")
def llama(fields: Fields) -> Model:
    """Llama 1-3 and InternLM (whose ``bias`` is Llama's ``attention_bias``)."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    bias = fields.flag("attention_bias", default=fields.flag("bias", default=False))
    return uniform(
        fields,
        hidden=hidden,
        attention=grouped_attention(fields, hidden, bias=bias),
        mlp=gated_mlp(fields, bias=fields.flag("mlp_bias", default=False)),
        widths=[None] * layers,
    )


@reads("MistralForCausalLM", "mistral", "Phi3ForCausalLM", "phi3")
def mistral(fields: Fields) -> Model:
    """Mistral and Phi-3: one window for all layers, where there is one, and no bias."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    return uniform(
        fields,
        hidden=hidden,
        attention=grouped_attention(fields, hidden, bias=False),
        mlp=gated_mlp(fields),
        widths=windows(fields, layers, default=True),
    )


@reads("Qwen2ForCausalLM", "qwen2", "qwen2_vl_text", "qwen2_5_vl_text", "qwen2_5_omni_text")
def qwen2(fields: Fields) -> Model:
    """Qwen 1.5, 2 and 2.5: biases on queries, keys and values."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    return uniform(
        fields,
        hidden=hidden,
        attention=grouped_attention(fields, hidden, bias=True, output_bias=False),
        mlp=gated_mlp(fields),
        widths=qwen_windows(fields, layers),
    )


@reads("Qwen3ForCausalLM", "qwen3", "qwen3_vl_text")
def qwen3(fields: Fields) -> Model:
    """Qwen3: a norm on every query and key head."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    return uniform(
        fields,
        hidden=hidden,
        attention=grouped_attention(fields, hidden, query_key_norm="head", head_dim=128),
        mlp=gated_mlp(fields),
        widths=qwen_windows(fields, layers),
    )


def qwen_windows(fields: Fields, layers: int) -> list[int | None]:
    """Layers from ``max_window_layers`` on slide, where ``use_sliding_window`` says so."""
    if not fields.flag("use_sliding_window", default=False):
        return [None] * layers
    first = fields.size("max_window_layers", default=28, minimum=0)
    return windows(fields, layers, [index >= first for index in range(layers)], width=4096)


@reads("Olmo2ForCausalLM", "olmo2")
def olmo2(fields: Fields) -> Model:
    """OLMo 2: two norms behind the blocks, norms over all query and key heads."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    return uniform(
        fields,
        hidden=hidden,
        attention=grouped_attention(fields, hidden, query_key_norm="full"),
        mlp=gated_mlp(fields),
        widths=[None] * layers,
    )


@reads("GemmaForCausalLM", "gemma")
def gemma(fields: Fields) -> Model:
    """Gemma 1: wide heads, tied embeddings."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    return uniform(
        fields,
        hidden=hidden,
        attention=grouped_attention(fields, hidden, head_dim=256),
        mlp=gated_mlp(fields),
        widths=[None] * layers,
        tied=True,
    )


@reads("Gemma2ForCausalLM", "gemma2")
def gemma2(fields: Fields) -> Model:
    """Gemma 2: four norms, every other layer slides."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    return uniform(
        fields,
        hidden=hidden,
        attention=grouped_attention(fields, hidden, head_dim=256),
        mlp=gated_mlp(fields),
        widths=windows(fields, layers, [index % 2 == 0 for index in range(layers)], width=4096),
        norms=4,
        tied=True,
    )


@reads("Gemma3ForCausalLM", "gemma3_text")
def gemma3(fields: Fields) -> Model:
    """Gemma 3: five sliding layers to a full one, norms on query and key heads. Published files leave defaults out."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    period = fields.size("sliding_window_pattern", "_sliding_window_pattern", default=6)
    return uniform(
        fields,
        hidden=hidden,
        attention=grouped_attention(fields, hidden, query_key_norm="head", head_dim=256, heads=8, key_value_heads=4),
        mlp=gated_mlp(fields),
        widths=windows(fields, layers, [(index + 1) % period != 0 for index in range(layers)], width=4096),
        norms=4,
        tied=True,
        vocabulary=262208,
    )


@reads("NemotronForCausalLM", "nemotron")
def nemotron(fields: Fields) -> Model:
    """Nemotron 3 and 4: squared ReLU without a gate, layer norms with bias."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    bias = fields.flag("mlp_bias", default=False)
    return uniform(
        fields,
        hidden=hidden,
        attention=grouped_attention(fields, hidden),
        mlp=Mlp(width=fields.size("intermediate_size"), gated=False, bias=bias),
        widths=[None] * layers,
        norm="layer",
    )
