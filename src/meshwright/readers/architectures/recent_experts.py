"""Mixtures of 2025 and 2026 on softmax attention: ERNIE 4.5, Hunyuan, MiniMax M2, Ling 2, dots.llm1, Solar Open, Step 3.5."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.attention import Attention
from meshwright.domain.model import MixtureOfExperts, Mlp, Model
from meshwright.readers.architectures.experts import dense_first_blocks, mixture
from meshwright.readers.architectures.parts import grouped_attention, reads, windows, with_windows
from meshwright.text import shown

if TYPE_CHECKING:
    from meshwright.readers.fields import Fields


@reads("Ernie4_5_MoeForCausalLM", "ernie4_5_moe", "Ernie4_5_MoEForCausalLM")
def ernie_moe(fields: Fields) -> Model:
    """ERNIE 4.5: every ``moe_layer_interval``-th layer between two indices is a mixture, and the others are dense."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    width = fields.size("moe_intermediate_size", default=1536)
    experts = MixtureOfExperts(
        num_experts=fields.size("moe_num_experts", default=64),
        experts_per_token=fields.size("moe_k", default=6),
        expert_width=width,
        shared_width=width * fields.size("moe_num_shared_experts", default=2, minimum=0),
        correction_bias=True,
    )
    first = fields.size("moe_layer_start_index", default=1, minimum=0)
    last = layers - 1
    if fields.number("moe_layer_end_index", default=-1.0) >= 0:
        last = fields.size("moe_layer_end_index", minimum=0)
    step = fields.size("moe_layer_interval", default=1)
    sparse = [first <= index <= last and (index + 1) % step == 0 for index in range(layers)]
    bias = fields.flag("use_bias", default=False)
    dense = experts if all(sparse) else Mlp(width=fields.size("intermediate_size"), bias=bias)
    return mixture(
        fields,
        hidden=hidden,
        attentions=[grouped_attention(fields, hidden, bias=bias)] * layers,
        blocks=[experts if is_sparse else dense for is_sparse in sparse],
        mtp_layers=fields.count("num_nextn_predict_layers", default=0, minimum=0),
        tied=True,
    )


@reads("HunYuanMoEV1ForCausalLM", "hunyuan_v1_moe")
def hunyuan_moe(fields: Fields) -> Model:
    """Hunyuan A13B: one shared expert as wide as a routed one. Published files list figures layer by layer."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    width = fields.same("moe_intermediate_size") or fields.size("intermediate_size")
    shared = fields.same("num_shared_expert") or 1
    experts = MixtureOfExperts(
        num_experts=fields.size("num_experts"),
        experts_per_token=fields.same("moe_topk") or 1,
        expert_width=width,
        shared_width=width * shared,
    )
    head_dim = fields.optional_size("attention_head_dim")
    attention = grouped_attention(fields, hidden, query_key_norm="head", head_dim=head_dim)
    return mixture(fields, hidden=hidden, attentions=[attention] * layers, blocks=[experts] * layers)


@reads("HYV3ForCausalLM", "hy_v3")
def hunyuan3(fields: Fields) -> Model:
    """Hunyuan 3: ``mlp_layer_types`` or ``first_k_dense_replace`` say which layers are dense, by default the first."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    width = fields.size("moe_intermediate_size", "expert_hidden_dim", default=1536)
    experts = MixtureOfExperts(
        num_experts=fields.size("num_experts", default=192),
        experts_per_token=fields.size("num_experts_per_tok", default=8),
        expert_width=width,
        shared_width=width * fields.size("num_shared_experts", default=1, minimum=0),
        correction_bias=True,
        routed_scale=fields.number("router_scaling_factor", default=2.826),
    )
    types = fields.words("mlp_layer_types", layers, ("dense", "sparse"))
    first = fields.size("first_k_dense_replace", default=1, minimum=0)
    sparse = [index >= first for index in range(layers)] if types is None else [word == "sparse" for word in types]
    dense = experts if all(sparse) else Mlp(width=fields.size("intermediate_size"), bias=fields.flag("mlp_bias", default=False))
    return mixture(
        fields,
        hidden=hidden,
        attentions=[grouped_attention(fields, hidden, query_key_norm="head", head_dim=128)] * layers,
        blocks=[experts if is_sparse else dense for is_sparse in sparse],
    )


@reads("MiniMaxM2ForCausalLM", "minimax_m2", "MiniMaxM2")
def minimax_m2(fields: Fields) -> Model:
    """MiniMax M2: a mixture in every layer, norms over all query and key heads."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    experts = MixtureOfExperts(
        num_experts=fields.size("num_local_experts", "num_experts"),
        experts_per_token=fields.size("num_experts_per_tok"),
        expert_width=fields.size("intermediate_size"),
        correction_bias=True,
    )
    attention = grouped_attention(fields, hidden, bias=False, query_key_norm="full", head_dim=128)
    return mixture(fields, hidden=hidden, attentions=[attention] * layers, blocks=[experts] * layers)


@reads("BailingMoeV2ForCausalLM", "bailing_moe_v2", "bailing_moe")
def ling2(fields: Fields) -> Model:
    """Ling 2 and Ring 2: DeepSeek's routing on grouped-query attention with norms on its heads."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    bias = fields.flag("use_qkv_bias", default=False)
    normed = fields.flag("use_qk_norm", default=True)
    attention = grouped_attention(
        fields, hidden, bias=bias, output_bias=fields.flag("use_bias", default=False), query_key_norm="head" if normed else "none"
    )
    width = fields.size("moe_intermediate_size")
    experts = MixtureOfExperts(
        num_experts=fields.size("num_experts"),
        experts_per_token=fields.size("num_experts_per_tok"),
        expert_width=width,
        shared_width=width * fields.size("num_shared_experts", default=0, minimum=0),
        correction_bias=fields.flag("moe_router_enable_expert_bias", default=False),
        num_groups=fields.size("n_group", default=1),
        groups_per_token=fields.size("topk_group", default=1),
        routed_scale=fields.number("routed_scaling_factor", default=1.0),
    )
    first = fields.size("first_k_dense_replace", default=0, minimum=0)
    dense = experts if first == 0 else Mlp(width=fields.size("intermediate_size"))
    return mixture(
        fields,
        hidden=hidden,
        attentions=[attention] * layers,
        blocks=[dense if index < first else experts for index in range(layers)],
        mtp_layers=fields.count("num_nextn_predict_layers", "num_mtp_layers", default=0, minimum=0),
    )


@reads("Dots1ForCausalLM", "dots1")
def dots1(fields: Fields) -> Model:
    """dots.llm1: DeepSeek's routing on multi-head attention with norms on its heads."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    attention = grouped_attention(fields, hidden, query_key_norm="head")
    types = fields.words("layer_types", layers, ("full_attention", "sliding_attention"))
    widths = [None] * layers if types is None else windows(fields, layers, default=False)
    return mixture(
        fields,
        hidden=hidden,
        attentions=with_windows(attention, widths),
        blocks=dense_first_blocks(fields, layers, correction_bias=True),
    )


@reads("SolarOpenForCausalLM", "solar_open")
def solar_open(fields: Fields) -> Model:
    """Solar Open: DeepSeek's routing in every layer, heads of 128."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    return mixture(
        fields,
        hidden=hidden,
        attentions=[grouped_attention(fields, hidden, head_dim=128)] * layers,
        blocks=dense_first_blocks(fields, layers, correction_bias=True),
    )


@reads("Step3p5ForCausalLM", "step3p5")
def step3(fields: Fields) -> Model:
    """Step 3.5: windows with heads of their own, a gate on each head; lists of its files go on behind the last layer."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    other, mtp = fields.inner("attention_other_setting"), fields.count("num_nextn_predict_layers", default=0, minimum=0)
    own_keys = not fields.has("num_attention_groups")  # those of the class of transformers, which always has the gate
    full = Attention(
        num_heads=fields.size("num_attention_heads"),
        num_key_value_heads=fields.size("num_attention_groups", "num_key_value_heads"),
        head_dim=fields.size("head_dim", default=128),
        gate="head" if fields.flag("use_head_wise_attn_gate", default=own_keys) else "none",
        query_key_norm="head" if fields.flag("use_qk_norm", default=True) else "none",
    )
    window = replace(
        full, num_heads=other.size(
            "num_attention_heads", default=fields.size("num_sliding_attention_heads", default=full.num_heads)
        ),
        num_key_value_heads=other.size("num_attention_groups", default=full.num_key_value_heads),
        head_dim=other.size("head_dim", default=full.head_dim), window_tokens=fields.optional_size("sliding_window"),
    )
    listed = fields.data.get("layer_types")
    types = fields.words("layer_types", layers + (mtp if isinstance(listed, list) and len(listed) != layers else 0),
                         ("full_attention", "sliding_attention"))
    windowed = [word == "sliding_attention" for word in types][:layers] if types else [False] * layers
    experts = MixtureOfExperts(
        num_experts=fields.size("moe_num_experts", "n_routed_experts"),
        experts_per_token=fields.size("moe_top_k", "num_experts_per_tok"),
        expert_width=fields.size("moe_intermediate_size"), shared_width=fields.size("share_expert_dim", default=0, minimum=0),
        correction_bias=fields.flag("use_moe_router_bias", default=True),
        routed_scale=fields.number("moe_router_scaling_factor", default=1.0),
    )
    words = fields.words("mlp_layer_types", layers, ("dense", "sparse"))
    sparse = _numbered(fields, "moe_layers_enum") or frozenset(
        index for index, word in enumerate(words or ()) if word == "sparse"
    )
    dense = Mlp(width=fields.size("intermediate_size"))
    return mixture(
        fields, hidden=hidden, attentions=[window if is_window else full for is_window in windowed],
        blocks=[experts if not sparse or index in sparse else dense for index in range(layers)], mtp_layers=mtp,
    )


def _numbered(fields: Fields, name: str) -> frozenset[int]:
    """Numbers of layers, as a list or as text with commas between them; absent: none."""
    text = fields.data.get(name)
    if not isinstance(text, str):
        return frozenset(fields.numbers(name))
    parts = text.split(",")
    if not all(part.strip().isdecimal() and len(part) < 6 for part in parts):
        fields.fault(name, "config.numbers", "{value} is not a list of whole numbers", value=shown(text))
        return frozenset()
    return frozenset(map(int, parts))
