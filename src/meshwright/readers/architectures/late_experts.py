"""Mixtures of late 2026: K-EXAONE, Hunyuan 4, dots3, MiniMax M3, MiMo V2 Flash, LongCat-Flash."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.attention import Attention, Indexer, LatentAttention
from meshwright.domain.model import LayerKind, MixtureOfExperts, Mlp, Model, Side
from meshwright.readers.architectures.experts import dense_first_blocks, mixture
from meshwright.readers.architectures.hybrids import latent_without_rank
from meshwright.readers.architectures.parts import grouped_attention, reads, windows, with_windows
from meshwright.readers.architectures.stacks import mtp_count, of_layers, stack_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.readers.fields import Fields

_FULL, _SLIDING, _INDEXED = "full_attention", "sliding_attention", "indexed_attention"
_BLOCK_SPARSE = "minimax_m3_sparse"


@reads("ExaoneMoeForCausalLM", "exaone_moe")
def exaone_moe(fields: Fields) -> Model:
    """K-EXAONE: windows but in every fourth layer, norms on heads, one dense layer, a shared expert."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    width = fields.size("moe_intermediate_size", default=1024)
    experts = MixtureOfExperts(
        num_experts=fields.size("num_experts", default=64), experts_per_token=fields.size("num_experts_per_tok", default=8),
        expert_width=width, shared_width=width * fields.size("num_shared_experts", default=1, minimum=0), correction_bias=True,
        num_groups=fields.size("n_group", default=1), groups_per_token=fields.size("topk_group", default=1),
        routed_scale=fields.number("routed_scaling_factor", default=2.5),
    )
    pattern = fields.data.get("sliding_window_pattern", 4)
    slides: list[bool] = [False] * layers
    if isinstance(pattern, str) and pattern:
        slides = [pattern[index % len(pattern)] == "L" for index in range(layers)]
    elif isinstance(pattern, int) and pattern > 0:
        slides = [(index + 1) % pattern != 0 for index in range(layers)]
    attention = grouped_attention(fields, hidden, bias=False, query_key_norm="head")
    model = mixture(
        fields, hidden=hidden, attentions=with_windows(attention, windows(fields, layers, default=slides)),
        blocks=_blocks(fields, layers, experts, first_dense=1),
    )
    passes = mtp_count(fields)
    shared = passes > 1 and fields.flag("mtp_share_layers", default=False)
    return replace(model, num_mtp_layers=1 if shared else passes, num_mtp_passes=passes if shared else 0)


def _blocks(fields: Fields, layers: int, experts: MixtureOfExperts, *, first_dense: int) -> list[Mlp | MixtureOfExperts]:
    """Dense layers first, or as ``mlp_layer_types`` says."""
    types = fields.words("mlp_layer_types", layers, ("dense", "sparse"))
    first = fields.size("first_k_dense_replace", default=first_dense, minimum=0)
    sparse = [index >= first for index in range(layers)] if types is None else [word == "sparse" for word in types]
    dense = experts if all(sparse) else Mlp(width=fields.size("intermediate_size"))
    return [experts if is_sparse else dense for is_sparse in sparse]


@reads("HYV4ForCausalLM", "hy_v4")
def hunyuan4(fields: Fields) -> Model:
    """Hunyuan 4: sparse latent attention with sinks and a gate, choices shared by four layers, residual streams."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    attention = replace(
        latent_without_rank(fields), selected_tokens=fields.size("index_topk", default=2048), sinks=True, gate="full",
        indexer=Indexer(
            num_heads=fields.size("index_n_heads", default=16), head_dim=fields.size("index_head_dim", default=128)
        ),
    )
    words = stack_words(fields, "indexer_types", layers, {"full": "full", "shared": "shared"})
    words = words or ["full" if index == 0 or (index - 1) % 4 == 0 else "shared" for index in range(layers)]
    blocks = dense_first_blocks(fields, layers, correction_bias=True, routed_scale=2.827, first_dense=1)
    streams = fields.size("hc_mult", default=4)
    sides = (Side(name="hyper-connection", inputs=streams * hidden, outputs=2 * streams, weights=2 * streams + 2),) * 2
    stack = [
        LayerKind(attention=attention if word == "full" else replace(attention, indexer=None), feed_forward=block, sides=sides,
                  streams=streams)
        for word, block in zip(words, blocks, strict=True)
    ]
    head = Side(name="joined streams", inputs=streams * hidden, outputs=streams, weights=streams + 1)
    return replace(of_layers(fields, stack, hidden=hidden, mtp_layers=mtp_count(fields)), back=(head,))


@reads("Dots3NoteForCausalLM", "dots3_note_text")
def dots3(fields: Fields) -> Model:
    """dots3: latent attention with a gate on each head, sparse in every fourth layer, in the others narrower and in a window."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    sparse = fields.flag("use_dsa", default=True)
    if (types := fields.words("layer_types", layers, (_FULL, _SLIDING, _INDEXED))) is None:
        slides = fields.flag("use_sliding_window", default=True)
        types = tuple(_SLIDING if slides and index >= 2 and index % 4 != 1 else _INDEXED for index in range(layers))
    full = replace(latent_without_rank(fields), gate="head")
    indexed = replace(
        full, selected_tokens=fields.size("index_topk", default=2048),
        indexer=Indexer(
            num_heads=fields.size("index_n_heads", default=64), head_dim=fields.size("index_head_dim", default=128)
        ),
    )
    kinds = {_FULL: indexed if fields.has("use_dsa") and sparse else full, _INDEXED: indexed if sparse else full,
             _SLIDING: _narrow(fields, types)}
    blocks = dense_first_blocks(fields, layers, correction_bias=True, first_dense=1)
    own = fields.size("moe_shared_expert_intermediate_size", "shared_experts_intermediate_size", default=1536)
    shared = own * fields.size("n_shared_experts", default=1, minimum=0)
    stack = [
        LayerKind(
            attention=kinds[word],
            feed_forward=replace(block, shared_width=shared) if isinstance(block, MixtureOfExperts) else block,
            sides=(Side(name="norm of the rotary key", weights=_rotary(kinds[word])),),
        )
        for word, block in zip(types, blocks, strict=True)
    ]
    return of_layers(fields, stack, hidden=hidden, mtp_layers=mtp_count(fields))


def _rotary(attention: Attention) -> int:
    return attention.latent.rope_dim if attention.latent else 0


def _narrow(fields: Fields, types: Sequence[str]) -> Attention:
    """The windowed attention of dots3: under ``swa_`` keys, or in the configuration of its layers."""
    first = types.index(_SLIDING) if _SLIDING in types else 0
    inner = fields.inner("per_layer_config").inner(str(first)) if fields.has("per_layer_config") else fields
    prefix = "" if fields.has("per_layer_config") else "swa_"
    nope = inner.size(f"{prefix}qk_nope_head_dim", default=192)
    whole = inner.size(f"{prefix}head_dim", default=256)
    latent = LatentAttention(
        query_rank=inner.size(f"{prefix}q_lora_rank", default=1024),
        key_value_rank=inner.size(f"{prefix}kv_lora_rank", default=1024), nope_dim=nope,
        rope_dim=inner.size(f"{prefix}qk_rope_head_dim", default=max(1, whole - nope)),
        value_dim=inner.size(f"{prefix}v_head_dim", default=128),
    )
    heads = inner.size(f"{prefix}num_attention_heads", default=64)
    return Attention(
        num_heads=heads, num_key_value_heads=heads, head_dim=latent.nope_dim + latent.rope_dim, latent=latent, gate="head",
        window_tokens=fields.size("sliding_window", "sliding_window_size", default=512),
    )


@reads("MiniMaxM3VLForCausalLM", "minimax_m3_vl_text")
def minimax_m3(fields: Fields) -> Model:
    """MiniMax M3: blocks of keys that an indexer chooses, norms on heads, one shared expert; some layers dense in either sense."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    released = fields.inner("sparse_attention_config")
    full = grouped_attention(fields, hidden, bias=False, query_key_norm="head", head_dim=128)

    def told(name: str, old: str, default: int) -> int:
        return released.size(old) if released.has(old) else fields.size(name, default=default)

    chosen = told("index_topk_blocks", "sparse_topk_blocks", 16) * told("index_block_size", "sparse_block_size", 128)
    sparse = replace(
        full, selected_tokens=chosen,
        indexer=Indexer(
            num_heads=told("index_n_heads", "sparse_num_index_heads", 4),
            head_dim=told("index_head_dim", "sparse_index_dim", 128), weighs_heads=False,
        ),
    )
    types = fields.words("layer_types", layers, (_FULL, _BLOCK_SPARSE))
    flags = released.numbers("sparse_attention_freq")
    indexed = [word == _BLOCK_SPARSE for word in types] if types else [bool(each) for each in flags] or [False] * layers
    experts = MixtureOfExperts(
        num_experts=fields.size("num_local_experts", default=128),
        experts_per_token=fields.size("num_experts_per_tok", default=4), expert_width=fields.size("intermediate_size"),
        shared_width=fields.size("shared_intermediate_size", default=3072, minimum=0), correction_bias=True,
        routed_scale=fields.number("routed_scaling_factor", default=2.0),
    )
    blocks = fields.words("mlp_layer_types", layers, ("dense", "sparse"))
    marks = fields.numbers("moe_layer_freq")
    mixed = [word == "sparse" for word in blocks] if blocks else [bool(each) for each in marks] or [True] * layers
    for name, each in (("sparse_attention_config.sparse_attention_freq", indexed), ("moe_layer_freq", mixed)):
        if len(each) != layers:
            fields.fault(name, "config.length", "has {length} entries for {count} layers", length=len(each), count=layers)
            return mixture(fields, hidden=hidden, attentions=[full], blocks=[experts])
    dense = experts if all(mixed) else Mlp(width=fields.size("dense_intermediate_size", default=12288))
    return mixture(
        fields, hidden=hidden, attentions=[sparse if each else full for each in indexed],
        blocks=[experts if each else dense for each in mixed], mtp_layers=mtp_count(fields),
    )


@reads("MiMoV2FlashForCausalLM", "mimo_v2_flash")
def mimo_v2(fields: Fields) -> Model:
    """MiMo V2 Flash: five windows with sinks and twice the key-value heads between full layers; values narrower than keys."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_hidden_layers")
    full = replace(
        grouped_attention(fields, hidden, head_dim=192, key_value_heads=4, output_bias=False),
        value_head_dim=fields.size("v_head_dim", default=128),
    )
    behind = fields.size("sliding_window_size", default=128)
    window = replace(
        full, num_key_value_heads=2 * full.num_key_value_heads, sinks=True,
        window_tokens=fields.size("sliding_window", default=behind + 1),
    )
    types = fields.words("layer_types", layers, (_FULL, _SLIDING))
    slides = [word == _SLIDING for word in types] if types else [index > 0 and (index + 1) % 6 != 0 for index in range(layers)]
    return mixture(
        fields, hidden=hidden, attentions=[window if each else full for each in slides],
        blocks=dense_first_blocks(fields, layers, correction_bias=True, first_dense=1), mtp_layers=mtp_count(fields),
    )


@reads("LongcatFlashForCausalLM", "longcat_flash")
def longcat(fields: Fields) -> Model:
    """LongCat-Flash: of each of its layers three here, two of latent attention and a dense block, and between them the mixture
    that it runs beside the second. Experts that do nothing take their share of the choices."""
    hidden, layers = fields.size("hidden_size"), fields.layers("num_layers", "num_hidden_layers")
    attention = latent_without_rank(fields)
    dense = LayerKind(attention=attention, feed_forward=Mlp(width=fields.size("ffn_hidden_size", "intermediate_size")))
    experts, idle = fields.size("n_routed_experts", "num_local_experts"), fields.size("zero_expert_num", default=0, minimum=0)
    chosen = fields.size("moe_topk", "num_experts_per_tok")
    mixed = LayerKind(
        feed_forward=MixtureOfExperts(
            num_experts=experts, experts_per_token=max(1, round(chosen * experts / (experts + idle))),
            expert_width=fields.size("expert_ffn_hidden_size", "moe_intermediate_size"), correction_bias=True,
            routed_scale=fields.number("routed_scaling_factor", default=6.0),
        ),
        norms=0, sides=(Side(name="router of experts that do nothing", inputs=hidden, outputs=idle),) if idle else (),
    )
    return of_layers(fields, [dense, mixed, dense] * layers, hidden=hidden, mtp_layers=mtp_count(fields))
