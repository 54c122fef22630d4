"""Sparse attention as transformers runs it: the choice is a mask over scores of all pairs, and nothing is skipped."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.perf.arrays import Array
from meshwright.perf.attention import flash_attention_s
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


def _pairs(case: Case, shape: WorkShape) -> Array:
    """All pairs of queries and keys of the micro-batch on a rank."""
    return shape.sequences * float(case.batch.sequence_tokens) ** 2 / shape.context_parallel


def masking_s(kind: LayerKind, case: Case, shape: WorkShape) -> tuple[Array, Array]:
    """What a mask costs over causal attention: the other half of the square, and the indexer's scores in FP32, forward alone.

        t_fwd = core(s^2 / 2) + 2 s^2 H_i d_i / peak_fp32 + q H_i s^2 / bandwidth;   t_bwd = core(s^2 / 2)

    Symbols: H_i, d_i heads and width of the indexer; q ``INDEX_BYTES``; core ``flash_attention_s``.
    Shapes:  the columns of ``shape``; a tuple of two arrays comes back.
    Units:   s.
    Holds:   the indexer learns nothing there (``torch.no_grad``), and every tensor rank scores all of its heads. Devices without a
             figure for FP32 take that of their base data type.
    Source:  transformers 5.24 DeepseekV32Indexer.forward (``q.float()``, ``relu``, sum over heads); a kernel that is given a mask
             is not causal (integrations/sdpa_attention.py).
    """
    attention, device, constants = kind.attention, case.cluster.device, case.calibration.constants
    assert attention is not None, "of layers with attention"
    heads = shape.sequences * attention.num_heads / shape.tensor_parallel
    ahead, behind = flash_attention_s(
        float(case.batch.sequence_tokens) ** 2 / 2.0 / shape.context_parallel, heads,
        case.batch.sequence_tokens / shape.context_parallel, key_dim=attention.head_dim, value_dim=attention.value_dim,
        device=device, constants=constants, dtype=case.training.precision.base_dtype, speed=case.implementation.attention_speed,
    )
    if attention.indexer is None:
        return ahead, behind
    scores = attention.indexer.num_heads * _pairs(case, shape)
    peak = device.peak_flops_per_s.get("fp32", device.peak_flops_per_s[case.training.precision.base_dtype])
    ahead = ahead + 2.0 * scores * attention.indexer.head_dim / peak + memory_bound_s(INDEX_BYTES * scores, device, constants)
    return ahead, behind


def masking_bytes(kind: LayerKind, case: Case, shape: WorkShape) -> tuple[Array, Array]:
    """What a layer keeps for its mask, and what its indexer holds while it scores.

        kept m s^2;   held h H_i s^2

    Symbols: m ``MASK_BYTES``; h ``HELD_BYTES``; H_i heads of the indexer.
    Shapes:  the columns of ``shape``; a tuple of two arrays comes back.
    Units:   bytes.
    Source:  as ``masking_s``.
    """
    pairs, attention = _pairs(case, shape), kind.attention
    assert attention is not None, "of layers with attention"
    return MASK_BYTES * pairs, HELD_BYTES * pairs * (attention.indexer.num_heads if attention.indexer else 0)
