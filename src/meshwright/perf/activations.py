"""What a layer keeps for backward, from the implementation's table of saved tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.perf.arrays import Array, Number, array
from meshwright.perf.operators import gathered_columns
from meshwright.perf.widths import has_part, row_elements, row_exists

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.implementation import Implementation
    from meshwright.domain.model import LayerKind
    from meshwright.domain.training import Precision
    from meshwright.perf.operators import WorkShape


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
) -> Array:
    """Bytes that one layer keeps for the backward of one micro-batch on one rank.

        sum over rows of  bytes * elements;   rows dropped by a recomputed module are left out

    Symbols: headroom_ratio fullest expert rank over the mean; recomputed names of selective-recompute modules.
    Shapes:  the columns of ``shape``.
    Units:   bytes.
    Holds:   ``megatron-2022`` gives Korthikanti's s b h (10 + 24/t + 5 a s / (h t)) exactly.
    Source:  Korthikanti et al. 2022 (arXiv 2205.05198) section 4; docs/sources.md#activations for the other tables.
    """
    total = array(0.0)
    for row in implementation.saved:
        if not has_part(kind, row.part) or any(module in recomputed for module in row.modules):
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
    Source:  ``perf.exchange.imbalance_ratio``, the same in time; Megatron-Core --moe-router-force-load-balancing.
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
    kind: LayerKind, hidden: int, shape: WorkShape, *, weight_gradient_bytes: float = 0.0, cut: bool = False
) -> Array:
    """Transient bytes while one layer runs backward: gradients of its widest tensors and gathered inputs.

        2 (T h * 2 + max(T (g f + f) / t, R (g f + f) / T_e, 3 q + 2 W)) + w g f h / t

    Symbols: g f gate and up widths; f width of the feed-forward block; R routed copies; q queries and what a mixer convolves; W
             queries, keys and values that are gathered where query groups are ``cut``; w ``weight_gradient_bytes``, of a dense
             block's first product.
    Shapes:  the columns of ``shape``.
    Units:   bytes.
    Holds:   upper estimate; the allocator reuses most of it from layer to layer.
    Source:  walk of the backward as in SimuMax (peak without cache), docs/sources.md#activations.
    """
    part = "experts" if kind.experts else "mlp"
    shard = "tensor"
    wide = row_elements("mlp_inputs", part, shard, kind, hidden, 0.0, shape)  # type: ignore[arg-type]
    narrow = row_elements("mlp_width", part, shard, kind, hidden, 0.0, shape)  # type: ignore[arg-type]
    attention = array(0.0) if kind.attention is None else row_elements("query", "attention", "tensor", kind, hidden, 0.0, shape)
    if kind.mixer is not None:
        attention = attention + row_elements("mixer_convolved", "mixer", "tensor", kind, hidden, 0.0, shape)
    gathered = array(0.0)
    if cut and kind.attention is not None:
        gathered = shape.tokens * gathered_columns(kind.attention, shape.tensor_parallel)
    weights = array(0.0)
    if kind.experts is None:
        weights = weight_gradient_bytes * wide / shape.tokens * hidden
    return 2.0 * (2.0 * shape.tokens * hidden + np.maximum(wide + narrow, 3.0 * attention + 2.0 * gathered)) + weights
