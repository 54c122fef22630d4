"""What a layer keeps for backward, from the implementation's table of saved tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.perf.arrays import Array, Number, array
from meshwright.perf.widths import has_part, row_elements

if TYPE_CHECKING:
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
    Source:  Korthikanti et al. 2022 (arXiv 2205.05198) section 4; reference/cost-model.md 7.1 for the other tables.
    """
    total = array(0.0)
    for row in implementation.saved:
        if not has_part(kind, row.part) or any(module in recomputed for module in row.modules):
            continue
        size = precision.saved_input_bytes / 2.0 * row.bytes_per_element if row.linear_input else row.bytes_per_element
        elements = row_elements(row.width, row.part, row.shard, kind, hidden, sequence_tokens, shape)
        total = total + size * elements * (headroom_ratio if row.part == "experts" else 1.0)
    return total


def checkpoint_bytes(hidden: int, shape: WorkShape) -> Array:
    """Bytes of a layer's input, all that full recomputation keeps.

        2 T h / t_sp

    Shapes:  the columns of ``shape``.
    Units:   bytes.
    Holds:   whole input on every tensor rank without sequence parallelism.
    Source:  Korthikanti et al. 2022 section 5 (2 s b h).
    """
    return 2.0 * shape.shard_tokens * hidden


def working_bytes(kind: LayerKind, hidden: int, shape: WorkShape) -> Array:
    """Transient bytes while one layer runs backward: gradients of its widest tensors and gathered inputs.

        2 (T h * 2 + max(T (g f + f) / t, R (g f + f) / T_e))

    Symbols: g f gate and up widths; f width of the feed-forward block; R routed copies.
    Shapes:  the columns of ``shape``.
    Units:   bytes.
    Holds:   upper estimate; the allocator reuses most of it from layer to layer.
    Source:  walk of the backward as in SimuMax (peak without cache), reference/cost-model.md 7.1.
    """
    part = "experts" if kind.experts else "mlp"
    shard = "tensor"
    wide = row_elements("mlp_inputs", part, shard, kind, hidden, 0.0, shape)  # type: ignore[arg-type]
    narrow = row_elements("mlp_width", part, shard, kind, hidden, 0.0, shape)  # type: ignore[arg-type]
    attention = row_elements("query", "attention", "tensor", kind, hidden, 0.0, shape)
    return 2.0 * (2.0 * shape.tokens * hidden + np.maximum(wide + narrow, 3.0 * attention))
