"""GPT-2 and its generation: layer norms, biases, learned or ALiBi positions, blocks in parallel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.attention import Attention
from meshwright.domain.model import LayerKind, Mlp, Model, NormKind, PositionEncoding
from meshwright.readers.architectures.parts import gated_mlp, head_width, reads

if TYPE_CHECKING:
    from meshwright.readers.fields import Fields


def of_one_kind(
    fields: Fields,
    *,
    hidden: int,
    layers: int,
    kind: LayerKind,
    norm: NormKind,
    position: PositionEncoding,
    rows: int = 0,
    tied: bool = True,
    max_sequence: int | None = None,
    embedding_norm: bool = False,
    final_norm: bool = True,
    embedding_width: int | None = None,
    vocabulary: int | None = None,
) -> Model:
    """A model whose layers are all alike, from its layer and what stands around them."""
    return Model(
        name="",
        hidden=hidden,
        vocabulary=fields.size("vocab_size") if vocabulary is None else vocabulary,
        kinds=(kind,),
        pattern=(0,) * layers,
        norm=norm,
        position=position,
        position_table=rows,
        tied_embeddings=fields.flag("tie_word_embeddings", default=tied),
        max_sequence=max_sequence,
        embedding_norm=embedding_norm,
        final_norm=final_norm,
        embedding_width=embedding_width,
    )


def full_attention(fields: Fields, hidden: int, heads: int, *, bias: bool) -> Attention:
    """Attention with as many key-value heads as heads."""
    return Attention(
        num_heads=heads,
        num_key_value_heads=heads,
        head_dim=head_width(fields, hidden, heads),
        query_bias=bias,
        key_value_bias=bias,
        output_bias=bias,
    )


@reads("GPT2LMHeadModel", "gpt2")
def gpt2(fields: Fields) -> Model:
    """GPT-2."""
    hidden = fields.size("n_embd", "hidden_size")
    positions = fields.size("n_positions", "max_position_embeddings")
    mlp = Mlp(width=fields.size("n_inner", default=4 * hidden), gated=False, bias=True)
    attention = full_attention(fields, hidden, fields.size("n_head", "num_attention_heads"), bias=True)
    return of_one_kind(
        fields,
        hidden=hidden,
        layers=fields.layers("n_layer", "num_hidden_layers"),
        kind=LayerKind(attention=attention, feed_forward=mlp),
        norm="layer",
        position="learned",
        rows=positions,
        max_sequence=positions,
    )


@reads("GPTNeoXForCausalLM", "gpt_neox")
def gpt_neox(fields: Fields) -> Model:
    """GPT-NeoX and Pythia: attention and block in parallel, each behind its own norm."""
    hidden = fields.size("hidden_size")
    bias = fields.flag("attention_bias", default=True)
    attention = full_attention(fields, hidden, fields.size("num_attention_heads"), bias=bias)
    mlp = Mlp(width=fields.size("intermediate_size"), gated=False, bias=True)
    parallel = fields.flag("use_parallel_residual", default=True)
    return of_one_kind(
        fields,
        hidden=hidden,
        layers=fields.layers("num_hidden_layers"),
        kind=LayerKind(attention=attention, feed_forward=mlp, parallel_block=parallel),
        norm="layer",
        position="rope",
        tied=False,
        max_sequence=fields.optional_size("max_position_embeddings"),
    )


@reads("BloomForCausalLM", "bloom")
def bloom(fields: Fields) -> Model:
    """BLOOM: ALiBi and a norm behind the embedding."""
    hidden = fields.size("hidden_size", "n_embed")
    attention = full_attention(fields, hidden, fields.size("n_head", "num_attention_heads"), bias=True)
    return of_one_kind(
        fields,
        hidden=hidden,
        layers=fields.layers("n_layer", "num_hidden_layers"),
        kind=LayerKind(attention=attention, feed_forward=Mlp(width=4 * hidden, gated=False, bias=True)),
        norm="layer",
        position="alibi",
        max_sequence=fields.optional_size("seq_length"),
        embedding_norm=True,
    )


@reads("OPTForCausalLM", "opt")
def opt(fields: Fields) -> Model:
    """OPT: two rows more than positions; the model of 350 M is post-norm with a narrow embedding."""
    hidden = fields.size("hidden_size")
    bias = fields.flag("enable_bias", default=True)
    positions = fields.size("max_position_embeddings")
    attention = full_attention(fields, hidden, fields.size("num_attention_heads"), bias=bias)
    width = fields.size("word_embed_proj_dim", default=hidden)
    before = fields.flag("do_layer_norm_before", default=True)
    return of_one_kind(
        fields,
        hidden=hidden,
        layers=fields.layers("num_hidden_layers"),
        kind=LayerKind(attention=attention, feed_forward=Mlp(width=fields.size("ffn_dim"), gated=False, bias=bias)),
        norm="layer" if fields.flag("layer_norm_elementwise_affine", default=True) else "none",
        position="learned",
        rows=positions + 2,
        max_sequence=positions,
        final_norm=before and not fields.flag("_remove_final_layer_norm", default=False),
        embedding_width=None if width == hidden else width,
    )


@reads("MptForCausalLM", "MPTForCausalLM", "mpt")
def mpt(fields: Fields) -> Model:
    """MPT: no biases and ALiBi as released; llm-foundry also trains it with both and with learned positions."""
    hidden = fields.size("d_model", "hidden_size")
    bias = not fields.flag("no_bias", default=True)
    alibi = fields.inner("attn_config").flag("alibi", default=True)
    learned = not alibi and fields.flag("learned_pos_emb", default=True)
    positions = fields.size("max_seq_len", default=2048)
    attention = full_attention(fields, hidden, fields.size("n_heads", "num_attention_heads"), bias=bias)
    mlp = Mlp(width=fields.size("expansion_ratio", default=4) * hidden, gated=False, bias=bias)
    return of_one_kind(
        fields,
        hidden=hidden,
        layers=fields.layers("n_layers", "num_hidden_layers"),
        kind=LayerKind(attention=attention, feed_forward=mlp),
        norm="layer" if bias else "layer-no-bias",
        position="alibi" if alibi else "learned" if learned else "none",
        rows=positions if learned else 0,
        max_sequence=positions,
    )


@reads("FalconForCausalLM", "RWForCausalLM", "falcon", "RefinedWeb", "RefinedWebModel")
def falcon(fields: Fields) -> Model:
    """Falcon: attention and block in parallel; the larger models have a norm for each and grouped queries."""
    hidden = fields.size("hidden_size")
    heads = fields.size("num_attention_heads", "n_head")
    new = fields.flag("new_decoder_architecture", default=False)
    if new:
        key_value_heads = fields.size("num_kv_heads", "n_head_kv", default=heads)
    else:
        key_value_heads = 1 if fields.flag("multi_query", default=True) else heads
    bias = fields.flag("bias", default=False)
    parallel = new or fields.flag("parallel_attn", default=True)
    norms = fields.size("num_ln_in_parallel_attn", default=2 if new else 1) if parallel else 2
    attention = Attention(
        num_heads=heads,
        num_key_value_heads=key_value_heads,
        head_dim=head_width(fields, hidden, heads),
        query_bias=bias,
        key_value_bias=bias,
        output_bias=bias,
    )
    mlp = Mlp(width=fields.size("ffn_hidden_size", default=4 * hidden), gated=False, bias=bias)
    return of_one_kind(
        fields,
        hidden=hidden,
        layers=fields.layers("num_hidden_layers", "n_layer"),
        kind=LayerKind(attention=attention, feed_forward=mlp, norms=norms, parallel_block=parallel),
        norm="layer",
        position="alibi" if fields.flag("alibi", default=False) else "rope",
        max_sequence=fields.optional_size("max_position_embeddings"),
    )


@reads("ChatGLMModel", "ChatGLMForConditionalGeneration", "chatglm")
def chatglm(fields: Fields) -> Model:
    """ChatGLM 2 and 3, GLM-4-9B."""
    hidden, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    bias = fields.flag("add_qkv_bias", default=False)
    grouped = fields.flag("multi_query_attention", default=False)
    attention = Attention(
        num_heads=heads,
        num_key_value_heads=fields.size("multi_query_group_num") if grouped else heads,
        head_dim=fields.size("kv_channels", default=head_width(fields, hidden, heads)),
        query_bias=bias,
        key_value_bias=bias,
    )
    return of_one_kind(
        fields,
        hidden=hidden,
        layers=fields.layers("num_layers"),
        kind=LayerKind(attention=attention, feed_forward=gated_mlp(fields, name="ffn_hidden_size")),
        norm="rms" if fields.flag("rmsnorm", default=True) else "layer",
        position="rope",
        tied=False,
        max_sequence=fields.optional_size("seq_length"),
        vocabulary=fields.size("padded_vocab_size", "vocab_size"),
    )
