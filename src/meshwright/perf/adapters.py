"""Time of low-rank adapters: thin products and additions beside the frozen projections, all of them bound by memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.domain.attention import NO_ATTENTION
from meshwright.perf.arrays import Array, array
from meshwright.perf.elementwise import memory_bound_s

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.model import LayerKind
    from meshwright.perf.operators import WorkShape

KERNELS_FORWARD, KERNELS_BACKWARD = 4.0, 8.0
"""Of one adapter: two products, scale and addition; backward twice that."""
COLUMN_TARGETS = ("query", "key", "value")


def adapted_widths(kind: LayerKind, case: Case) -> list[tuple[float, float, bool]]:
    """Input width, output width and whether TP splits the output (else the input) of each adapted projection.

    Query, key and value are one projection with one adapter.

    Units:   elements per token.
    Holds:   dense projections; experts carry no adapter.
    Source:  Megatron-Core and NeMo: linear_qkv, linear_proj, linear_fc1, linear_fc2.
    """
    lora, block, hidden = case.training.lora, kind.feed_forward, float(case.model.hidden)
    if lora is None:
        return []
    attention, attends = kind.attention or NO_ATTENTION, kind.attention is not None
    wide = {"query": attention.query_width, "key": attention.key_width, "value": attention.value_width}
    together = float(sum(wide[target] for target in COLUMN_TARGETS if attends and target in lora.targets))
    found = [(hidden, together, True)] if together else []
    if attends and "output" in lora.targets:
        found.append((float(attention.output_width), hidden, False))
    if "mlp" in lora.targets and kind.experts is None and kind.has_block:
        width = float(getattr(block, "width", 0))
        found += [(hidden, block.num_inputs * width, True), (width, hidden, False)]
    return found


def adapter_s(kind: LayerKind, case: Case, shape: WorkShape) -> tuple[Array, Array]:
    """Forward and backward seconds of the adapters of one layer.

        forward   T (2 i + 8 o) / bw        read the input, write the product, add it to the projection's output
        backward  T (10 i + 4 o) / bw       read the gradient twice, input for its gradient, add the input gradient
        + kernels x gap

    Symbols: T tokens of the rank; i, o widths on the rank (TP divides the sharded side); bw memory bandwidth that kernels reach.
    Shapes:  the columns of ``shape``.
    Units:   s.
    Holds:   ranks far below the widths, where the thin products move more than they compute.
    Source:  Hu et al. 2021 (LoRA, arXiv 2106.09685); operator list of NeMo ParallelLinearAdapter.
    """
    device, constants = case.cluster.device, case.calibration.constants
    forward = backward = array(0.0)
    for inside, outside, splits_output in adapted_widths(kind, case):
        i = array(inside) if splits_output else inside / shape.tensor_parallel
        o = outside / shape.tensor_parallel if splits_output else array(outside)
        forward = forward + memory_bound_s(shape.tokens * (2.0 * i + 8.0 * o), device, constants)
        forward = forward + KERNELS_FORWARD * constants.kernel_gap_s
        backward = backward + memory_bound_s(shape.tokens * (10.0 * i + 4.0 * o), device, constants)
        backward = backward + KERNELS_BACKWARD * constants.kernel_gap_s
    return forward, backward
