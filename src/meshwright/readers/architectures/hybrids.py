"""Hybrids: layers of linear mixers between layers of attention (Qwen3-Next, Nemotron-H, Kimi Linear, MiniMax-01, Jamba, ...)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.attention import Attention, LatentAttention
from meshwright.domain.mixers import GatedDelta, KimiDelta, Lightning, Mamba, Mamba2, ShortConvolution
from meshwright.domain.model import LayerKind, MixtureOfExperts, Mlp, Model
from meshwright.readers.architectures.experts import sparse_blocks
from meshwright.readers.architectures.parts import gated_mlp, grouped_attention, reads
from meshwright.readers.architectures.stacks import (
    ATTENTION,
    DENSE,
    EXPERTS,
    KINDS,
    LETTERS,
    LINEAR,
    mtp_count,
    of_layers,
    stack_words,
)

if TYPE_CHECKING:
    from meshwright.domain.mixers import Mixer
    from meshwright.readers.fields import Fields


def _mixed(words: list[str], attention: Attention, mixer: Mixer, blocks: list[Mlp | MixtureOfExperts]) -> list[LayerKind]:
    """One layer for each word: attention or the mixer, and its block behind."""
    return [
        LayerKind(attention=attention, feed_forward=block) if word == ATTENTION else LayerKind(mixer=mixer, feed_forward=block)
        for word, block in zip(words, blocks, strict=True)
    ]


def _types(fields: Fields, layers: int, period: int = 0) -> list[str]:
    """What mixes tokens in each layer: listed, or attention in every ``period``-th."""
    interval = fields.size("full_attention_interval", default=period or 1)
    usual = [ATTENTION if (index + 1) % interval == 0 else LINEAR for index in range(layers)]
    allowed = {word: kind for word, kind in KINDS.items() if kind in (ATTENTION, LINEAR)}
    name = "layer_types" if fields.has("layer_types") or not fields.has("layers_block_type") else "layers_block_type"
    return stack_words(fields, name, layers, allowed) or usual


def gated_delta(fields: Fields) -> GatedDelta:
    """A gated delta net from ``linear_*`` keys."""
    return GatedDelta(
        key_heads=fields.size("linear_num_key_heads", default=16), value_heads=fields.size("linear_num_value_heads", default=32),
        key_dim=fields.size("linear_key_head_dim", default=128), value_dim=fields.size("linear_value_head_dim", default=128),
        convolution=fields.size("linear_conv_kernel_dim", default=4),
    )


@reads("Qwen3NextForCausalLM", "qwen3_next", "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text")
def qwen3_next(fields: Fields) -> Model:
    """Qwen3-Next and the mixtures of Qwen3.5 and 3.6: three gated delta nets, then gated attention."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    width = fields.size("moe_intermediate_size", default=512)
    experts = MixtureOfExperts(
        num_experts=fields.size("num_experts", "num_local_experts"), experts_per_token=fields.size("num_experts_per_tok"),
        expert_width=width, shared_width=fields.size("shared_expert_intermediate_size", default=width), shared_gate=True,
    )
    return _qwen(fields, hidden, layers, sparse_blocks(fields, layers, experts))


@reads("Qwen3_5ForCausalLM", "qwen3_5_text")
def qwen3_5(fields: Fields) -> Model:
    """Dense models of Qwen3.5 and 3.6."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    return _qwen(fields, hidden, layers, [gated_mlp(fields)] * layers)


def _qwen(fields: Fields, hidden: int, layers: int, blocks: list[Mlp | MixtureOfExperts]) -> Model:
    attention = replace(grouped_attention(fields, hidden, query_key_norm="head", head_dim=256), gate="full")
    words = _types(fields, layers, period=4)
    return of_layers(fields, _mixed(words, attention, gated_delta(fields), blocks), hidden=hidden, mtp_layers=mtp_count(fields))


@reads("NemotronHForCausalLM", "nemotron_h")
def nemotron_h(fields: Fields) -> Model:
    """Nemotron-H, Nemotron Nano 2 and Nemotron-3: Mamba-2, attention or a block in each layer, behind one norm."""
    hidden = fields.size("hidden_size")
    kinds = _nemotron_kinds(fields, hidden)
    count = fields.layers("num_hidden_layers") if fields.has("num_hidden_layers") else None
    words = (
        stack_words(fields, "hybrid_override_pattern", count, LETTERS)
        or stack_words(fields, "layers_block_type", count, KINDS)
        or stack_words(fields, "layer_types", count, KINDS)
    )
    if words is None and not fields.faults:
        fields.fault("hybrid_override_pattern or layers_block_type", "config.missing", "is missing")
    words = words or [LINEAR]
    heads = mtp_count(fields)
    behind: list[str] = []
    if heads:
        behind = (
            stack_words(fields, "mtp_hybrid_override_pattern", None, LETTERS)
            or stack_words(fields, "mtp_layers_block_type", None, KINDS)
            or [ATTENTION, EXPERTS]
        )
    _check_experts(fields, [*words, *behind])
    layers, mtp = ([kinds[word] for word in each] for each in (words, behind))
    return of_layers(fields, layers, hidden=hidden, position="none", mtp_layers=heads, mtp=mtp)


def _nemotron_kinds(fields: Fields, hidden: int) -> dict[str, LayerKind]:
    """The four sorts of layers that a pattern can name."""
    bias = fields.flag("mlp_bias", default=False)
    mixer = Mamba2(
        num_heads=fields.size("mamba_num_heads", default=128), head_dim=fields.size("mamba_head_dim", default=64),
        state_dim=fields.size("ssm_state_size", default=128), num_groups=fields.size("n_groups", "mamba_n_groups", default=8),
        convolution=fields.size("conv_kernel", "mamba_d_conv", default=4),
        convolution_bias=fields.flag("use_conv_bias", default=True), bias=fields.flag("use_bias", default=False),
        chunk_tokens=fields.size("chunk_size", "mamba_chunk_size", default=128),
    )
    attention = grouped_attention(fields, hidden, head_dim=128, key_value_heads=8)
    width = fields.size("moe_intermediate_size", default=7688)
    shared = fields.size("n_shared_experts", default=1, minimum=0)
    experts = MixtureOfExperts(
        num_experts=fields.size("n_routed_experts", "num_local_experts", default=8),
        experts_per_token=fields.size("num_experts_per_tok", default=2), expert_width=width, gated=False,
        shared_width=fields.size("moe_shared_expert_intermediate_size", default=7688) if shared else 0, correction_bias=True,
        num_groups=fields.size("n_group", default=1), groups_per_token=fields.size("topk_group", default=1),
        routed_scale=fields.number("routed_scaling_factor", default=1.0), latent=fields.optional_size("moe_latent_size"),
    )
    return {
        LINEAR: LayerKind(mixer=mixer, norms=1),
        ATTENTION: LayerKind(attention=attention, norms=1),
        DENSE: LayerKind(feed_forward=Mlp(width=fields.size("intermediate_size", default=21504), gated=False, bias=bias), norms=1),
        EXPERTS: LayerKind(feed_forward=experts, norms=1),
    }


def _check_experts(fields: Fields, words: list[str]) -> None:
    """A pattern with mixtures needs their sizes, which the class would otherwise take from its defaults."""
    if EXPERTS in words and not fields.has("n_routed_experts") and not fields.has("num_local_experts"):
        fields.fault("n_routed_experts", "config.missing", "is missing, and the pattern has mixtures of experts")


def mamba2(fields: Fields, hidden: int, *, norm: bool = True, inner: int | None = None) -> Mamba2:
    """Mamba-2 from ``mamba_*`` keys (Granite, Bamba, Falcon-H1)."""
    heads = fields.size("mamba_n_heads", default=128)
    width = inner or fields.size("mamba_expand", default=2) * hidden
    if width % heads and not fields.faults:
        fields.fault("mamba_n_heads", "config.heads", "{heads} does not divide hidden size {hidden}", heads=heads, hidden=width)
    return Mamba2(
        num_heads=heads, head_dim=max(1, width // heads), state_dim=fields.size("mamba_d_state", default=256),
        num_groups=fields.size("mamba_n_groups", default=1), convolution=fields.size("mamba_d_conv", default=4),
        convolution_bias=fields.flag("mamba_conv_bias", default=True), bias=fields.flag("mamba_proj_bias", default=False),
        norm=norm, chunk_tokens=fields.size("mamba_chunk_size", default=256),
    )


@reads("GraniteMoeHybridForCausalLM", "granitemoehybrid")
def granite_hybrid(fields: Fields) -> Model:
    """Granite 4: Mamba-2 or attention, with experts beside a shared block, or that block alone."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    shared, number = fields.size("shared_intermediate_size", default=1024), fields.size("num_local_experts", default=8, minimum=0)
    block: Mlp | MixtureOfExperts = Mlp(width=shared)
    if number:
        block = MixtureOfExperts(
            num_experts=number, experts_per_token=fields.size("num_experts_per_tok", default=2),
            expert_width=fields.size("intermediate_size"), shared_width=shared,
        )
    allowed = {word: kind for word, kind in KINDS.items() if kind in (ATTENTION, LINEAR)}
    words = (
        stack_words(fields, "layer_types", layers, allowed) or stack_words(fields, "layers_block_type", layers, allowed)
        or [LINEAR] * layers
    )
    rotary = fields.data.get("position_embedding_type") == "rope"
    attention = grouped_attention(fields, hidden)
    return of_layers(
        fields, _mixed(words, attention, mamba2(fields, hidden), [block] * layers), hidden=hidden,
        position="rope" if rotary else "none",
    )


@reads("BambaForCausalLM", "bamba")
def bamba(fields: Fields) -> Model:
    """Bamba: attention in the layers that are listed."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    listed = set(fields.numbers("attn_layer_indices"))
    words = _types(fields, layers) if fields.has("layer_types") else [
        ATTENTION if index in listed else LINEAR for index in range(layers)
    ]
    blocks: list[Mlp | MixtureOfExperts] = [gated_mlp(fields, bias=fields.flag("mlp_bias", default=False))] * layers
    return of_layers(fields, _mixed(words, grouped_attention(fields, hidden), mamba2(fields, hidden), blocks), hidden=hidden)


@reads("FalconH1ForCausalLM", "falcon_h1")
def falcon_h1(fields: Fields) -> Model:
    """Falcon-H1: attention and Mamba-2 side by side in every layer."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    if fields.flag("projectors_bias", default=False):
        fields.fault("projectors_bias", "config.unsupported", "a bias on the mixer's output projection alone is not described")
    mixer = mamba2(
        fields, hidden, norm=fields.flag("mamba_rms_norm", default=False), inner=fields.optional_size("mamba_d_ssm")
    )
    kind = LayerKind(
        attention=grouped_attention(fields, hidden), mixer=mixer,
        feed_forward=gated_mlp(fields, bias=fields.flag("mlp_bias", default=False)),
    )
    return of_layers(fields, [kind] * layers, hidden=hidden)


@reads("JambaForCausalLM", "jamba")
def jamba(fields: Fields) -> Model:
    """Jamba: Mamba with attention in every eighth layer, experts in every second; no positions."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    rank = fields.data.get("mamba_dt_rank")
    mixer = Mamba(
        width=fields.size("mamba_expand", default=2) * hidden, state_dim=fields.size("mamba_d_state", default=16),
        step_rank=-(-hidden // 16) if rank in (None, "auto") else fields.size("mamba_dt_rank"),
        convolution=fields.size("mamba_d_conv", default=4), convolution_bias=fields.flag("mamba_conv_bias", default=True),
        bias=fields.flag("mamba_proj_bias", default=False), inner_norms=True,
    )
    number = fields.size("num_experts", default=16)
    dense, width = gated_mlp(fields), fields.size("intermediate_size")
    experts = MixtureOfExperts(
        num_experts=number, experts_per_token=fields.size("num_experts_per_tok", default=2), expert_width=width
    ) if number > 1 else dense
    attends, step = fields.size("attn_layer_period", default=8), fields.size("expert_layer_period", default=2)
    first, offset = (
        fields.size(name, default=usual, minimum=0) for name, usual in (("attn_layer_offset", 4), ("expert_layer_offset", 1))
    )
    words = [ATTENTION if index % attends == first else LINEAR for index in range(layers)]
    blocks: list[Mlp | MixtureOfExperts] = [experts if index % step == offset else dense for index in range(layers)]
    attention = grouped_attention(fields, hidden, bias=False)
    return of_layers(fields, _mixed(words, attention, mixer, blocks), hidden=hidden, position="none")


@reads("MiniMaxForCausalLM", "MiniMaxM1ForCausalLM", "MiniMaxText01ForCausalLM", "minimax", "minimax_m1", "minimax_text_01")
def minimax(fields: Fields) -> Model:
    """MiniMax-01 and -M1: seven layers of lightning attention, then one of softmax attention, all with experts."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    attention = grouped_attention(fields, hidden, bias=False)
    mixer = Lightning(
        num_heads=attention.num_heads, head_dim=attention.head_dim, chunk_tokens=fields.size("block_size", default=256)
    )
    listed = fields.numbers("attn_type_list")
    if listed and len(listed) != layers:
        fields.fault("attn_type_list", "config.length", "has {length} entries for {count} layers",
                     length=len(listed), count=layers)
        listed = ()
    words = [ATTENTION if each else LINEAR for each in listed] or _types(fields, layers, period=1)
    if not listed and not fields.has("layer_types"):
        words = [ATTENTION if index % 2 == 0 else LINEAR for index in range(layers)]
    experts = MixtureOfExperts(
        num_experts=fields.size("num_local_experts", "num_experts"),
        experts_per_token=fields.size("num_experts_per_tok", default=2), expert_width=fields.size("intermediate_size"),
        shared_width=fields.size("shared_intermediate_size", default=0, minimum=0),
    )
    return of_layers(fields, _mixed(words, attention, mixer, [experts] * layers), hidden=hidden)


def latent_without_rank(fields: Fields, *, unturned: bool = False) -> Attention:
    """Multi-head latent attention whose queries may have no latent, and keys no rotary part where they are ``unturned``."""
    heads = fields.size("num_attention_heads")
    latent = LatentAttention(
        query_rank=fields.optional_size("q_lora_rank"), key_value_rank=fields.size("kv_lora_rank"),
        nope_dim=fields.size("qk_nope_head_dim"),
        rope_dim=fields.size("qk_rope_head_dim", minimum=0 if unturned else 1), value_dim=fields.size("v_head_dim"),
    )
    return Attention(num_heads=heads, num_key_value_heads=heads, head_dim=latent.nope_dim + latent.rope_dim, latent=latent)


@reads("KimiLinearForCausalLM", "kimi_linear")
def kimi_linear(fields: Fields) -> Model:
    """Kimi Linear: three layers of Kimi delta attention, then latent attention without positions."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    inner = fields.inner("linear_attn_config")
    dim = inner.size("head_dim", default=fields.size("linear_head_dim", default=128))
    mixer = KimiDelta(
        num_heads=inner.size("num_heads", default=fields.size("linear_num_heads", default=32)), head_dim=dim,
        convolution=inner.size("short_conv_kernel_size", default=fields.size("linear_conv_kernel_dim", default=4)),
        decay_rank=dim, gate_rank=dim,
    )
    listed = set(inner.numbers("full_attn_layers"))  # counted from 1
    usual = [ATTENTION if index and index % 4 == 0 else LINEAR for index in range(layers)]
    words = [ATTENTION if index + 1 in listed else LINEAR for index in range(layers)] if listed else usual
    if fields.has("layer_types"):
        words = _types(fields, layers)
    return of_layers(
        fields, _mixed(words, latent_without_rank(fields), mixer, _kimi_blocks(fields, layers)), hidden=hidden, position="none",
        mtp_layers=mtp_count(fields),
    )


def _kimi_blocks(fields: Fields, layers: int) -> list[Mlp | MixtureOfExperts]:
    """Dense layers first, then mixtures; ``mlp_layer_types`` where it is there."""
    width = fields.size("moe_intermediate_size")
    experts = MixtureOfExperts(
        num_experts=fields.size("num_experts", "n_routed_experts", "num_local_experts", default=256),
        experts_per_token=fields.size("num_experts_per_token", "num_experts_per_tok", default=8), expert_width=width,
        shared_width=fields.size("num_shared_experts", "n_shared_experts", default=1, minimum=0) * width, correction_bias=True,
        num_groups=fields.size("num_expert_group", "n_group", default=1), groups_per_token=fields.size("topk_group", default=1),
        routed_scale=fields.number("routed_scaling_factor", default=1.0),
    )
    words = fields.words("mlp_layer_types", layers, ("dense", "sparse"))
    first = fields.size("first_k_dense_replace", default=1, minimum=0)
    sparse = [word == "sparse" for word in words] if words else [index >= first for index in range(layers)]
    dense = Mlp(width=fields.size("intermediate_size"))
    return [experts if is_sparse else dense for is_sparse in sparse]


@reads("BailingHybridForCausalLM", "bailing_hybrid")
def bailing_hybrid(fields: Fields) -> Model:
    """Ling and Ring of 2026: Kimi delta attention with full-rank gates, latent attention with a gate for each head."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    mixer = KimiDelta(
        num_heads=fields.size("linear_num_heads", "num_attention_heads"), head_dim=fields.size("linear_head_dim", default=128),
        convolution=fields.size("linear_conv_kernel_dim", "short_conv_kernel_size", default=4),
    )
    attention = replace(latent_without_rank(fields), gate="head")
    group = fields.size("layer_group_size", default=6)
    usual = [ATTENTION if (index + 1) % group == 0 else LINEAR for index in range(layers)]
    words = _types(fields, layers) if fields.has("layer_types") else usual
    return of_layers(
        fields, _mixed(words, attention, mixer, _kimi_blocks(fields, layers)), hidden=hidden, mtp_layers=mtp_count(fields)
    )


@reads("BailingMoeLinearForCausalLM", "BailingMoeLinearV2ForCausalLM", "bailing_moe_linear", "bailing_moe_linear_v2")
def bailing_linear(fields: Fields) -> Model:
    """Ring-linear 2.0: lightning attention with norms on query and key heads, one softmax layer in each group."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    attention = grouped_attention(fields, hidden, bias=fields.flag("use_qkv_bias", default=False), query_key_norm="head")
    mixer = Lightning(num_heads=attention.num_heads, head_dim=attention.head_dim, query_key_norm=True)
    group = fields.size("layer_group_size", default=4)
    tail = layers // group * group
    words = [ATTENTION if (index + 1) % group == 0 or index >= tail else LINEAR for index in range(layers)]
    return of_layers(fields, _mixed(words, attention, mixer, _kimi_blocks(fields, layers)), hidden=hidden)


@reads("Lfm2ForCausalLM", "lfm2")
def lfm2(fields: Fields) -> Model:
    """LFM2: gated short convolutions between layers of attention."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    width = fields.size("intermediate_size", "block_ff_dim")
    if fields.flag("block_auto_adjust_ff_dim", default=True):
        width = int(fields.number("block_ffn_dim_multiplier", default=1.0) * int(2 * width / 3))
        multiple = fields.size("block_multiple_of", default=256)
        width = -(-width // multiple) * multiple
    return _lfm(fields, hidden, layers, [Mlp(width=max(1, width))] * layers)


@reads("Lfm2MoeForCausalLM", "lfm2_moe")
def lfm2_moe(fields: Fields) -> Model:
    """LFM2-MoE: the same with experts behind the first layers."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    experts = MixtureOfExperts(
        num_experts=fields.size("num_experts"), experts_per_token=fields.size("num_experts_per_tok"),
        expert_width=fields.size("moe_intermediate_size"), correction_bias=fields.flag("use_expert_bias", default=True),
        routed_scale=fields.number("routed_scaling_factor", default=1.0),
    )
    first, dense = fields.size("num_dense_layers", default=2, minimum=0), gated_mlp(fields)
    return _lfm(fields, hidden, layers, [dense if index < first else experts for index in range(layers)])


def _lfm(fields: Fields, hidden: int, layers: int, blocks: list[Mlp | MixtureOfExperts]) -> Model:
    mixer = ShortConvolution(
        width=hidden, convolution=fields.size("conv_L_cache", default=3), bias=fields.flag("conv_bias", default=False)
    )
    listed = set(fields.numbers("full_attn_idxs"))
    words = _types(fields, layers) if fields.has("layer_types") else [
        ATTENTION if not fields.has("full_attn_idxs") or index in listed else LINEAR for index in range(layers)
    ]
    attention = grouped_attention(fields, hidden, bias=False, query_key_norm="head")
    tied = fields.flag("tie_embedding", default=True)
    return of_layers(fields, _mixed(words, attention, mixer, blocks), hidden=hidden, tied=tied)


@reads("OlmoHybridForCausalLM", "olmo_hybrid")
def olmo_hybrid(fields: Fields) -> Model:
    """OLMo hybrid: gated delta nets, and attention with norms over all heads."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    attention = grouped_attention(fields, hidden, query_key_norm="full")
    blocks: list[Mlp | MixtureOfExperts] = [gated_mlp(fields)] * layers
    return of_layers(fields, _mixed(_types(fields, layers, period=4), attention, gated_delta(fields), blocks), hidden=hidden)


