"""Mixtures of experts on ordinary attention: Mixtral, Qwen, OLMoE, Phi, GPT-OSS, GLM, Llama 4."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.attention import Attention
from meshwright.domain.model import LayerKind, MixtureOfExperts, Mlp, Model, NormKind
from meshwright.readers.architectures.dense import qwen_windows
from meshwright.readers.architectures.parts import grouped_attention, layer_pattern, reads, windows, with_windows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.readers.fields import Fields


def mixture(
    fields: Fields,
    *,
    hidden: int,
    attentions: Sequence[Attention],
    blocks: Sequence[Mlp | MixtureOfExperts],
    norm: NormKind = "rms",
    head_bias: bool = False,
    mtp_layers: int = 0,
    tied: bool = False,
) -> Model:
    """A model from one attention and one block a layer."""
    layers = [LayerKind(attention=own, feed_forward=block) for own, block in zip(attentions, blocks, strict=True)]
    kinds, pattern = layer_pattern(layers)
    return Model(
        name="",
        hidden=hidden,
        vocabulary=fields.size("vocab_size"),
        kinds=kinds,
        pattern=pattern,
        norm=norm,
        head_bias=head_bias,
        num_mtp_layers=mtp_layers,
        tied_embeddings=fields.flag("tie_word_embeddings", default=tied),
        max_sequence=fields.optional_size("max_position_embeddings"),
    )


@reads("MixtralForCausalLM", "mixtral")
def mixtral(fields: Fields) -> Model:
    """Mixtral: every layer a mixture."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    experts = MixtureOfExperts(
        num_experts=fields.size("num_local_experts", "num_experts"),
        experts_per_token=fields.size("num_experts_per_tok", default=2),
        expert_width=fields.size("intermediate_size"),
    )
    attention = grouped_attention(fields, hidden, bias=False)
    return mixture(
        fields,
        hidden=hidden,
        attentions=with_windows(attention, windows(fields, layers, default=True)),
        blocks=[experts] * layers,
    )


@reads("PhimoeForCausalLM", "PhiMoEForCausalLM", "phimoe")
def phimoe(fields: Fields) -> Model:
    """Phi-3.5-MoE: Mixtral with layer norms, biases on attention and a biased head."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    experts = MixtureOfExperts(
        num_experts=fields.size("num_local_experts", "num_experts"),
        experts_per_token=fields.size("num_experts_per_tok", default=2),
        expert_width=fields.size("intermediate_size"),
    )
    return mixture(
        fields,
        hidden=hidden,
        attentions=with_windows(grouped_attention(fields, hidden), windows(fields, layers, default=True)),
        blocks=[experts] * layers,
        norm="layer",
        head_bias=fields.flag("lm_head_bias", default=False),
    )


@reads("Qwen2MoeForCausalLM", "qwen2_moe")
def qwen2_moe(fields: Fields) -> Model:
    """Qwen1.5-MoE and Qwen2-MoE: a gated shared expert, biases on queries, keys and values."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    attention = grouped_attention(fields, hidden, bias=fields.flag("qkv_bias", default=True), output_bias=False)
    experts = MixtureOfExperts(
        num_experts=fields.size("num_experts", "num_local_experts"),
        experts_per_token=fields.size("num_experts_per_tok"),
        expert_width=fields.size("moe_intermediate_size"),
        shared_width=fields.size("shared_expert_intermediate_size"),
        shared_gate=True,
    )
    return mixture(
        fields,
        hidden=hidden,
        attentions=with_windows(attention, qwen_windows(fields, layers)),
        blocks=sparse_blocks(fields, layers, experts),
    )


@reads("Qwen3MoeForCausalLM", "qwen3_moe", "qwen3_vl_moe_text", "qwen3_omni_moe_text")
def qwen3_moe(fields: Fields) -> Model:
    """Qwen3-MoE: norms on query and key heads, no shared expert."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    attention = grouped_attention(fields, hidden, query_key_norm="head")
    experts = MixtureOfExperts(
        num_experts=fields.size("num_experts", "num_local_experts"),
        experts_per_token=fields.size("num_experts_per_tok"),
        expert_width=fields.size("moe_intermediate_size"),
    )
    return mixture(
        fields,
        hidden=hidden,
        attentions=with_windows(attention, qwen_windows(fields, layers)),
        blocks=sparse_blocks(fields, layers, experts),
    )


def sparse_blocks(fields: Fields, layers: int, experts: MixtureOfExperts) -> list[Mlp | MixtureOfExperts]:
    """Qwen's rule: every ``decoder_sparse_step``-th layer is a mixture, ``mlp_only_layers`` excepted."""
    step = fields.size("decoder_sparse_step", default=1)
    dense_only = set(fields.numbers("mlp_only_layers"))
    sparse = [index not in dense_only and (index + 1) % step == 0 for index in range(layers)]
    dense = experts if all(sparse) else Mlp(width=fields.size("intermediate_size"))
    return [experts if is_sparse else dense for is_sparse in sparse]


@reads("OlmoeForCausalLM", "olmoe")
def olmoe(fields: Fields) -> Model:
    """OLMoE: norms over all query and key heads."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    experts = MixtureOfExperts(
        num_experts=fields.size("num_experts", "num_local_experts"),
        experts_per_token=fields.size("num_experts_per_tok"),
        expert_width=fields.size("intermediate_size"),
    )
    attention = grouped_attention(fields, hidden, query_key_norm="full")
    return mixture(fields, hidden=hidden, attentions=[attention] * layers, blocks=[experts] * layers)


@reads("GptOssForCausalLM", "gpt_oss")
def gpt_oss(fields: Fields) -> Model:
    """GPT-OSS: biases everywhere, sinks, every other layer slides."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    attention = grouped_attention(fields, hidden, bias=fields.flag("attention_bias", default=True), head_dim=64)
    experts = MixtureOfExperts(
        num_experts=fields.size("num_local_experts", "num_experts"),
        experts_per_token=fields.size("num_experts_per_tok", "experts_per_token"),
        expert_width=fields.size("intermediate_size"),
        router_bias=True,
        expert_bias=True,
    )
    widths = windows(fields, layers, [index % 2 == 0 for index in range(layers)], width=128)
    return mixture(
        fields,
        hidden=hidden,
        attentions=with_windows(replace(attention, sinks=True), widths),
        blocks=[experts] * layers,
    )


@reads("Glm4MoeForCausalLM", "glm4_moe", "glm4v_moe_text", "sarvam_moe")
def glm4_moe(fields: Fields) -> Model:
    """GLM-4.5: dense layers first, then DeepSeek-style routing on grouped-query attention."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    attention = grouped_attention(
        fields,
        hidden,
        bias=fields.flag("attention_bias", default=False),
        output_bias=False,
        query_key_norm="head" if fields.flag("use_qk_norm", default=False) else "none",
    )
    return mixture(
        fields,
        hidden=hidden,
        attentions=[attention] * layers,
        blocks=dense_first_blocks(fields, layers, correction_bias=True),
        mtp_layers=fields.count("num_nextn_predict_layers", "num_mtp_layers", default=0, minimum=0),
    )


def dense_first_blocks(
    fields: Fields, layers: int, *, correction_bias: bool, routed_scale: float = 1.0, first_dense: int = 0
) -> list[Mlp | MixtureOfExperts]:
    """DeepSeek's rule: ``first_k_dense_replace`` dense layers, then every ``moe_layer_freq``-th is a mixture; ``mlp_layer_types``
    wins where it stands there."""
    width = fields.size("moe_intermediate_size")
    experts = MixtureOfExperts(
        num_experts=fields.size("n_routed_experts", "num_local_experts"),
        experts_per_token=fields.size("num_experts_per_tok"),
        expert_width=width,
        shared_width=fields.size("n_shared_experts", default=0, minimum=0) * width,
        correction_bias=correction_bias,
        num_groups=fields.size("n_group", default=1),
        groups_per_token=fields.size("topk_group", default=1),
        routed_scale=fields.number("routed_scaling_factor", default=routed_scale),
    )
    types = fields.words("mlp_layer_types", layers, ("dense", "sparse"))
    first = fields.size("first_k_dense_replace", default=first_dense, minimum=0)
    step = fields.size("moe_layer_freq", default=1)
    sparse = [index >= first and index % step == 0 for index in range(layers)]
    sparse = sparse if types is None else [word == "sparse" for word in types]
    dense = experts if all(sparse) else Mlp(width=fields.size("intermediate_size"))
    return [experts if is_sparse else dense for is_sparse in sparse]


@reads("Llama4ForCausalLM", "llama4_text")
def llama4(fields: Fields) -> Model:
    """Llama 4's language part: chunked attention with rotary positions, full attention without, a shared expert."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    step = fields.size("interleave_moe_layer_step", default=1)
    listed = fields.numbers("moe_layers") or tuple(range(step - 1, layers, step))
    rotary = [bool(flag) for flag in fields.numbers("no_rope_layers")]
    if len(rotary) != layers:
        period = fields.size("no_rope_layer_interval", default=4)
        rotary = [(index + 1) % period != 0 for index in range(layers)]
    normed = fields.flag("use_qk_norm", default=True)
    plain = replace(grouped_attention(fields, hidden, head_dim=128), query_key_norm_weight=False)
    widths = windows(fields, layers, rotary, width=8192)
    attentions = [
        replace(own, query_key_norm="head" if normed and has_rotary else "none")
        for own, has_rotary in zip(with_windows(plain, widths), rotary, strict=True)
    ]
    width = fields.size("intermediate_size")
    experts = MixtureOfExperts(
        num_experts=fields.size("num_local_experts", "num_experts"),
        experts_per_token=fields.size("num_experts_per_tok", default=1),
        expert_width=width,
        shared_width=width,
    )
    sparse = set(listed)
    dense = experts if len(sparse) >= layers else Mlp(width=fields.size("intermediate_size_mlp"))
    blocks = [experts if index in sparse else dense for index in range(layers)]
    return mixture(fields, hidden=hidden, attentions=attentions, blocks=blocks)
