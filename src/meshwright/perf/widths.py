"""Elements per token of a named width, and how rows of an implementation's tables count on one rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import numpy as np

from meshwright.domain.attention import NO_ATTENTION
from meshwright.domain.mixers import GatedDelta, KimiDelta, Lightning
from meshwright.domain.model import MixtureOfExperts
from meshwright.perf.arrays import Array, Number, array
from meshwright.perf.attention import core_widths
from meshwright.perf.mixers import chunk_state_width
from meshwright.perf.operators import key_value_heads, routed_tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.domain.attention import Attention
    from meshwright.domain.implementation import Condition, Part, Shard, Width
    from meshwright.domain.model import LayerKind
    from meshwright.perf.operators import WorkShape


def has_part(kind: LayerKind, part: Part) -> bool:
    """Whether a layer of this kind has the block that a row belongs to."""
    experts = kind.experts
    if part == "attention":
        return kind.attention is not None
    if part == "mixer":
        return kind.mixer is not None
    if part == "mlp":
        return experts is None and kind.has_block
    if part == "shared":
        return experts is not None and experts.shared_width > 0
    if part == "expert_bias":
        return experts is not None and experts.expert_bias
    return experts is not None


def attention_input(attention: Attention, hidden: int) -> int:
    """Elements per token that attention's sharded projections take in: the hidden state, or the latents of MLA.

    Units:   elements per token.
    Source:  Megatron-Core multi_latent_attention.py: down-projections run on sequence shards.
    """
    latent, compressed = attention.latent, attention.compressed
    if compressed:
        return compressed.query_rank + attention.head_dim * (1 + (2 if compressed.rate else 0))
    return (latent.query_rank or hidden) + latent.key_value_rank + latent.rope_dim if latent else hidden


def width(name: Width, part: Part, kind: LayerKind, hidden: int, context_tokens: Number, tensor_parallel: Array) -> Array:
    """Elements per token that a width stands for, before any sharding.

    Shapes:  context_tokens and tensor_parallel broadcast.
    Units:   elements per token.
    Holds:   keys and values count their duplicates where TP exceeds the key-value heads, so that width / t is what one rank has.
    Source:  definition of the widths in ``domain.implementation``.
    """
    attention, block = kind.attention or NO_ATTENTION, kind.feed_forward
    latent = attention.latent
    match name:
        case "hidden":
            latent_width = block.latent if isinstance(block, MixtureOfExperts) and part in ("experts", "expert_bias") else None
            return array(latent_width or hidden)
        case "streams":
            return array(hidden * (kind.streams - 1))
        case "gate":
            return array({"none": 0, "full": attention.output_width, "head": attention.num_heads}[attention.gate])
        case "index":
            indexer = attention.indexer
            return array(0 if indexer is None else indexer.num_heads * indexer.head_dim)
        case "selected":
            return array(attention.selected_tokens or 0)
        case "index_scores":
            return array(0.0) if attention.indexer is None else index_keys(attention, context_tokens)
        case "expert_latent":
            return array((block.latent or 0) if isinstance(block, MixtureOfExperts) else 0)
        case (
            "mixer_convolved" | "mixer_gate" | "mixer_scalars" | "mixer_decays" | "mixer_key" | "mixer_value" | "mixer_chunk"
            | "mixer_states"
        ):
            return array(mixer_width(name, kind))
        case "query":
            return array(attention.num_heads * core_widths(attention)[0])
        case "key":
            if attention.selected_tokens is not None and latent:
                return array(0.0)  # the latents are the keys, and kept as such
            heads = attention.num_heads if latent else key_value_heads(attention, tensor_parallel) * tensor_parallel
            return array(heads * attention.head_dim)
        case "value":
            if attention.shared_key_value or (attention.selected_tokens is not None and latent):
                return array(0.0)
            heads = attention.num_heads if latent else key_value_heads(attention, tensor_parallel) * tensor_parallel
            return array(heads * attention.value_dim)
        case "output":
            return array(attention.output_width)
        case "heads":
            return array(attention.num_heads)
        case "scores":
            return array(attention.num_heads * array(context_tokens))
        case "mlp_inputs":
            return array(block.num_inputs) * width("mlp_width", part, kind, hidden, context_tokens, tensor_parallel)
        case "mlp_width":
            if isinstance(block, MixtureOfExperts):
                return array(block.shared_width if part == "shared" else block.expert_width)
            return array(block.width)
        case "query_rank":
            compressed = attention.compressed
            return array((latent.query_rank or 0) if latent else compressed.query_rank if compressed else 0)
        case "key_value_rank":
            return array(latent.key_value_rank if latent else 0)
        case "rope_dim":
            return array(latent.rope_dim if latent else 0)
        case "num_experts":
            return array(block.num_experts if isinstance(block, MixtureOfExperts) else 0)
        case "attention_input":
            return array(hidden if kind.attention is None else attention_input(attention, hidden))
        case "experts_per_token":
            return array(block.experts_per_token if isinstance(block, MixtureOfExperts) else 0)
        case _:
            assert_never(name)


def index_keys(attention: Attention, context_tokens: Number) -> Array:
    """Keys (or compressed entries) that a query of the indexer scores, on average over a sequence.

        s / 2, of compressed attention s / (2 r)

    Shapes:  context_tokens broadcasts.
    Units:   keys per token.
    Source:  ``perf.attention.index_flops``.
    """
    rate = attention.compressed.rate if attention.compressed else 1
    return array(context_tokens) / (2.0 * max(1, rate))


def mixer_width(name: Width, kind: LayerKind) -> float:
    """Elements per token of a linear mixer that a width stands for.

    Units:   elements per token; ``mixer_states`` are the states between chunks, spread over their tokens.
    Source:  definition of the widths in ``domain.implementation``.
    """
    mixer = kind.mixer
    if mixer is None:
        return 0.0
    match name:
        case "mixer_convolved":
            return float(mixer.convolved_width)
        case "mixer_gate":
            return float(mixer.gate_width)
        case "mixer_scalars":
            return float(mixer.scalar_width)
        case "mixer_decays":
            delta = isinstance(mixer, GatedDelta | KimiDelta)
            return float(mixer.key_width if isinstance(mixer, KimiDelta) else mixer.scalar_width if delta else 0)
        case "mixer_key":
            return float(mixer.value_heads * mixer.key_dim if isinstance(mixer, GatedDelta) else mixer.key_width)
        case "mixer_value":
            return float(mixer.value_width)
        case "mixer_chunk":
            return float(mixer.heads * mixer.chunk_tokens)
        case _:
            return chunk_state_width(mixer)


def row_elements(
    name: Width, part: Part, shard: Shard, kind: LayerKind, hidden: int, context_tokens: Number, shape: WorkShape
) -> Array:
    """Elements of a row on one rank for one micro-batch.

        experts: R w / {T_e, min(T_e, t_sp), 1};   gathered: T w (1 - 1/t_sp);   else: T w / {t, t_sp, 1}

    Symbols: T tokens of the rank; R its routed copies, of which each rank of expert TP has min(T_e, t_sp) times less before they
             are gathered; w the width; t, t_sp, T_e TP, sequence shards, expert TP.
    Shapes:  the columns of ``shape``.
    Units:   elements.
    Source:  definition of the rows in ``domain.implementation``.
    """
    elements = width(name, part, kind, hidden, context_tokens, shape.tensor_parallel)
    experts = kind.experts
    if part in ("experts", "expert_bias"):
        assert experts is not None, "rows of experts exist in mixture layers only"
        tokens = routed_tokens(experts, shape)
        gathered = np.minimum(shape.expert_tensor_parallel, shape.sequence_shards)
        parts = {"tensor": shape.expert_tensor_parallel, "sequence": gathered}
        return np.asarray(tokens * elements / parts.get(shard, array(1.0)))
    if shard == "gathered":
        return shape.tokens * elements * (1.0 - 1.0 / shape.sequence_shards)
    divisor = {"tensor": shape.tensor_parallel, "sequence": shape.sequence_shards, "none": array(1.0)}[shard]
    return shape.tokens * elements / divisor


def is_latent(kind: LayerKind) -> bool:
    """Whether attention of such a layer projects into latents before it has queries, keys and values.

    Units:   none.
    Source:  Megatron-Core multi_latent_attention.py: the norm in front of the down projections is a module of its own.
    """
    return kind.attention is not None and (kind.attention.latent is not None or kind.attention.compressed is not None)


def row_exists(only: Condition, kind: LayerKind, shape: WorkShape) -> NDArray[np.bool_] | bool | None:
    """Whether a row exists in such a layer on such a rank; None: always.

    Shapes:  the columns of ``shape``.
    Units:   none.
    Source:  definition of the conditions in ``domain.implementation``.
    """
    match only:
        case "":
            return None
        case "context":
            return np.asarray(shape.context_parallel > 1.0)
        case "sequence":
            return np.asarray(shape.sequence_shards > 1.0)
        case "expert":
            return np.asarray(shape.expert_parallel > 1.0)
        case "several_experts":
            return np.asarray(kind.experts is not None and kind.experts.num_experts > shape.expert_parallel)
        case "query_key_norm":
            return kind.attention is not None and kind.attention.query_key_norm != "none"
        case "alone":
            return kind.attention is None
        case "streams":
            return kind.streams > 1
        case "output_gate":
            return kind.attention is not None and kind.attention.gate != "none"
        case "indexer":
            return kind.attention is not None and kind.attention.indexer is not None
        case "selected":
            return kind.attention is not None and kind.attention.selected_tokens is not None
        case "convolution":
            return kind.mixer is not None and kind.mixer.convolution > 0
        case "keyed":
            return isinstance(kind.mixer, GatedDelta | KimiDelta | Lightning)
        case "delta":
            return isinstance(kind.mixer, GatedDelta | KimiDelta)
        case "latent_experts":
            return kind.experts is not None and kind.experts.latent is not None
        case "latent":
            return is_latent(kind)
        case "direct":
            return not is_latent(kind)
        case "gated":
            return kind.feed_forward.gated
        case _:
            assert_never(only)
