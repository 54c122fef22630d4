"""Seconds of matrix products on a case's device: what runs of them, what adds their gradients, what casts their operands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.perf.arrays import Array, array
from meshwright.perf.corrections import product_ratio
from meshwright.perf.elementwise import memory_bound_s
from meshwright.perf.expert_exchange import imbalance_ratio
from meshwright.perf.gemm import Linear, linears_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.measured import Direction
    from meshwright.perf.operators import Product


def product_s(product: Product, case: Case, direction: Direction) -> Array:
    """Time of one product in one direction: ``forward``, ``input`` gradient or ``weight`` gradient.

        ``linear_s``, moved by what the cluster's profile measured of such products

    Shapes:  the product's columns.
    Units:   s.
    Source:  ``perf.gemm.linear_s``, ``perf.corrections.product_ratio``.
    """
    return products_s([(product, direction)], case)[0]


def products_s(asked: Sequence[tuple[Product, Direction]], case: Case) -> list[Array]:
    """Times of products in their directions, evaluated together.

    Shapes:  the columns of all that are asked.
    Units:   s.
    Source:  ``product_s``.
    """
    times = linears_s([_linear(*each, case) for each in asked], case.cluster.device, case.calibration.constants)
    measured = case.cluster.measured
    imbalances = {
        id(product): imbalance_ratio(case, product.groups * product.ranks, product.ranks)
        for product, _ in asked if product.ranks is not None
    }
    for number, (product, direction) in enumerate(asked):
        if id(product) in imbalances:
            times[number] = imbalances[id(product)] * times[number]
        elif measured is not None and measured.products:
            dtype = _dtype(product, case)
            ratio = product_ratio(measured, product.rows, product.columns, product.inner, dtype=dtype, direction=direction)
            times[number] = times[number] * ratio
    return times


def _linear(product: Product, direction: Direction, case: Case) -> Linear:
    """A product as the device runs it."""
    in_bytes = case.training.precision.saved_input_bytes if product.low_precision else 2.0
    return Linear(
        rows=product.rows, columns=product.columns, inner=product.inner, direction=direction, dtype=_dtype(product, case),
        in_bytes=in_bytes, groups=product.groups, grouped=product.grouped,
    )


def _dtype(product: Product, case: Case) -> str:
    """The data type in which a product is computed: the recipe's, where the device has it."""
    precision = case.training.precision
    dtype = precision.gemm_dtype if product.low_precision else precision.base_dtype
    return dtype if case.cluster.device.supports(dtype) else precision.base_dtype


def accumulation_s(product: Product, case: Case) -> Array:
    """Time to add the weight gradient of one product into the gradient buffer, where the GEMM does not do it.

        q g n k over the memory bandwidth

    Symbols: q ``accumulation_bytes``; g groups; n k weights of one group.
    Shapes:  the product's columns.
    Units:   s.
    Source:  nanotron FP32GradientAccumulator; Megatron-Core fuses it (gradient_accumulation_fusion).
    """
    moved = case.implementation.accumulation_bytes * product.groups * product.columns * product.inner
    return memory_bound_s(moved, case.cluster.device, case.calibration.constants)


def cast_s(product: Product, case: Case) -> Array:
    """Time to quantise the operands of one low-precision product, all three directions of a micro-batch.

        3 q g [m (k + n) + k n] over the memory bandwidth;   fused experts: m h for m (k + n)

    Symbols: q ``cast_passes``; g groups; m rows; k, n widths of input and output; h hidden. 3: two bytes read, one written. The
             weights' k n only where the implementation ``casts_weights`` for every micro-batch.
    Shapes:  the product's columns.
    Units:   s.
    Holds:   weights that are quantised once a step, with the optimizer, count nothing here.
    Source:  Transformer Engine: module/linear.py casts input and output gradient, weights when is_first_microbatch.
    """
    precision, implementation = case.training.precision, case.implementation
    if not (product.low_precision and precision.cast_passes):
        return array(0.0)
    width = product.inner + product.columns
    if product.grouped and implementation.expert_fusion:
        width = array(case.model.hidden)
    elements = product.groups * product.rows * width
    if implementation.casts_weights:
        elements = elements + product.groups * product.inner * product.columns
    if product.grouped:
        elements = elements / case.calibration.constants.expert_memory_ratio
    return memory_bound_s(3.0 * precision.cast_passes * elements, case.cluster.device, case.calibration.constants)
