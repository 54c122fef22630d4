"""What one layer launches: its kernels, and what the host has to do for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from meshwright.perf.adapters import KERNELS_BACKWARD, KERNELS_FORWARD, adapted_widths
from meshwright.perf.arrays import Array, array
from meshwright.perf.mixers import mixer_kernels
from meshwright.perf.pieces import products_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.case import Case
    from meshwright.domain.layout import ContextKind
    from meshwright.domain.model import LayerKind
    from meshwright.perf.operators import Product, WorkShape


class Launches(Struct, frozen=True, kw_only=True):
    """What the host starts: operators of PyTorch, and kernels from a loop of native code."""

    operators: Array
    native: Array

    def plus(self, other: Launches) -> Launches:
        """Both together."""
        return Launches(operators=self.operators + other.operators, native=self.native + other.native)


class Starts(Struct, frozen=True, kw_only=True):
    """What the host starts in both passes of one layer."""

    forward: Launches
    backward: Launches
    backward_of_inputs: Launches
    """The backward without the gradients of weights."""


def starts(kind: LayerKind, case: Case, shape: WorkShape, launched: tuple[Array, Array]) -> Starts:
    """What the host starts for the kernels of one layer.

        forward       K - k + T operators, k native
        backward      K' - k' + T / 2 + H operators, k' native;   of inputs  K' - k' + T / 2 - (W - w), k' - w native
        T = 2 n E / e [low precision, not fused];   H = n E / e [trained]

    Symbols: K, K' ``launched``, the kernels of both passes; W ``weight_kernels``; k, k' and w those among them that native code
             launches expert by expert; T quantised tensors that Python holds for each expert, an input and a weight of each of n
             products, backward a gradient; H hooks of the gradients of its n weights. All but K and W are 0 without such experts
             (``Implementation.grouped_linear``).
    Shapes:  the columns of ``shape``.
    Units:   launches.
    Holds:   in a graph of the step every kernel is one launch, and no host has anything else to do. Fused experts are quantised
             inside their kernels, so that Python holds no tensor of each: our judgement. Their weights stay parameters.
    Source:  Transformer Engine 2.7 to 2.14 module/grouped_linear.py (a workspace for each weight, a quantised tensor for each
             split, all packed and unpacked for the backward one by one), csrc/extensions/gemm.cpp (one loop over the experts);
             Megatron-Core distributed_data_parallel.py (_make_backward_post_hook of every parameter).
    """
    (forward, backward), none, products = launched, array(0.0), products_of(kind, case, shape)
    trained = not case.training.weights_frozen
    weights = weight_kernels(products, kind, case, shape) if trained else none
    experts = kind.experts
    if experts is None or not case.implementation.grouped_linear or case.implementation.cuda_graphs:
        return Starts(
            forward=Launches(operators=forward, native=none), backward=Launches(operators=backward, native=none),
            backward_of_inputs=Launches(operators=np.maximum(0.0, backward - weights), native=none),
        )
    native, native_backward = expert_kernels(kind, case, shape)
    plain_weights = array(float(sum(not each.grouped for each in products))) if trained else none
    each = case.implementation.kernels_expert_forward * experts.num_experts / shape.expert_parallel
    split = case.training.precision.cast_passes and not case.implementation.expert_fusion
    tensors, hooks = 2.0 * each if split else none, each if trained else none
    behind = backward - native_backward + tensors / 2.0
    return Starts(
        forward=Launches(operators=forward - native + tensors, native=native),
        backward=Launches(operators=behind + hooks, native=native_backward),
        backward_of_inputs=Launches(
            operators=np.maximum(0.0, behind - plain_weights), native=np.maximum(0.0, native_backward - (weights - plain_weights)),
        ),
    )


def kernels(kind: LayerKind, case: Case, shape: WorkShape, context_kind: ContextKind) -> tuple[Array, Array]:
    """Kernels that the forward and the backward of one layer launch.

        n h / 2 + n_mixer + [ring] (c - 1) n_ring + a n_adapter + [moe] (n_moe + k + n_bias E / e)

    Symbols: h 2, or 1 in layers of one block; n_mixer ``perf.mixers.mixer_kernels``; c context parallelism; a adapters (LoRA);
             k ``expert_kernels``; n_bias what adds biases to each of E / e local experts, where they have any.
    Shapes:  the columns of ``shape``.
    Units:   kernels.
    Source:  MindSpeed ring_context_parallel; ``expert_kernels``.
    """
    implementation, experts = case.implementation, kind.experts
    halves = (kind.mixes + kind.has_block) / 2.0
    own_forward, own_backward = (0, 0) if kind.mixer is None else mixer_kernels(kind.mixer)
    steps = shape.context_parallel - 1.0 if context_kind == "ring" else array(0.0)
    forward = implementation.kernels_forward * halves + own_forward + steps * implementation.kernels_ring_forward
    backward = implementation.kernels_backward * halves + own_backward + steps * implementation.kernels_ring_backward
    if adapters := len(adapted_widths(kind, case)):
        forward, backward = forward + adapters * KERNELS_FORWARD, backward + adapters * KERNELS_BACKWARD
    if experts is None:
        return forward, backward
    local = experts.num_experts / shape.expert_parallel
    each_forward, each_backward = expert_kernels(kind, case, shape)
    if experts.expert_bias:
        each_forward = each_forward + implementation.kernels_expert_bias_forward * local
        each_backward = each_backward + implementation.kernels_expert_bias_backward * local
    return (
        forward + implementation.kernels_moe_forward + each_forward, backward + implementation.kernels_moe_backward + each_backward,
    )


def expert_kernels(kind: LayerKind, case: Case, shape: WorkShape) -> tuple[Array, Array]:
    """Kernels of the products of local experts and of their operands' casts, where they are launched expert by expert.

        (p + q) n E / e;   backward (p + q / 2) n E / e;   fused  n

    Symbols: E / e local experts; n ``kernels_expert_forward`` and backward of the implementation; p and q
             ``expert_product_kernels`` and ``expert_cast_kernels`` of the precision. The two products of a backward share one
             operand, the gradient, which is cast once; weights are cast once a step. Fused, a product of all experts is one kernel.
    Shapes:  the columns of ``shape``.
    Units:   kernels; none in a layer without experts.
    Source:  Transformer Engine 2.7 to 2.14 GroupedLinear: one cuBLAS call per expert and product (multi_stream_cublas_gemm);
             fused: cuDNN's grouped GEMM with gate and quantisation, two launches forward and four backward, as torchtitan's
             pull request 4257 describes them.
    """
    implementation, experts = case.implementation, kind.experts
    if experts is None:
        return array(0.0), array(0.0)
    forward, backward = implementation.kernels_expert_forward, implementation.kernels_expert_backward
    if implementation.expert_fusion:
        return array(float(forward)), array(float(backward))
    local, precision = experts.num_experts / shape.expert_parallel, case.training.precision
    products, casts = precision.expert_product_kernels, precision.expert_cast_kernels
    return forward * (products + casts) * local, backward * (products + casts / 2.0) * local


def weight_kernels(products: Sequence[Product], kind: LayerKind, case: Case, shape: WorkShape) -> Array:
    """Kernels of the weight gradients: one for each product, and for each local expert where those are launched one by one.

    Shapes:  the columns of ``shape``.
    Units:   kernels.
    Source:  ``expert_kernels``.
    """
    count = array(float(sum(not each.grouped for each in products)))
    if kind.experts is None or case.implementation.expert_fusion:
        return count + sum(each.grouped for each in products)
    local = kind.experts.num_experts / shape.expert_parallel * case.training.precision.expert_product_kernels
    return count + local * sum(each.grouped for each in products)
