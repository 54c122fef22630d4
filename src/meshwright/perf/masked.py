"""Sparse attention as transformers runs it: the choice is a mask over scores of all pairs, and nothing is skipped."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.perf.arrays import Array
from meshwright.perf.attention import core_pairs, flash_attention_s
from meshwright.perf.elementwise import memory_bound_s

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.model import LayerKind
    from meshwright.perf.operators import WorkShape

INDEX_BYTES = 24.0
"""Moved per FP32 score of an indexer's head: written, scaled, rectified (read and written each), and read to be summed."""
HELD_BYTES = 8.0
"""Held per score: the scaled one and the rectified one."""
MASK_BYTES = 2.0
"""Per pair of a sequence: the mask that the attention core keeps, in the type of the activations."""


def is_masked(kind: LayerKind, case: Case) -> bool:
    """Whether a layer chooses tokens that the implementation only masks (``Implementation.masks_selection``).

    Units:   none.
    Source:  transformers 5.24 DeepseekV32Attention, GlmMoeDsaAttention (eager and sdpa), MiniMaxM3VLAttention.
    """
    return case.implementation.masks_selection and kind.attention is not None and kind.attention.selected_tokens is not None


def masked_kind(kind: LayerKind) -> LayerKind:
    """The layer as its products and kept tensors are: keys and values of every head, and no choice.

    Units:   none.
    Holds:   without the projections of the indexer, less than a hundredth of a layer's.
    Source:  transformers 5.24 DeepseekV32Attention.expand_kv.
    """
    assert kind.attention is not None, "of layers with attention"
    return replace(kind, attention=replace(kind.attention, selected_tokens=None, indexer=None))


def _pairs(kind: LayerKind, case: Case, shape: WorkShape) -> tuple[Array, Array]:
    """Pairs of a sequence on a rank that are masked, and those that an indexer scores: all, and with entries of r tokens
    s^2 + s^2 / r and s^2 / r."""
    square = float(case.batch.sequence_tokens) ** 2 / shape.context_parallel
    compressed = kind.attention.compressed if kind.attention is not None else None
    if compressed is None or not compressed.rate:
        return square, square
    return square + square / compressed.rate, square / compressed.rate


def masking_s(kind: LayerKind, case: Case, shape: WorkShape) -> tuple[Array, Array]:
    """What a mask costs over attention without a choice: the rest of all pairs, and the indexer's scores in FP32, forward alone.

        t_fwd = core(a - p) + 2 i H_i d_i / peak_fp32 + q H_i i / bandwidth;   t_bwd = core(a - p)

    Symbols: a all pairs, i those that the indexer scores (both s^2; with compressed entries of r tokens s^2 + s^2 / r, and
             s^2 / r); p those of ``masked_kind``, half of the square without a window; H_i, d_i heads and width of the indexer;
             q ``INDEX_BYTES``; core ``flash_attention_s``.
    Shapes:  the columns of ``shape``; a tuple of two arrays comes back.
    Units:   s.
    Holds:   the indexer learns nothing there (``torch.no_grad``), and every tensor rank scores all of its heads. Devices without a
             figure for FP32 take that of their base data type.
    Source:  transformers 5.24 DeepseekV32Indexer.forward (``q.float()``, ``relu``, sum over heads), DeepseekV4IndexerScorer,
             DeepseekV4Attention (keys and entries in one tensor, ``block_bias``); a kernel that is given a mask is not causal
             (integrations/sdpa_attention.py).
    """
    attention, device, constants = kind.attention, case.cluster.device, case.calibration.constants
    assert attention is not None, "of layers with attention"
    heads = shape.sequences * attention.num_heads / shape.tensor_parallel
    (every, scored), plain = _pairs(kind, case, shape), masked_kind(kind).attention
    assert plain is not None, "as the layer has"
    dense = core_pairs(plain, case.batch.sequence_tokens, case.batch.mean_square_document_tokens) / shape.context_parallel
    ahead, behind = flash_attention_s(
        every - dense, heads,
        case.batch.sequence_tokens / shape.context_parallel, key_dim=attention.head_dim, value_dim=attention.value_dim,
        device=device, constants=constants, dtype=case.training.precision.base_dtype, speed=case.implementation.attention_speed,
    )
    if attention.indexer is None:
        return ahead, behind
    scores = shape.sequences * attention.indexer.num_heads * scored
    peak = device.peak_flops_per_s.get("fp32", device.peak_flops_per_s[case.training.precision.base_dtype])
    ahead = ahead + 2.0 * scores * attention.indexer.head_dim / peak + memory_bound_s(INDEX_BYTES * scores, device, constants)
    return ahead, behind


def masking_bytes(kind: LayerKind, case: Case, shape: WorkShape) -> tuple[Array, Array]:
    """What a layer keeps for its mask, and what its indexer holds while it scores.

        kept m a;   held h H_i i

    Symbols: m ``MASK_BYTES``; h ``HELD_BYTES``; a, i, H_i as in ``masking_s``.
    Shapes:  the columns of ``shape``; a tuple of two arrays comes back.
    Units:   bytes.
    Source:  as ``masking_s``.
    """
    (every, scored), attention = _pairs(kind, case, shape), kind.attention
    assert attention is not None, "of layers with attention"
    heads = attention.indexer.num_heads if attention.indexer else 0
    return MASK_BYTES * shape.sequences * every, HELD_BYTES * shape.sequences * scored * heads
