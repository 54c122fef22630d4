"""Models of the years of GPT-3: GPT, CTRL, GPT-J, CodeGen, GPT-Neo, StarCoder, BioGPT, XGLM, Phi, Persimmon, StableLM, OLMo,
Command R."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.attention import Attention
from meshwright.domain.model import LayerKind, Mlp, Model, Side
from meshwright.readers.architectures.dense import uniform
from meshwright.readers.architectures.older import full_attention, of_one_kind
from meshwright.readers.architectures.parts import (
    gated_mlp,
    grouped_attention,
    layer_pattern,
    reads,
    windows,
)
from meshwright.readers.architectures.stacks import stack_words

if TYPE_CHECKING:
    from meshwright.readers.fields import Fields


_SINES = Side(name="positions that are sines")
"""Added to the embedding, without weights; who builds a model without positions builds another."""


def _shape(fields: Fields) -> tuple[int, int]:
    """Hidden width and layers."""
    return fields.size("hidden_size", "n_embd"), fields.layers("num_hidden_layers", "n_layer")


def _plain(fields: Fields, hidden: int, *names: str) -> Mlp:
    """An ungated block with biases, four times as wide as the model where nothing else is said."""
    return Mlp(width=fields.size(*names, default=4 * hidden), gated=False, bias=True)


@reads("GPTJForCausalLM", "gptj", "CodeGenForCausalLM", "codegen")
def gptj(fields: Fields) -> Model:
    """GPT-J and CodeGen: both halves behind one norm, no biases in attention, one on the logits."""
    hidden, layers = _shape(fields)
    attention = full_attention(fields, hidden, fields.size("n_head", "num_attention_heads"), bias=False)
    kind = LayerKind(attention=attention, feed_forward=_plain(fields, hidden, "n_inner"), norms=1, parallel_block=True)
    model = of_one_kind(
        fields, hidden=hidden, layers=layers, kind=kind, norm="layer", position="rope", tied=False,
        max_sequence=fields.optional_size("n_positions"),
    )
    return replace(model, head_bias=True)


@reads("GPTNeoForCausalLM", "gpt_neo")
def gpt_neo(fields: Fields) -> Model:
    """GPT-Neo: every other layer sees a window; a bias behind attention alone."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_layers", "num_hidden_layers")
    attention = replace(
        full_attention(fields, hidden, fields.size("num_heads", "num_attention_heads"), bias=False), output_bias=True
    )
    words = stack_words(fields, "attention_layers", layers, {"global": "global", "local": "local"})
    local = [word == "local" for word in words or [("global", "local")[index % 2] for index in range(layers)]]
    window = replace(attention, window_tokens=fields.size("window_size", default=256))
    block = _plain(fields, hidden, "intermediate_size")
    kinds, pattern = layer_pattern([LayerKind(attention=window if each else attention, feed_forward=block) for each in local])
    positions = fields.size("max_position_embeddings")
    model = of_one_kind(
        fields, hidden=hidden, layers=layers, kind=kinds[0], norm="layer", position="learned", rows=positions,
        max_sequence=positions,
    )
    return replace(model, kinds=kinds, pattern=pattern)


@reads("GPTBigCodeForCausalLM", "gpt_bigcode")
def gpt_bigcode(fields: Fields) -> Model:
    """StarCoder and SantaCoder: GPT-2 with one key-value head."""
    hidden, layers = _shape(fields)
    attention = full_attention(fields, hidden, fields.size("n_head", "num_attention_heads"), bias=True)
    if fields.flag("multi_query", default=True):
        attention = replace(attention, num_key_value_heads=1)
    positions = fields.size("n_positions", "max_position_embeddings")
    return of_one_kind(
        fields, hidden=hidden, layers=layers, kind=LayerKind(attention=attention, feed_forward=_plain(fields, hidden, "n_inner")),
        norm="layer", position="learned", rows=positions, max_sequence=positions,
    )


@reads("OpenAIGPTLMHeadModel", "openai-gpt")
def gpt(fields: Fields) -> Model:
    """The first GPT: norms behind both halves, none behind the last layer."""
    hidden, layers = _shape(fields)
    attention = full_attention(fields, hidden, fields.size("n_head", "num_attention_heads"), bias=True)
    positions = fields.size("n_positions", "max_position_embeddings")
    return of_one_kind(
        fields, hidden=hidden, layers=layers, kind=LayerKind(attention=attention, feed_forward=_plain(fields, hidden, "n_inner")),
        norm="layer", position="learned", rows=positions, max_sequence=positions, final_norm=False,
    )


@reads("CTRLLMHeadModel", "ctrl")
def ctrl(fields: Fields) -> Model:
    """CTRL: positions that are sines, a bias on the logits."""
    hidden, layers = _shape(fields)
    attention = full_attention(fields, hidden, fields.size("n_head", "num_attention_heads"), bias=True)
    model = of_one_kind(
        fields, hidden=hidden, layers=layers, kind=LayerKind(attention=attention, feed_forward=_plain(fields, hidden, "dff")),
        norm="layer", position="none", max_sequence=fields.optional_size("n_positions"),
    )
    return replace(model, head_bias=True, front=(_SINES,))


@reads("BioGptForCausalLM", "biogpt")
def biogpt(fields: Fields) -> Model:
    """BioGPT: two rows more than positions."""
    hidden, layers = _shape(fields)
    positions = fields.size("max_position_embeddings")
    kind = LayerKind(
        attention=full_attention(fields, hidden, fields.size("num_attention_heads"), bias=True),
        feed_forward=_plain(fields, hidden, "intermediate_size"),
    )
    return of_one_kind(
        fields, hidden=hidden, layers=layers, kind=kind, norm="layer", position="learned", rows=positions + 2,
        max_sequence=positions,
    )


@reads("XGLMForCausalLM", "xglm")
def xglm(fields: Fields) -> Model:
    """XGLM: positions that are sines, without weights."""
    hidden, layers = fields.size("d_model", "hidden_size"), fields.layers("num_layers", "num_hidden_layers")
    kind = LayerKind(
        attention=full_attention(fields, hidden, fields.size("attention_heads", "num_attention_heads"), bias=True),
        feed_forward=_plain(fields, hidden, "ffn_dim"),
    )
    model = of_one_kind(
        fields, hidden=hidden, layers=layers, kind=kind, norm="layer", position="none",
        max_sequence=fields.optional_size("max_position_embeddings"),
    )
    return replace(model, front=(_SINES,))


@reads("GPTNeoXJapaneseForCausalLM", "gpt_neox_japanese")
def gpt_neox_japanese(fields: Fields) -> Model:
    """GPT-NeoX of Japanese: no biases but one behind the last attention."""
    hidden, layers = _shape(fields)
    attention = full_attention(fields, hidden, fields.size("num_attention_heads"), bias=False)
    block = Mlp(width=fields.size("intermediate_multiple_size", default=4) * hidden, gated=False)
    kind = LayerKind(attention=attention, feed_forward=block)
    kinds, pattern = layer_pattern(
        [kind] * (layers - 1) + [replace(kind, attention=replace(attention, output_bias=True))]
    )
    model = of_one_kind(
        fields, hidden=hidden, layers=layers, kind=kind, norm="layer", position="rope",
        max_sequence=fields.optional_size("max_position_embeddings"),
    )
    return replace(model, kinds=kinds, pattern=pattern)


@reads("PhiForCausalLM", "phi")
def phi(fields: Fields) -> Model:
    """Phi-1, 1.5 and 2: both halves behind one norm, biases everywhere, also on the logits."""
    hidden, layers = _shape(fields)
    normed = fields.flag("qk_layernorm", default=False)
    attention = grouped_attention(fields, hidden, bias=True, query_key_norm="head" if normed else "none")
    kind = LayerKind(
        attention=attention, feed_forward=_plain(fields, hidden, "intermediate_size"), norms=1, parallel_block=True
    )
    model = of_one_kind(
        fields, hidden=hidden, layers=layers, kind=kind, norm="layer", position="rope", tied=False,
        max_sequence=fields.optional_size("max_position_embeddings"),
    )
    return replace(model, head_bias=True)


@reads("PersimmonForCausalLM", "persimmon")
def persimmon(fields: Fields) -> Model:
    """Persimmon and the language model of Fuyu: squared ReLU, biases, layer norms also on heads."""
    hidden, layers = _shape(fields)
    heads = fields.size("num_attention_heads")
    normed = fields.flag("qk_layernorm", default=True)
    attention: Attention = replace(
        full_attention(fields, hidden, heads, bias=True), query_key_norm="head" if normed else "none"
    )
    return of_one_kind(
        fields, hidden=hidden, layers=layers, norm="layer", position="rope", tied=False,
        kind=LayerKind(attention=attention, feed_forward=_plain(fields, hidden, "intermediate_size")),
        max_sequence=fields.optional_size("max_position_embeddings"),
    )


@reads("Starcoder2ForCausalLM", "starcoder2")
def starcoder2(fields: Fields) -> Model:
    """StarCoder 2: biases, layer norms, grouped queries, one window for all layers where there is one."""
    hidden, layers = _shape(fields)
    bias = fields.flag("use_bias", default=True)
    return uniform(
        fields, hidden=hidden, attention=grouped_attention(fields, hidden, bias=bias),
        mlp=Mlp(width=fields.size("intermediate_size"), gated=False, bias=bias), widths=windows(fields, layers, default=True),
        norm="layer", tied=True,
    )


@reads("StableLmForCausalLM", "StableLMEpochForCausalLM", "stablelm", "stablelm_epoch")
def stablelm(fields: Fields) -> Model:
    """StableLM 2 and 3B: Llama with layer norms; the 12B has both halves behind one norm and a norm of its own for each head."""
    hidden, layers = _shape(fields)
    attention = grouped_attention(fields, hidden, bias=fields.flag("use_qkv_bias", default=False), output_bias=False)
    parallel = fields.flag("use_parallel_residual", default=False)
    sides: tuple[Side, ...] = ()
    if fields.flag("qk_layernorm", default=False):
        attention = replace(attention, query_key_norm="head", query_key_norm_weight=False)
        sides = (Side(name="norms of heads", weights=attention.query_width + attention.key_width),)
    kind = LayerKind(
        attention=attention, feed_forward=gated_mlp(fields), norms=1 if parallel else 2, parallel_block=parallel, sides=sides
    )
    return of_one_kind(
        fields, hidden=hidden, layers=layers, kind=kind, norm="layer", position="rope", tied=False,
        max_sequence=fields.optional_size("max_position_embeddings"),
    )


@reads("OlmoForCausalLM", "olmo")
def olmo(fields: Fields) -> Model:
    """OLMo 1: Llama whose norms have no weights."""
    hidden, layers = _shape(fields)
    return uniform(
        fields, hidden=hidden, attention=grouped_attention(fields, hidden), mlp=gated_mlp(fields), widths=[None] * layers,
        norm="none",
    )


@reads("CohereForCausalLM", "cohere")
def cohere(fields: Fields) -> Model:
    """Command R: both halves behind one norm without a bias; Command R+ also norms all heads."""
    hidden, layers = _shape(fields)
    normed = fields.flag("use_qk_norm", default=False)
    attention = grouped_attention(fields, hidden, query_key_norm="full" if normed else "none")
    model = uniform(
        fields, hidden=hidden, attention=attention, mlp=gated_mlp(fields), widths=[None] * layers, norm="layer-no-bias", tied=True
    )
    kind = LayerKind(attention=attention, feed_forward=model.feed_forward, norms=1, parallel_block=True)
    return replace(model, kinds=(kind,))
