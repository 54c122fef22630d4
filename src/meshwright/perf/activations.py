"""What a layer keeps for backward, from the implementation's table of saved tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.perf.arrays import Array, Number, array
from meshwright.perf.operators import gathered_columns
from meshwright.perf.widths import has_part, row_elements, row_exists

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.implementation import Implementation, Part, Width
    from meshwright.domain.model import LayerKind
    from meshwright.domain.training import Precision
    from meshwright.perf.operators import WorkShape


RING_WIDTHS: tuple[Width, ...] = ("query", "key", "value")
"""What a ring of context parallelism sends round and sums."""


def saved_bytes(
    kind: LayerKind,
    hidden: int,
    sequence_tokens: Number,
    shape: WorkShape,
    *,
    implementation: Implementation,
    precision: Precision,
    headroom_ratio: Number = 1.0,
    recomputed: tuple[str, ...] = (),
    parts: tuple[Part, ...] | None = None,
    inputs_of: tuple[str, ...] | None = None,
) -> Array:
    """Bytes that one layer, some parts of it, or inputs of some modules keep for the backward of one micro-batch on one rank.

        sum over rows of  bytes * elements;   rows dropped by a recomputed module are left out, rows that one keeps are in

    Symbols: headroom_ratio fullest expert rank over the mean; recomputed names of selective-recompute modules.
    Shapes:  the columns of ``shape``.
    Units:   bytes.
    Holds:   ``megatron-2022`` gives Korthikanti's s b h (10 + 24/t + 5 a s / (h t)) exactly.
    Source:  Korthikanti et al. 2022 (arXiv 2205.05198) section 4; docs/sources.md#activations for the other tables.
    """
    total = array(0.0)
    for row in implementation.saved:
        if not has_part(kind, row.part) or (parts is not None and row.part not in parts):
            continue
        if inputs_of is not None and row.offload not in inputs_of:
            continue
        if any(module in recomputed for module in row.modules):
            continue
        if row.kept_by and not any(module in recomputed for module in row.kept_by):
            continue
        exists = row_exists(row.only, kind, shape)
        if exists is False:
            continue
        size = precision.saved_input_bytes / 2.0 * row.bytes_per_element if row.linear_input else row.bytes_per_element
        elements = row_elements(row.width, row.part, row.shard, kind, hidden, sequence_tokens, shape)
        kept = size * elements * (headroom_ratio if row.part == "experts" else 1.0)
        total = total + (kept if exists is None else np.where(exists, kept, 0.0))
    return total


def headroom_ratio(case: Case, shape: WorkShape) -> Array:
    """Routed tokens of the fullest expert rank over the mean, in memory.

        1 where routing is forced to be balanced or one rank has all experts (e = 1), else ``expert_headroom_ratio``

    Symbols: e expert parallelism. A token's copies are all on one rank where e = 1, whichever experts they go to.
    Shapes:  the columns of ``shape``.
    Units:   ratio.
    Holds:   dropless routing; the mean does not depend on e (``perf.operators.routed_tokens``).
    Source:  ``perf.expert_exchange.imbalance_ratio``, the same in time; Megatron-Core --moe-router-force-load-balancing.
    """
    if case.training.balanced_routing:
        return array(1.0)
    return np.where(shape.expert_parallel > 1.0, case.calibration.constants.expert_headroom_ratio, 1.0)


def checkpoint_bytes(hidden: int, shape: WorkShape, *, streams: int = 1) -> Array:
    """Bytes of a layer's input, all that full recomputation keeps.

        2 n T h / t_sp

    Symbols: n residual ``streams``.
    Shapes:  the columns of ``shape``.
    Units:   bytes.
    Holds:   whole input on every tensor rank without sequence parallelism.
    Source:  Korthikanti et al. 2022 section 5 (2 s b h).
    """
    return 2.0 * shape.shard_tokens * hidden * streams


def piled_bytes(
    hidden: int,
    shape: WorkShape,
    *,
    implementation: Implementation,
    layers: Array,
    in_flight: Array,
    pipeline_parallel: Array,
    tensor_nodes: Array,
    nodes: Array,
    run_ahead_ratio: Number,
) -> Array:
    """Bytes of whole tensors that wait for a communication stream while the host runs ahead of the device.

        r a d s T h l n   for t > 1;   a = 1 without a pipeline, else 1 - 2/P;   d = (1 - (N_t - 1)/3)+ (1 - (N/64)^2)+ under one

    A tensor that another stream has used is not free for the allocator when the host is done with it, but when the device is.
    Without a pipeline nothing makes the host wait. Stage 0 of a pipeline launches P - 1 micro-batches before it waits for a
    gradient: two stages hardly run ahead, many do. Tensor parallelism across nodes and a large cluster slow the host down to
    the pace of the device.

    Symbols: r ``run_ahead_ratio``; s ``streamed_bytes``; T tokens; h hidden size; l layers of the stage; n micro-batches in flight;
             P stages; N_t nodes that a tensor-parallel group spans; N nodes in use.
    Shapes:  everything broadcasts; rows of stages first.
    Units:   bytes.
    Holds:   not part of what must fit: the allocator waits for the device and reuses the blocks before it fails.
    Source:  PyTorch Tensor.record_stream; the form of a and d is read off 783 nanotron runs (memory grows by s T h l n at
             full rate with P = 1 and P >= 8 on one node per TP group, not at all with TP 32 or 64 nodes under a pipeline).
    """
    ahead = np.where(np.asarray(pipeline_parallel) > 1.0, 1.0 - 2.0 / pipeline_parallel, 1.0)
    pace = np.maximum(0.0, 1.0 - (tensor_nodes - 1.0) / 3.0) * np.maximum(0.0, 1.0 - (nodes / 64.0) ** 2)
    share = run_ahead_ratio * ahead * np.where(np.asarray(pipeline_parallel) > 1.0, pace, 1.0)
    handed = np.where(shape.tensor_parallel > 1.0, implementation.streamed_bytes * shape.tokens * hidden, 0.0)
    return share * handed * layers * in_flight


def working_bytes(
    kind: LayerKind, hidden: int, shape: WorkShape, *,
    implementation: Implementation, weights_frozen: bool = False, slice_tokens: int = 0,
) -> Array:
    """Transient bytes while one layer runs backward: gradients of its widest tensors and gathered inputs.

        2 (T h * 2 + max(T (g f + f) / t, R (g f + f) / T_e, 3 q + 2 W)) + w g f h / t
        2 (T h * 2 + max(x T g f / t, R g f / T_e, 2 R h))   where operators free what they kept (``frees_operators``)

    In the second form the gradient of the activation takes the place of the activation, whose product has run; results of experts
    that are weighted afterwards have two gradients at a time, before and behind their weight; and attention, whose turn comes when
    what the block kept is gone, is ``attention_working_bytes``.

    Symbols: g f gate and up widths; f width of the feed-forward block; R routed copies; q queries and what a mixer convolves; W
             queries, keys and values that are gathered where query groups are cut; w ``weight_gradient_bytes``, of a dense
             block's first product, where weights are trained; x the share of the tokens that a slice of the block has
             (``Launch.slice_tokens``), 1 without slices.
    Shapes:  the columns of ``shape``.
    Units:   bytes.
    Holds:   upper estimate; the allocator reuses most of it from layer to layer.
    Source:  walk of the backward as in SimuMax (peak without cache), docs/sources.md#activations; PyTorch autograd.
    """
    part = "experts" if kind.experts else "mlp"
    shard = "tensor"
    wide = row_elements("mlp_inputs", part, shard, kind, hidden, 0.0, shape)  # type: ignore[arg-type]
    narrow = row_elements("mlp_width", part, shard, kind, hidden, 0.0, shape)  # type: ignore[arg-type]
    attention = array(0.0) if kind.attention is None else row_elements("query", "attention", "tensor", kind, hidden, 0.0, shape)
    if kind.mixer is not None:
        attention = attention + row_elements("mixer_convolved", "mixer", "tensor", kind, hidden, 0.0, shape)
    gathered = array(0.0)
    if implementation.cuts_query_groups and kind.attention is not None:
        gathered = shape.tokens * gathered_columns(kind.attention, shape.tensor_parallel)
    weights = array(0.0)
    if kind.experts is None and not weights_frozen:
        weights = implementation.weight_gradient_bytes * wide / shape.tokens * hidden
    block = np.maximum(wide + narrow, 3.0 * attention + 2.0 * gathered)
    if implementation.frees_operators:
        block = wide * np.minimum(1.0, slice_tokens / shape.tokens) if slice_tokens and kind.experts is None else wide
        if kind.experts is not None:
            block = np.maximum(block, 2.0 * row_elements("hidden", "experts", "none", kind, hidden, 0.0, shape))
    return 2.0 * (2.0 * shape.tokens * hidden + block) + weights


def attention_working_bytes(
    kind: LayerKind, hidden: int, shape: WorkShape, implementation: Implementation, *, ring: bool = True
) -> Array:
    """Transient bytes while attention runs backward, on top of what attention alone keeps: the block behind it is done.

        2 (T h * 2) + max(6 Q, ring)

    Symbols: Q elements of queries of the rank; ring ``ring_backward_bytes``, where context parallelism is a ring.
    Shapes:  the columns of ``shape``.
    Units:   bytes.
    Holds:   as ``working_bytes``.
    Source:  ``working_bytes``, ``ring_backward_bytes``.
    """
    if kind.attention is None:
        return array(0.0)
    gradients = 6.0 * row_elements("query", "attention", "tensor", kind, hidden, 0.0, shape)
    around = ring_backward_bytes(kind, shape, implementation) if ring else array(0.0)
    return 4.0 * shape.tokens * hidden + np.maximum(gradients, around)


def ring_backward_bytes(kind: LayerKind, shape: WorkShape, implementation: Implementation) -> Array:
    """What the backward of ring attention holds beside what the layer kept for it.

        a Q + (b + d c) (K + V)   for c > 1

    PyTorch's ring has per element of queries the sum of their gradient in FP32 (4), that of a block (2), the kernel's own in FP32
    (4) and the gradients of keys and values spread over the query heads (2); of keys and values their sum in FP32, what is sent and
    what arrives (24 for a pair), the pair that is sent on (4) and the gradients of a block (4); and the keys and values of all
    ranks, gathered at once (2 for each).

    Symbols: Q, K, V elements of queries, keys and values of the rank; c ranks of the ring; a, b, d ``ring_backward_bytes``.
    Shapes:  the columns of ``shape``.
    Units:   bytes.
    Holds:   with keys and values gathered, which is PyTorch's default (set_rotate_method), and FP32 sums (convert_to_f32).
    Source:  torch/distributed/tensor/experimental/_context_parallel/_attention.py _templated_ring_attention_backward;
             FlashAttention-2 mha_bwd (dq_accum, dk_expanded).
    """
    if kind.attention is None or not any(implementation.ring_backward_bytes):
        return array(0.0)
    query, pair, each_rank = implementation.ring_backward_bytes
    queries, keys, values = (
        row_elements(name, "attention", "tensor", kind, 0, 0.0, shape) for name in RING_WIDTHS
    )
    held = query * queries + (pair + each_rank * shape.context_parallel) * (keys + values)
    return np.where(shape.context_parallel > 1.0, held, 0.0)
