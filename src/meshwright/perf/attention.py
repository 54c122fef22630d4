"""The attention core: how much of the score matrix is computed, and how long that takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.perf.arrays import Array, Number, array, ceil_divide

if TYPE_CHECKING:
    from meshwright.domain.attention import Attention
    from meshwright.domain.calibration import Constants
    from meshwright.domain.cluster import Device


def attended_pairs(
    sequence_tokens: Number, window_tokens: int | None, mean_square_document_tokens: float | None, *, causal: bool = True
) -> Array:
    """Query-key pairs of one sequence that the attention core must compute.

        full s^2;   causal s^2 / 2;   window w < s: s w - w^2 / 2;   packed: sum of len^2 (/ 2) of its documents

    Shapes:  sequence_tokens broadcasts.
    Units:   pairs.
    Holds:   window and packing together take the smaller of the two; the diagonal's half token is left out.
    Source:  docs/sources.md#flops; Megatron's own throughput line counts packed squares likewise since 2026.
    """
    s = array(sequence_tokens)
    square = np.minimum(np.square(s), mean_square_document_tokens) if mean_square_document_tokens else np.square(s)
    if not causal:
        return square
    half = square / 2.0
    if window_tokens is None:
        return half
    w = np.minimum(float(window_tokens), s)
    return np.minimum(half, s * w - np.square(w) / 2.0)


def core_pairs(
    attention: Attention, sequence_tokens: Number, mean_square_document_tokens: float | None, *, causal: bool = True
) -> Array:
    """Query-key pairs that the core of one attention block computes for a sequence.

        selected k: s k - k^2 / 2, no more than without
        compressed: window, and entries of r tokens: s^2 / (2 r), or with k chosen of them s k - r k^2 / 2

    Shapes:  sequence_tokens broadcasts.
    Units:   pairs.
    Holds:   not ``causal``: all s^2, whatever is selected (the convention of frameworks that count so); of attention that looks
             both ways there is no other figure.
    Source:  ``attended_pairs``; DeepSeek-V3.2 (arXiv 2512.02556) section 2.1; transformers 5.23 DeepseekV4Attention.
    """
    causal = causal and attention.causal
    window = attention.window_tokens if causal else None
    pairs = attended_pairs(sequence_tokens, window, mean_square_document_tokens, causal=causal)
    if not causal or (attention.selected_tokens is None and attention.compressed is None):
        return pairs
    if attention.compressed is None:
        return np.minimum(pairs, attended_pairs(sequence_tokens, attention.selected_tokens, mean_square_document_tokens))
    return pairs + compressed_pairs(attention, sequence_tokens, mean_square_document_tokens)


def core_widths(attention: Attention) -> tuple[float, float]:
    """Widths of a key and a value in the attention core, as the kernel computes it.

        selected tokens of latent attention: kv rank + rope, kv rank;   else the head's own

    Units:   elements.
    Holds:   sparse latent attention works on the latents themselves (one key and value for all heads), else each query would expand
             the keys that it alone has chosen.
    Source:  DeepSeek-V3.2 (arXiv 2512.02556) section 2.1: MQA mode of MLA.
    """
    latent = attention.latent
    if latent is None or attention.selected_tokens is None:
        return float(attention.head_dim), float(attention.value_dim)
    return float(latent.key_value_rank + latent.rope_dim), float(latent.key_value_rank)


def compressed_pairs(
    attention: Attention, sequence_tokens: Number, mean_square_document_tokens: float | None, *, selected: bool = True
) -> Array:
    """Pairs of queries and compressed entries of a sequence: those that attention looks at, or all that the indexer scores.

    Shapes:  sequence_tokens broadcasts.
    Units:   pairs.
    Source:  as ``core_pairs``.
    """
    rate = attention.compressed.rate if attention.compressed else 0
    if not rate:
        return array(0.0) * sequence_tokens
    every = attended_pairs(sequence_tokens, None, mean_square_document_tokens) / rate
    if attention.selected_tokens is None or not selected:
        return every
    chosen = np.minimum(float(attention.selected_tokens), array(sequence_tokens) / rate)
    return np.minimum(every, array(sequence_tokens) * chosen - rate * np.square(chosen) / 2.0)


def index_flops(attention: Attention, sequence_tokens: Number, mean_square_document_tokens: float | None) -> Array:
    """Forward work of the indexer's scores for one sequence: every query head against every key (or compressed entry) before it.

        2 pairs H_i (d_i + 1)      with the weighted sum over heads;   compressed: 2 pairs H_i d_i

    Shapes:  sequence_tokens broadcasts.
    Units:   FLOP.
    Source:  DeepSeek-V3.2 (arXiv 2512.02556) equation 1; Megatron-Bridge training/utils/flop_utils.py.
    """
    indexer = attention.indexer
    if indexer is None:
        return array(0.0) * sequence_tokens
    if attention.compressed is None:
        pairs = attended_pairs(sequence_tokens, None, mean_square_document_tokens)
        return 2.0 * pairs * indexer.num_heads * (indexer.head_dim + 1)
    pairs = compressed_pairs(attention, sequence_tokens, mean_square_document_tokens, selected=False)
    return 2.0 * pairs * indexer.num_heads * indexer.head_dim


def is_detached(attention: Attention) -> bool:
    """Whether the indexer learns from a loss of its own, so that no gradient passes through it into the layer's input.

    Units:   none.
    Source:  DeepSeek-V3.2 (arXiv 2512.02556) section 2.1.1; Megatron-Bridge counts indexers of compressed attention as all else.
    """
    return attention.indexer is not None and attention.compressed is None


def index_loss_flops(
    attention: Attention, sequence_tokens: Number, mean_square_document_tokens: float | None
) -> tuple[Array, Array]:
    """Work of the indexer's own loss for one sequence, forward and backward: attention's scores over the chosen tokens, which are
    its target, and the gradients of its own scores there.

        forward 2 pairs H d_k;   backward 4 pairs H_i (d_i + 1)

    Shapes:  sequence_tokens broadcasts; a tuple of two arrays comes back.
    Units:   FLOP.
    Holds:   the sparse loss: pairs are those that attention looks at.
    Source:  DeepSeek-V3.2 (arXiv 2512.02556) equation 4; Megatron-Bridge flop_utils.py (dsa_indexer_use_sparse_loss).
    """
    indexer = attention.indexer
    if indexer is None or not is_detached(attention):
        return array(0.0) * sequence_tokens, array(0.0) * sequence_tokens
    pairs = core_pairs(attention, sequence_tokens, mean_square_document_tokens)
    own = 4.0 * pairs * indexer.num_heads * (indexer.head_dim + 1)
    return attention_flops(pairs, attention.num_heads, core_widths(attention)[0], 0.0), own


def attention_flops(pairs: Number, heads: Number, key_dim: float, value_dim: float) -> Array:
    """Forward work of scores and their product with the values; backward is twice that in model FLOPs.

        2 pairs heads (d_k + d_v)

    Shapes:  pairs and heads broadcast.
    Units:   FLOP.
    Source:  two batched products; a flash backward recomputes the scores, 5/2 of forward in hardware FLOPs.
    """
    return 2.0 * array(pairs) * heads * (key_dim + value_dim)


def flash_attention_s(
    pairs: Number,
    heads: Number,
    sequence_tokens: Number,
    *,
    key_dim: float,
    value_dim: float,
    device: Device,
    constants: Constants,
    dtype: str = "bf16",
    speed: float = 1.0,
) -> tuple[Array, Array]:
    """Forward and backward time of the fused attention core for ``heads`` heads (all sequences of a micro-batch counted).

    Work groups of R query rows fill the units in waves; small batch x heads leaves units idle.

        groups = heads * ceil(s / R);  x = groups / U;  fill = x / (x + w (ceil(x) - x))
        t_fwd = flops / (peak * e_f * fill);   t_bwd = 5/2 flops / (peak * e_b * fill)

    Symbols: R rows of a work group; U units; e_f, e_b sustained shares of the peak, times ``speed``.
    Shapes:  pairs, heads, sequence_tokens broadcast; a tuple of two arrays comes back.
    Units:   pairs -> s.
    Holds:   head dims of 64 to 256; below 128 the shares fall with d / 128 to the power 1/4.
    Source:  SimuMax B200 (SDPA 0.706 forward, 0.694 backward); Primus tile model (docs/sources.md#attention);
             FlashAttention-2 and -3 papers (arXiv 2307.08691, 2407.08608).
    """
    flops = attention_flops(pairs, heads, key_dim, value_dim)
    groups = array(heads) * ceil_divide(sequence_tokens, constants.attention_rows) / device.num_units
    fill = groups / (groups + constants.gemm_wave_ratio * (np.ceil(groups) - groups))
    small = np.power(np.minimum(1.0, key_dim / 128.0), 0.25)
    rate = device.peak_flops_per_s[dtype] * fill * small * speed
    return flops / (rate * constants.attention_forward_ratio), 2.5 * flops / (rate * constants.attention_backward_ratio)
