"""How many parameters a rank holds, exactly: Megatron's sharding, which the other frameworks share up to replicas.

Three buckets, because they are communicated and kept apart: split over tensor-parallel ranks, replicated on each of
them, and routed experts, which are split over expert- and expert-tensor-parallel ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from meshwright.domain.model import Mlp
from meshwright.perf.mixers import mixer_weights

if TYPE_CHECKING:
    from collections.abc import Iterable

    from meshwright.domain.attention import Attention, CompressedAttention
    from meshwright.domain.model import LayerKind, MixtureOfExperts, Model, Side

Count: TypeAlias = int | np.integer[Any] | npt.NDArray[np.int64]
"""A whole number, or a column of them (not of floats: division is exact)."""


class ParameterCounts(Struct, frozen=True, kw_only=True):
    """Parameters on one rank. ``sharded`` and ``routed`` are already divided; adding counts adds each bucket."""

    sharded: Count = 0
    """Split over tensor-parallel ranks: column and row linear weights, column biases, embedding, head, sinks."""
    replicated: Count = 0
    """Equal on all tensor-parallel ranks: norms, router, row biases, MLA down projections, shared-expert gate."""
    routed: Count = 0
    """Routed experts, split over expert- and expert-tensor-parallel ranks; row biases are copied over the latter."""

    @property
    def dense(self) -> Count:
        """All but routed experts: what the data-parallel ranks of the dense grid share."""
        return self.sharded + self.replicated

    @property
    def total(self) -> Count:
        """All parameters on the rank."""
        return self.sharded + self.replicated + self.routed

    def __add__(self, other: ParameterCounts) -> ParameterCounts:
        return ParameterCounts(
            sharded=self.sharded + other.sharded,
            replicated=self.replicated + other.replicated,
            routed=self.routed + other.routed,
        )

    def times(self, count: Count) -> ParameterCounts:
        """The same ``count`` times over, for equal layers."""
        return ParameterCounts(sharded=self.sharded * count, replicated=self.replicated * count, routed=self.routed * count)


def padded_vocabulary(vocabulary: int, *, tp: Count = 1, multiple: int = 128) -> Count:
    """Vocabulary rounded up so that every tensor-parallel rank gets a multiple of ``multiple`` rows.

        V' = ceil(V / (multiple tp)) multiple tp

    Units:  rows.
    Source: Megatron-LM ``--make-vocab-size-divisible-by`` (default 128), megatron/training/tokenizer.

    >>> int(padded_vocabulary(50257, tp=8))
    51200
    """
    unit = multiple * np.asarray(tp)
    padded: Count = -(-vocabulary // unit) * unit
    return padded


def layer_parameters(
    model: Model, kind: LayerKind, *, tp: Count = 1, ep: Count = 1, etp: Count = 1, cut: bool = False
) -> ParameterCounts:
    """Parameters of one layer on one rank.

        dense  = (h H d + H d h + n h f) / tp + 2 h d max(K / tp, 1) + norms
        expert = (E / ep) n h f_e / etp          n = 3 where gated, else 2

    Key-value heads fewer than ``tp`` are copied, so that each rank holds at least one, or ``cut`` like everything
    (``Implementation.cuts_query_groups``). Sums over ranks equal the whole model
    (replicated parts counted once) while ``tp`` divides heads and widths, ``ep`` the experts and ``etp`` their width.

    Units:  parameters; degrees may be columns.
    Holds:  Megatron with Transformer Engine: the MLA down projections are replicated (``parallel_mode='duplicated'``);
            the local spec splits them. Norms over all heads (OLMo-2) are taken as replicated.
    Source: Megatron-LM d98e8a64 megatron/core/transformer (attention, multi_latent_attention, moe/*);
            docs/sources.md#parameters-of-a-rank.
    """
    attention, block = kind.attention, kind.feed_forward
    counts = ParameterCounts() if attention is None else _any_attention(model, attention, tp=tp, cut=cut)
    if kind.mixer is not None:
        split, copied = mixer_weights(kind.mixer, model.hidden)
        counts += ParameterCounts(sharded=split // np.asarray(tp), replicated=copied)
    norms = ParameterCounts(replicated=kind.norms * norm_parameters(model))
    if kind.sides:
        norms += side_parameters(kind.sides)
    if isinstance(block, Mlp):
        return counts + norms + (_mlp(model, block, tp=tp) if kind.has_block else ParameterCounts())
    return counts + norms + _experts(model, block, tp=tp, ep=ep, etp=etp)


def side_parameters(sides: Iterable[Side]) -> ParameterCounts:
    """Parameters of thin projections beside the blocks, equal on all tensor ranks.

        i o + w

    Units:   parameters.
    Source:  transformers 5.23: Gemma3nTextAltUp, Gemma3nTextLaurelBlock, DeepseekV4HyperConnection.
    """
    return ParameterCounts(replicated=sum(side.inputs * side.outputs + side.weights for side in sides))


def _any_attention(model: Model, attention: Attention, *, tp: Count, cut: bool) -> ParameterCounts:
    """Attention of any form, with its indexer and its output gate."""
    if attention.compressed:
        counts = _compressed_attention(model, attention, attention.compressed, tp=tp)
    elif attention.latent:
        counts = _latent_attention(model, attention, tp=tp)
    else:
        counts = _attention(model, attention, tp=tp, cut=cut)
    if attention.gate != "none":
        joined = attention.gate == "full"  # with the queries, whose bias it shares
        width = attention.output_width if joined else attention.num_heads
        counts += ParameterCounts(sharded=(model.hidden + (joined and attention.query_bias)) * width // np.asarray(tp))
    if attention.indexer is not None:
        counts += ParameterCounts(replicated=indexer_parameters(model, attention))
    return counts


def indexer_parameters(model: Model, attention: Attention) -> int:
    """Parameters of what chooses the tokens of sparse attention, on every tensor rank.

        r H_i d_i + h d_i + 2 d_i + h H_i          queries from the latent, one key and its norm (or one of each), weights of heads
        compressed: keys and their gate 2 d_i wide, positions of a block, a norm without bias

    Symbols: r width of the query latent; H_i, d_i heads and width of the indexer.
    Units:   parameters.
    Source:  transformers 5.23 DeepseekV32Indexer, GlmMoeDsaIndexer, DeepseekV4Indexer.
    """
    indexer, compressed = attention.indexer, attention.compressed
    assert indexer is not None
    rank = attention.latent.query_rank if attention.latent else compressed.query_rank if compressed else None
    weights = (rank or model.hidden) * indexer.num_heads * indexer.head_dim
    weights += model.hidden * indexer.num_heads if indexer.weighs_heads else 0
    if compressed:
        wide = (2 if compressed.overlapping else 1) * indexer.head_dim
        return weights + 2 * model.hidden * wide + compressed.rate * wide + indexer.head_dim
    return weights + model.hidden * indexer.head_dim + 2 * indexer.head_dim


def _compressed_attention(model: Model, attention: Attention, widths: CompressedAttention, *, tp: Count) -> ParameterCounts:
    """Attention over compressed entries: low-rank queries, one key and value, grouped low-rank outputs, the compressor.

    Queries and outputs are divided by heads and groups; latents, key and compressor stand on every rank.
    """
    h, d = model.hidden, attention.head_dim
    sharded = widths.query_rank * attention.query_width + attention.output_width * widths.output_rank
    sharded += widths.output_groups * widths.output_rank * h + (attention.num_heads if attention.sinks else 0)
    replicated = h * widths.query_rank + widths.query_rank + h * d + d
    if widths.rate:
        wide = (2 if widths.overlapping else 1) * d
        replicated += 2 * h * wide + widths.rate * wide + d
    return ParameterCounts(sharded=sharded // np.asarray(tp), replicated=replicated)


def norm_parameters(model: Model, width: int | None = None) -> int:
    """Weights of one norm of hidden width: h for RMS, 2 h with a bias, 0 without weights.

    Units:  parameters.
    Source: torch.nn.LayerNorm, torch.nn.RMSNorm.
    """
    weights = {"rms": 1, "layer": 2, "layer-no-bias": 1, "none": 0}[model.norm]
    return weights * (model.hidden if width is None else width)


def embedding_parameters(model: Model, *, tp: Count = 1, vocabulary: Count | None = None) -> ParameterCounts:
    """Parameters in front of the first layer: token table, position table, norm, projection to the hidden width.

        V w / tp + rows h + norm  (+ w h where the embedding is w wide)

    Units:  parameters; ``vocabulary`` is padded by the caller where the framework pads it.
    Source: Megatron-LM VocabParallelEmbedding; position embeddings are replicated (LanguageModelEmbedding).
    """
    rows = model.vocabulary if vocabulary is None else vocabulary
    width = model.embedding_width or model.hidden
    replicated = model.position_table * model.hidden
    if model.embedding_norm:
        replicated += norm_parameters(model)
    if model.embedding_width:
        replicated += width * model.hidden
    table = rows * width // tp
    if model.lookups or model.front:
        table = table + sum(each.rows * each.width for each in model.lookups) // np.asarray(tp)
        replicated += int(side_parameters(model.front).replicated)
    if model.tower is not None and model.tower.trained:
        replicated += model.tower.parameters
    return ParameterCounts(sharded=table, replicated=replicated)


def frozen_parameters(model: Model) -> int:
    """Parameters of a frozen tower in front of the first layer, whole on every rank of the first stage: weights and nothing else.

    Units:  parameters.
    Source: ``domain.tower``.
    """
    return model.tower.parameters if model.tower is not None and not model.tower.trained else 0


def head_parameters(
    model: Model, *, tp: Count = 1, vocabulary: Count | None = None, copied: bool | npt.NDArray[np.bool_] = False
) -> ParameterCounts:
    """Parameters of the output projection behind the final norm.

        (V w + V where biased) / tp   untied;   0 where tied to the embedding, a copy of it where ``copied``

    Units:  parameters. ``copied``: a tied head on another pipeline stage than the embedding holds a second table.
    Source: Megatron-LM ColumnParallelLinear output layer, ``share_embeddings_and_output_weights``.
    """
    rows = model.vocabulary if vocabulary is None else vocabulary
    width = model.embedding_width or model.hidden
    has_table = np.asarray(copied).astype(np.int64) if model.tied_embeddings else 1
    bias = rows if model.head_bias else 0
    projection = width * model.hidden if model.embedding_width else 0
    projection += int(side_parameters(model.back).replicated) if model.back else 0
    return ParameterCounts(sharded=(rows * width * has_table + bias) // tp, replicated=projection)


def final_norm_parameters(model: Model) -> ParameterCounts:
    """Parameters of the norm behind the last layer.

    Units:  parameters, replicated.
    Source: Megatron-LM TransformerBlock.final_layernorm.
    """
    return ParameterCounts(replicated=norm_parameters(model) if model.final_norm else 0)


def mtp_parameters(
    model: Model, *, tp: Count = 1, ep: Count = 1, etp: Count = 1, cut: bool = False
) -> ParameterCounts:
    """Parameters of all multi-token-prediction layers: a layer of the last kind (or several), a 2h x h projection, three norms.

    Units:  parameters. Embedding and head are the main model's.
    Source: DeepSeek-V3, arXiv 2412.19437 section 2.2; Megatron-LM MultiTokenPredictionLayer (eh_proj by columns).
    """
    layer = ParameterCounts()
    for index in model.mtp_pattern or model.pattern[-1:]:
        layer += layer_parameters(model, model.kinds[index], tp=tp, ep=ep, etp=etp, cut=cut)
    own = ParameterCounts(sharded=2 * model.hidden * model.hidden // np.asarray(tp), replicated=3 * norm_parameters(model))
    return (layer + own).times(model.num_mtp_layers)


def total_parameters(model: Model, *, mtp: bool = False) -> int:
    """Parameters of the whole model, each counted once, a frozen tower's too; multi-token prediction only where asked for.

    Units:  parameters.
    Source: sum of the functions above at degree 1; held to the meta-device models of transformers by an oracle test.
    """
    counts = embedding_parameters(model) + head_parameters(model) + final_norm_parameters(model)
    for index, kind in enumerate(model.kinds):
        counts += layer_parameters(model, kind).times(model.pattern.count(index))
    if mtp:
        counts += mtp_parameters(model)
    return int(counts.total) + frozen_parameters(model)


def met_parameters(model: Model, tokens: float | npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Parameters that at least one of so many tokens meets. Embedding and head count.

        met = total - sum over MoE layers E (1 - k/E)^T n h f_e

    Symbols: T ``tokens``, each sent to k of E experts, by a choice of its own.
    Shapes:  tokens broadcasts.
    Units:   parameters.
    Holds:   balanced routing; one token meets ``active_parameters``.
    Source:  the chance that an expert gets none of T tokens.
    """
    idle: npt.NDArray[np.float64] = np.asarray(0.0)
    for index, kind in enumerate(model.kinds):
        experts = kind.experts
        if experts:
            missed = (1.0 - experts.experts_per_token / experts.num_experts) ** np.asarray(tokens, dtype=np.float64)
            idle = idle + model.pattern.count(index) * experts.num_experts * missed * _expert_size(model, experts)
    return np.asarray(total_parameters(model) - idle)


def active_parameters(model: Model) -> int:
    """Parameters that one token meets: all but the routed experts that it is not sent to. Embedding and head count.

        active = total - sum over MoE layers (E - k) n h f_e

    Units:  parameters.
    Source: the convention of the model cards (Qwen3-235B-A22B: 22 B).
    """
    idle = 0
    for index, kind in enumerate(model.kinds):
        experts = kind.experts
        if experts:
            unused = experts.num_experts - experts.experts_per_token
            idle += model.pattern.count(index) * unused * _expert_size(model, experts)
    return total_parameters(model) - idle


def _attention(model: Model, attention: Attention, *, tp: Count, cut: bool) -> ParameterCounts:
    """Multi-head, grouped-query or multi-query attention."""
    h, d = model.hidden, attention.head_dim
    each = 0 if attention.borrows_key_value else d if attention.shared_key_value else d + attention.value_dim
    heads = attention.num_key_value_heads
    key_value_width = each * heads // np.asarray(tp) if cut else each * np.maximum(heads // np.asarray(tp), 1)
    own = h * (attention.query_width + attention.output_width)
    if attention.query_bias:
        own += attention.query_width
    if attention.sinks:
        own += attention.num_heads
    sharded = own // np.asarray(tp) + (h + attention.key_value_bias) * key_value_width
    replicated = h if attention.output_bias else 0
    if attention.query_key_norm_weight and attention.query_key_norm != "none":
        queries, keys = (1, 1) if attention.query_key_norm == "head" else (attention.num_heads, attention.num_key_value_heads)
        replicated += (queries + (0 if attention.borrows_key_value else keys)) * norm_parameters(model, d)
    return ParameterCounts(sharded=sharded, replicated=replicated)


def _latent_attention(model: Model, attention: Attention, *, tp: Count) -> ParameterCounts:
    """Multi-head latent attention: low-rank down projections and their norms on every rank, up projections split."""
    latent = attention.latent
    assert latent is not None
    h, heads = model.hidden, attention.num_heads
    query_in = latent.query_rank or h
    sharded = query_in * attention.query_width
    sharded += latent.key_value_rank * heads * (latent.nope_dim + latent.value_dim) + heads * latent.value_dim * h
    sharded += heads if attention.sinks else 0
    replicated = h * (latent.key_value_rank + latent.rope_dim) + latent.key_value_rank
    if latent.query_rank:
        replicated += h * latent.query_rank + latent.query_rank
    if attention.output_bias:
        replicated += h
    return ParameterCounts(sharded=sharded // np.asarray(tp), replicated=replicated)


def _mlp(model: Model, mlp: Mlp, *, tp: Count) -> ParameterCounts:
    """A dense feed-forward block."""
    sharded = (mlp.num_inputs + 1) * model.hidden * mlp.width
    if mlp.bias:
        sharded += mlp.num_inputs * mlp.width
    return ParameterCounts(sharded=sharded // np.asarray(tp), replicated=model.hidden if mlp.bias else 0)


def _experts(model: Model, experts: MixtureOfExperts, *, tp: Count, ep: Count, etp: Count) -> ParameterCounts:
    """Router, shared experts (split like a dense block) and routed experts."""
    h = model.hidden
    replicated = h * experts.num_experts
    if experts.router_bias:
        replicated += experts.num_experts
    if experts.shared_gate:
        replicated += h
    if experts.latent:
        replicated += 2 * h * experts.latent
    own = _expert_hidden(model, experts) if experts.expert_bias else 0
    per_expert = (_expert_size(model, experts) - own) // np.asarray(etp) + own
    return ParameterCounts(
        sharded=(experts.num_inputs + 1) * h * experts.shared_width // np.asarray(tp),
        replicated=replicated,
        routed=experts.num_experts // np.asarray(ep) * per_expert,
    )


def _expert_size(model: Model, experts: MixtureOfExperts) -> int:
    """Parameters of one routed expert."""
    hidden = _expert_hidden(model, experts)
    size = (experts.num_inputs + 1) * hidden * experts.expert_width
    if experts.expert_bias:
        size += experts.num_inputs * experts.expert_width + hidden
    return size


def _expert_hidden(model: Model, experts: MixtureOfExperts) -> int:
    """Width of what goes into an expert and comes out of it."""
    return experts.latent or model.hidden
