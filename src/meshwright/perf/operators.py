"""The matrix products of a layer, one row each: FLOPs, time and recompute all read this one list."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from meshwright.domain.model import MixtureOfExperts
from meshwright.perf.arrays import Array, Number, array
from meshwright.perf.attention import is_detached
from meshwright.perf.mixers import mixer_shapes

if TYPE_CHECKING:
    from meshwright.domain.attention import Attention, CompressedAttention
    from meshwright.domain.mixers import Mixer
    from meshwright.domain.model import LayerKind, Mlp, Model


LAST_PRODUCT = "mlp out"
"""The product that a dense feed-forward block ends with."""


class WorkShape(Struct, frozen=True, kw_only=True):
    """What one rank works on in one micro-batch. Every field is a number or a column."""

    sequences: Array
    """Sequences of the micro-batch."""
    tokens: Array
    """Tokens of the micro-batch on a context-parallel rank: sequences x s / c."""
    tensor_parallel: Array
    sequence_shards: Array
    """TP where sequence parallelism is on, else 1: the divisor of activations outside the tensor-parallel region."""
    context_parallel: Array
    expert_parallel: Array
    expert_tensor_parallel: Array

    @property
    def shard_tokens(self) -> Array:
        """Tokens outside the tensor-parallel region."""
        return self.tokens / self.sequence_shards


def work_shape(
    *,
    microbatch_sequences: Number,
    sequence_tokens: Number,
    tensor_parallel: Number = 1,
    sequence_parallel: Number = 0,
    context_parallel: Number = 1,
    expert_parallel: Number = 1,
    expert_tensor_parallel: Number = 1,
) -> WorkShape:
    """What one rank works on, from degrees and batch.

        tokens = b s / c;   sequence shards = t under sequence parallelism, else 1

    Shapes:  all arguments broadcast.
    Units:   sequences, tokens, ranks.
    Source:  Korthikanti et al. 2022 section 4.2; context parallelism divides the tokens of a sequence.
    """
    tp, cp = array(tensor_parallel), array(context_parallel)
    sequences = array(microbatch_sequences)
    return WorkShape(
        sequences=sequences,
        tokens=sequences * sequence_tokens / cp,
        tensor_parallel=tp,
        sequence_shards=np.where(array(sequence_parallel) > 0, tp, 1.0),
        context_parallel=cp,
        expert_parallel=array(expert_parallel),
        expert_tensor_parallel=array(expert_tensor_parallel),
    )


class Product(Struct, frozen=True, kw_only=True):
    """One matrix product (rows, inner) x (inner, columns), ``groups`` of them where experts are grouped."""

    name: str
    part: str
    """attention, mixer, mlp, experts, shared, router, side."""
    rows: Array
    columns: Array
    inner: Array
    groups: Array
    grouped: bool = False
    ranks: Array | None = None
    """Ranks that share grouped experts."""
    low_precision: bool = True
    """Runs in the recipe's data type; False: stays in the base type."""
    module: str = ""
    """The selective-recompute module that contains it."""
    detached: bool = False
    """Its input takes no gradient."""

    @property
    def flops(self) -> Array:
        """2 m n k, all groups."""
        return 2.0 * self.groups * self.rows * self.columns * self.inner


def _product(name: str, part: str, rows: Number, columns: Number, inner: Number, **more: object) -> Product:
    groups = array(more.pop("groups", 1.0))  # type: ignore[arg-type]
    return Product(
        name=name,
        part=part,
        rows=array(rows),
        columns=array(columns),
        inner=array(inner),
        groups=groups,
        **more,  # type: ignore[arg-type]
    )


def key_value_heads(attention: Attention, tensor_parallel: Number) -> Array:
    """Key and value heads on one tensor-parallel rank; heads are duplicated where TP exceeds them.

    max(1, k / t)

    Shapes:  tensor_parallel broadcasts.
    Units:   heads.
    Source:  Megatron-Core attention.py (num_query_groups may be a divisor of TP).
    """
    return np.maximum(1.0, attention.num_key_value_heads / array(tensor_parallel))


def projected_heads(attention: Attention, tensor_parallel: Number, *, cut: bool) -> Array:
    """Key and value heads whose projection one tensor-parallel rank computes; a part of one where groups are ``cut``.

        k / t;   copied: max(1, k / t)

    Shapes:  tensor_parallel broadcasts.
    Units:   heads.
    Source:  ``Implementation.cuts_query_groups``.
    """
    return attention.num_key_value_heads / array(tensor_parallel) if cut else key_value_heads(attention, tensor_parallel)


def gathered_columns(attention: Attention, tensor_parallel: Number) -> Array:
    """Columns of queries, keys and values that are gathered over tensor ranks where groups are cut: all of them, or none.

        t > k: H d (1 + gate) + k (d_k + d_v);   else 0

    Shapes:  tensor_parallel broadcasts.
    Units:   elements per token.
    Holds:   plain and gated attention; latents belong to no head.
    Source:  Megatron-Core 0.16 attention.py, get_query_key_value_tensors: all_gather_last_dim_from_tensor_parallel_region.
    """
    if attention.latent or attention.compressed:
        return array(0.0)
    gate = attention.output_width if attention.gate == "full" else 0
    columns = attention.query_width + gate + attention.num_key_value_heads * (attention.head_dim + attention.value_dim)
    return np.where(array(tensor_parallel) > attention.num_key_value_heads, columns, 0.0)


def attention_products(
    attention: Attention, hidden: int, shape: WorkShape, *, joined: bool = True, cut: bool = False
) -> tuple[Product, ...]:
    """Projections of an attention block on one rank; queries, keys and values are one product where they are ``joined``.

    Shapes:  the columns of ``shape``.
    Units:   elements.
    Holds:   MLA down-projections are replicated over TP and run on sequence-parallel shards, as in Megatron-Core.
    Source:  Megatron-Core attention.py, multi_latent_attention.py.
    """
    tokens, tp = shape.tokens, shape.tensor_parallel
    latent = attention.latent
    output = _product("output projection", "attention", tokens, hidden, attention.output_width / tp, module="attn_proj")
    if latent is None:
        heads = projected_heads(attention, tp, cut=cut)
        query, key, value = attention.query_width / tp, heads * attention.head_dim, heads * attention.value_dim
        if is_plain(attention):
            pass
        elif attention.compressed:
            return (*compressed_products(attention, attention.compressed, hidden, shape), *index_products(attention, hidden, shape))
        else:
            return (*_gated_products(attention, hidden, shape, cut=cut), *index_products(attention, hidden, shape), output)
        if not joined:
            names = ("query", "key", "value")
            apart = zip(names, (query, key, value), strict=True)
            return (*(_product(f"{name} projection", "attention", tokens, columns, hidden) for name, columns in apart), output)
        head_columns = query + key + value
        return (_product("qkv projection", "attention", tokens, head_columns, hidden), output)
    down = latent.key_value_rank + latent.rope_dim
    up = attention.num_heads * (latent.nope_dim + latent.value_dim)
    rows: list[Product] = []
    if latent.query_rank is None:
        rows.append(_product("query projection", "attention", tokens, attention.query_width / tp, hidden))
    else:
        rank = latent.query_rank
        rows.append(_product("query down-projection", "attention", shape.shard_tokens, rank, hidden))
        rows.append(_product("query up-projection", "attention", tokens, attention.query_width / tp, rank, module="mla_up_proj"))
    rows.append(_product("key-value down-projection", "attention", shape.shard_tokens, down, hidden))
    rows.append(_product("key-value up-projection", "attention", tokens, up / tp, latent.key_value_rank, module="mla_up_proj"))
    if is_plain(attention):
        return (*rows, output)
    if attention.gate != "none":
        gate = attention.output_width if attention.gate == "full" else attention.num_heads
        rows.append(_product("attention gate", "attention", tokens, gate / tp, hidden))
    return (*rows, *index_products(attention, hidden, shape), output)


def is_plain(attention: Attention) -> bool:
    """Whether attention has queries, keys, values and an output and nothing else: no gate, indexer, or shared projections.

    Units:   none.
    Source:  definition of the forms in ``domain.model``.
    """
    return (
        attention.gate == "none" and attention.indexer is None and attention.compressed is None
        and not attention.shared_key_value and not attention.borrows_key_value
    )


def _gated_products(attention: Attention, hidden: int, shape: WorkShape, *, cut: bool) -> tuple[Product, ...]:
    """The projection of queries with the output's gate, and of the keys and values that there are, in one."""
    tp = shape.tensor_parallel
    gate = {"none": 0, "full": attention.output_width, "head": attention.num_heads}[attention.gate]
    values = 0 if attention.shared_key_value else attention.value_dim
    each = 0.0 if attention.borrows_key_value else float(attention.head_dim + values)
    columns = (attention.query_width + gate) / tp + projected_heads(attention, tp, cut=cut) * each
    return (_product("qkv projection", "attention", shape.tokens, columns, hidden),)


def compressed_products(attention: Attention, widths: CompressedAttention, hidden: int, shape: WorkShape) -> tuple[Product, ...]:
    """Products of attention over compressed entries on one rank: low-rank queries, one key, the compressor, grouped outputs.

    Shapes:  the columns of ``shape``.
    Units:   elements.
    Holds:   narrow projections run on the shards of sequence parallelism; heads and groups of outputs are divided by TP.
    Source:  transformers 5.23 DeepseekV4Attention, DeepseekV4CSACompressor, DeepseekV4HCACompressor.
    """
    tokens, tp, rank = shape.tokens, shape.tensor_parallel, widths.output_rank
    groups = widths.output_groups / tp
    rows = [
        _product("query down-projection", "attention", shape.shard_tokens, widths.query_rank, hidden),
        _product("query up-projection", "attention", tokens, attention.query_width / tp, widths.query_rank, module="mla_up_proj"),
        _product("key projection", "attention", shape.shard_tokens, attention.head_dim, hidden),
    ]
    if widths.rate:
        wide = (2.0 if widths.overlapping else 1.0) * attention.head_dim
        rows.append(_product("compressor", "attention", shape.shard_tokens, 2.0 * wide, hidden))
    each = attention.output_width / widths.output_groups
    rows.append(_product("grouped output down-projection", "attention", tokens, rank, each, groups=groups))
    rows.append(_product("output projection", "attention", tokens, hidden, groups * rank))
    return tuple(rows)


def index_products(attention: Attention, hidden: int, shape: WorkShape) -> tuple[Product, ...]:
    """Products of the indexer of sparse attention, on every tensor rank: its queries, its key, the weights of its heads.

    Shapes:  the columns of ``shape``.
    Units:   elements.
    Source:  DeepSeek-V3.2 (arXiv 2512.02556) section 2.1; transformers 5.23 DeepseekV32Indexer, DeepseekV4Indexer.
    """
    indexer, compressed = attention.indexer, attention.compressed
    if indexer is None:
        return ()
    rank = attention.latent.query_rank if attention.latent else compressed.query_rank if compressed else None
    detached = is_detached(attention)
    own = indexer.head_dim if compressed is None else 2 * (2 if compressed.overlapping else 1) * indexer.head_dim
    return (
        _product("index queries", "attention", shape.tokens, indexer.num_heads * indexer.head_dim, rank or hidden,
                 detached=detached),
        _product("index key and weights", "attention", shape.shard_tokens, own + indexer.weighs_heads * indexer.num_heads, hidden,
                 low_precision=False,
                 detached=detached),
    )


def mixer_products(mixer: Mixer, hidden: int, shape: WorkShape) -> tuple[Product, ...]:
    """Products of a linear mixer on one rank.

    Shapes:  the columns of ``shape``.
    Units:   elements.
    Source:  ``perf.mixers.mixer_shapes``.
    """
    rows = []
    for name, inner, columns, splits_inner, splits_columns in mixer_shapes(mixer, hidden):
        tokens = shape.tokens if splits_inner or splits_columns else shape.shard_tokens
        inside = inner / shape.tensor_parallel if splits_inner else array(inner)
        outside = columns / shape.tensor_parallel if splits_columns else array(columns)
        rows.append(_product(name, "mixer", tokens, outside, inside))
    return tuple(rows)


def side_products(kind: LayerKind, shape: WorkShape) -> tuple[Product, ...]:
    """Thin projections beside the blocks of a layer, in the base data type.

    Shapes:  the columns of ``shape``.
    Units:   elements.
    Source:  ``domain.model.Side``.
    """
    return tuple(
        _product(side.name, "side", shape.shard_tokens, side.outputs, side.inputs, low_precision=False)
        for side in kind.sides if side.inputs and side.outputs
    )


def mlp_products(mlp: Mlp, hidden: int, shape: WorkShape, *, joined: bool = True) -> tuple[Product, ...]:
    """The products of a dense feed-forward block on one rank; gate and up are one where they are ``joined``.

    Shapes:  the columns of ``shape``.
    Units:   elements.
    Source:  Megatron-Core mlp.py: column-parallel in, row-parallel out.
    """
    tokens, tp = shape.tokens, shape.tensor_parallel
    products, inputs = (1, mlp.num_inputs) if joined else (mlp.num_inputs, 1)
    inside = [_product("mlp in", "mlp", tokens, inputs * mlp.width / tp, hidden, module="mlp")] * products
    return (*inside, _product(LAST_PRODUCT, "mlp", tokens, hidden, mlp.width / tp, module="mlp"))


def routed_tokens(experts: MixtureOfExperts, shape: WorkShape) -> Array:
    """Routed copies of tokens that the experts of one rank see, balanced routing.

        R = T / t_sp * topk * min(T_e, t_sp)

    Symbols: T tokens of a rank; t_sp sequence shards; topk experts per token; T_e expert TP (its ranks see the same copies,
             gathered from their shards; without sequence parallelism each has them all from the start).
    Shapes:  the columns of ``shape``.
    Units:   tokens.
    Source:  docs/sources.md#activations; Megatron-Core token dispatchers.
    """
    return shape.shard_tokens * experts.experts_per_token * np.minimum(shape.expert_tensor_parallel, shape.sequence_shards)


def expert_products(experts: MixtureOfExperts, hidden: int, shape: WorkShape, *, joined: bool = True) -> tuple[Product, ...]:
    """Router, grouped experts and shared experts of one rank.

        experts: E / e groups of R e / E rows;   shared experts as a dense block

    Symbols: R ``routed_tokens``; E experts; e expert parallelism.
    Shapes:  the columns of ``shape``.
    Units:   elements.
    Holds:   the mean rank; what the fullest one has more is ``perf.expert_exchange.imbalance_ratio``.
    Source:  Megatron-Core moe/experts.py, shared_experts.py.
    """
    local = experts.num_experts / shape.expert_parallel
    rows = routed_tokens(experts, shape) / local
    etp = shape.expert_tensor_parallel
    times, inputs = (1, experts.num_inputs) if joined else (experts.num_inputs, 1)
    wide, inner = inputs * experts.expert_width / etp, experts.latent or hidden
    grouped: dict[str, object] = {"groups": local, "grouped": True, "ranks": shape.expert_parallel, "module": "moe"}
    products = [
        _product("router", "router", shape.shard_tokens, experts.num_experts, hidden, low_precision=False, module="moe"),
        *[_product("experts in", "experts", rows, wide, inner, **grouped)] * times,
        _product("experts out", "experts", rows, inner, experts.expert_width / etp, **grouped),
    ]
    if experts.latent:
        products.insert(1, _product("latent of experts", "router", shape.shard_tokens, experts.latent, hidden, module="moe"))
        products.append(_product("out of the latent", "router", shape.shard_tokens, hidden, experts.latent, module="moe"))
    if experts.shared_width:
        tokens, tp, width = shape.tokens, shape.tensor_parallel, experts.shared_width
        inside = _product("shared experts in", "shared", tokens, inputs * width / tp, hidden, module="shared_experts")
        products += [inside] * times
        products.append(_product("shared experts out", "shared", tokens, hidden, width / tp, module="shared_experts"))
    return tuple(products)


def layer_products(
    kind: LayerKind, hidden: int, shape: WorkShape, *, joined: bool = True, cut: bool = False
) -> tuple[Product, ...]:
    """All weight products of a layer, in the order in which the forward runs them; those of one input are one where ``joined``.

    Shapes:  the columns of ``shape``.
    Units:   elements.
    Source:  the blocks' own functions above.
    """
    attention = () if kind.attention is None else attention_products(kind.attention, hidden, shape, joined=joined, cut=cut)
    if kind.mixer is not None:
        attention += mixer_products(kind.mixer, hidden, shape)
    if kind.sides:
        attention += side_products(kind, shape)
    block = kind.feed_forward
    if isinstance(block, MixtureOfExperts):
        return attention + expert_products(block, hidden, shape, joined=joined)
    return attention + mlp_products(block, hidden, shape, joined=joined) if kind.has_block else attention


def head_product(model: Model, shape: WorkShape, vocabulary: Number) -> Product:
    """The output projection onto the vocabulary; it stays in the base data type.

    Shapes:  the columns of ``shape``; vocabulary broadcasts.
    Units:   elements.
    Source:  Megatron-Core ColumnParallelLinear output layer.
    """
    columns = array(vocabulary) / shape.tensor_parallel
    return _product("output layer", "head", shape.tokens, columns, model.embedding_width or model.hidden, low_precision=False)


def mtp_product(model: Model, shape: WorkShape) -> Product:
    """The projection of one multi-token-prediction layer, from hidden state and embedding (2h) to h, column-parallel.

    Shapes:  the columns of ``shape``.
    Units:   elements.
    Source:  DeepSeek-V3 report (arXiv 2412.19437) section 2.2; Megatron-Core multi_token_prediction.py eh_proj.
    """
    return _product("mtp projection", "head", shape.tokens, model.hidden / shape.tensor_parallel, 2.0 * model.hidden)
