"""What the device does of one layer on one rank for one micro-batch: the seconds of its operators, whatever runs beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from meshwright.perf.adapters import adapter_s
from meshwright.perf.arrays import Array, array
from meshwright.perf.attention import core_pairs, core_widths, flash_attention_s, index_flops, index_loss_flops, is_detached
from meshwright.perf.corrections import core_ratios
from meshwright.perf.elementwise import memory_bound_s
from meshwright.perf.exchange import Beside
from meshwright.perf.fallback import fallback_attention_s
from meshwright.perf.gemm import gemm_s
from meshwright.perf.messages import keeps_last_product
from meshwright.perf.mixers import chunk_flops
from meshwright.perf.operators import LAST_PRODUCT, layer_products
from meshwright.perf.product_times import accumulation_s, cast_s, products_s
from meshwright.perf.widths import has_part, row_elements, row_exists

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.domain.attention import Attention
    from meshwright.domain.case import Case
    from meshwright.domain.measured import Direction
    from meshwright.domain.mixers import Mixer
    from meshwright.domain.model import LayerKind
    from meshwright.perf.operators import Product, WorkShape

ATTENTION_CORE, FEED_FORWARD, PER_OPERATOR = "core_attn", "mlp", "op"
ALIGNED_ELEMENTS = 8
"""16-bit elements in the 16 bytes to which the operands of a batched product must be aligned for the matrix units."""


BLOCK_OF = {"attention": "mixing", "mixer": "mixing", "mlp": "feed-forward", "shared": "feed-forward"}
"""Part of a product -> the block whose communication runs beside it."""
EXPERTS = ("experts", "expert_bias", "shared")
"""Parts that stand between the dispatch of tokens and their combination."""
INDEXED = ("index queries", "index key and weights")
"""Products that neither read nor write a block's whole width."""


class Pieces(Struct, frozen=True, kw_only=True):
    """Device seconds of the operators of a layer, by sort of work; ``forward_of`` maps a recompute module to its forward."""

    products_forward: Array
    products_input: Array
    products_weight: Array
    attention_forward: Array
    attention_backward: Array
    elementwise_forward: Array
    elementwise_backward: Array
    cast: Array
    experts_forward: Array
    """Of products and passes, what experts do: routed and shared ones."""
    experts_backward: Array
    beside: tuple[Beside, Beside]
    """Of the mixing and of the feed-forward block, what their communication runs beside."""
    forward_of: dict[str, Array]


def attention_core_s(kind: LayerKind, case: Case, shape: WorkShape) -> tuple[Array, Array]:
    """Forward and backward of scores, softmax and values on one rank.

    Fused kernels skip what the mask hides; unfused ones compute the whole square as two batched products (their softmax is
    among the implementation's memory-bound passes); heads whose rows are no multiple of 16 bytes miss the matrix units there.
    Context parallelism divides the pairs evenly (zigzag).

    Shapes:  the columns of ``shape``; a tuple of two arrays comes back.
    Units:   s.
    Source:  ``perf.attention``; Korthikanti et al. 2022 section 2 for the unfused products; NVIDIA, "Matrix Multiplication
             Background", on alignment.
    """
    attention, batch = kind.attention, case.batch
    if attention is None:
        return array(0.0), array(0.0)
    heads = shape.sequences * attention.num_heads / shape.tensor_parallel
    device, constants = case.cluster.device, case.calibration.constants
    if not case.implementation.flash_attention:
        rows = batch.sequence_tokens / shape.context_parallel
        speed = constants.unaligned_ratio if attention.head_dim % ALIGNED_ELEMENTS else 1.0
        options = {
            "device": device, "constants": constants, "dtype": case.training.precision.base_dtype, "count": heads, "speed": speed,
        }
        scores = gemm_s(rows, batch.sequence_tokens, attention.head_dim, **options)  # type: ignore[arg-type]
        values = gemm_s(rows, attention.value_dim, batch.sequence_tokens, **options)  # type: ignore[arg-type]
        return scores + values, 2.0 * (scores + values)
    pairs = core_pairs(attention, batch.sequence_tokens, batch.mean_square_document_tokens)
    key_dim, value_dim = core_widths(attention)
    forward, backward = flash_attention_s(
        pairs / shape.context_parallel, heads, batch.sequence_tokens / shape.context_parallel,
        key_dim=key_dim, value_dim=value_dim, device=device, constants=constants,
        dtype=case.training.precision.base_dtype, speed=case.implementation.attention_speed,
    )
    if attention.indexer is not None:
        more = index_s(attention, case, shape)
        forward, backward = forward + more[0], backward + more[1]
    if case.launch.attention_by_default and attention.sinks:
        fallen_forward, fallen_backward = fallback_attention_s(kind, case, shape)
        forward, backward = np.maximum(forward, fallen_forward), np.maximum(backward, fallen_backward)
    if case.launch.deterministic:
        backward = constants.deterministic_attention_ratio * backward
    measured = case.cluster.measured
    if measured is None or not measured.cores:
        return forward, backward
    ratios = core_ratios(
        measured,
        heads / shape.context_parallel,
        batch.sequence_tokens,
        attention.head_dim,
        dtype=case.training.precision.base_dtype,
    )
    return forward * ratios[0], backward * ratios[1]


def index_s(attention: Attention, case: Case, shape: WorkShape) -> tuple[Array, Array]:
    """Forward and backward of the indexer's scores, and of its own loss where it learns, on one rank.

        t_fwd = (flops + loss forward) / (peak e_f);   t_bwd = loss backward / (peak e_b)
        compressed: flops / (peak e_f);   2 flops / (peak e_b)

    Shapes:  the columns of ``shape``; a tuple of two arrays comes back.
    Units:   s.
    Holds:   every tensor rank scores all heads; context parallelism divides the queries; the choice itself (top-k) is a pass.
             Frozen weights learn nothing.
    Source:  ``perf.attention.index_flops``, ``index_loss_flops``; DeepSeek-V3.2 (arXiv 2512.02556) section 2.1.
    """
    batch, constants = case.batch, case.calibration.constants
    each = index_flops(attention, batch.sequence_tokens, batch.mean_square_document_tokens)
    flops = each * shape.sequences / shape.context_parallel
    behind = 2.0 * flops
    if is_detached(attention):
        learns = 0.0 if case.training.weights_frozen else 1.0
        target, own = (
            learns * each * shape.sequences / shape.context_parallel
            for each in index_loss_flops(attention, batch.sequence_tokens, batch.mean_square_document_tokens)
        )
        flops, behind = flops + target / shape.tensor_parallel, own
    peak = case.cluster.device.peak_flops_per_s[case.training.precision.base_dtype]
    return flops / (peak * constants.attention_forward_ratio), behind / (peak * constants.attention_backward_ratio)


def graph_copy_s(case: Case, shape: WorkShape) -> Array:
    """Time to hand hidden states over to the graph of a part of a layer; backward as long, for the gradients of what it returns.

        4 T h over the memory bandwidth;   0 without graphs of parts

    Symbols: T tokens of the shard; h hidden. Two bytes read and two written.
    Shapes:  the columns of ``shape``.
    Units:   s.
    Holds:   one graph a layer; what it returns stays where it is, and is read there.
    Source:  Transformer Engine pytorch/graph.py, make_graphed_callables: inputs and gradients of outputs are copied into tensors
             whose addresses the graph knows.
    """
    if case.launch.graphs != "partial":
        return array(0.0)
    elements = shape.tokens / shape.sequence_shards * case.model.hidden
    return memory_bound_s(4.0 * elements, case.cluster.device, case.calibration.constants, kind="copy")


def mixer_core_s(mixer: Mixer, case: Case, shape: WorkShape) -> tuple[Array, Array]:
    """Forward and backward of the chunked recurrence of a linear mixer on one rank; what it reads and writes are passes.

        t = chunk flops T / (t peak e);   e ``scan_ratio``

    Shapes:  the columns of ``shape``; a tuple of two arrays comes back.
    Units:   s.
    Holds:   long sequences, so that chunks and heads fill the device. Packing changes nothing: the recurrence is linear in tokens.
    Source:  ``perf.mixers.chunk_flops``.
    """
    ahead, behind = chunk_flops(mixer)
    constants = case.calibration.constants
    peak = case.cluster.device.peak_flops_per_s[case.training.precision.base_dtype]
    tokens = shape.tokens / shape.tensor_parallel
    return tokens * ahead / (peak * constants.scan_ratio), tokens * behind / (peak * constants.scan_ratio)


def products_of(kind: LayerKind, case: Case, shape: WorkShape) -> tuple[Product, ...]:
    """The products of a layer as the implementation joins and cuts them.

    Shapes:  the columns of ``shape``.
    Units:   elements of a product's sides.
    Source:  ``perf.operators.layer_products``.
    """
    implementation = case.implementation
    return layer_products(
        kind, case.model.hidden, shape, joined=implementation.joined_products, cut=implementation.cuts_query_groups
    )


def ends_early(product: Product, kind: LayerKind, case: Case) -> bool:
    """Whether a recomputation of the feed-forward block leaves a product out: its last, where nothing keeps the result.

    Units:   none.
    Holds:   implementations that run again what the backward needs and no more (``Implementation.checkpoints``).
    Source:  torch.utils.checkpoint, early stop; jax.checkpoint, whose unused operations XLA removes.
    """
    last = product.module == FEED_FORWARD and product.name == LAST_PRODUCT
    return last and case.implementation.checkpoints and not keeps_last_product(kind)


def again_by_operator_s(products_forward: Sequence[Array]) -> Array:
    """Products that torchtitan's policy by operator runs again: every second, in the order of the forward.

    Shapes:  the columns of the products' forward times.
    Units:   s.
    Holds:   attention is kept; passes run again, too, and are the caller's.
    Source:  torchtitan/distributed/activation_checkpoint.py, ``_get_custom_policy``.
    """
    return sum(products_forward[1::2], start=array(0.0))


def layer_pieces(kind: LayerKind, case: Case, shape: WorkShape, masking: tuple[Array, Array] | None = None) -> Pieces:
    """Device seconds of all operators of one layer, and of what ``masking`` adds to the attention core of both passes.

    Shapes:  the columns of ``shape``.
    Units:   s.
    Holds:   one micro-batch; every operator runs alone on the device.
    Source:  sums of the formulas in ``perf.gemm``, ``perf.attention`` and ``perf.elementwise``.
    """
    device, constants, hidden = case.cluster.device, case.calibration.constants, case.model.hidden
    frozen = case.training.weights_frozen
    forward_of: dict[str, Array] = {}
    forward = input_gradient = weight_gradient = cast = experts_forward = experts_backward = array(0.0)
    products = products_of(kind, case, shape)
    windows = {part: [array(0.0)] * 3 for part in BLOCK_OF.values()}
    begun: set[str] = set()
    directions: tuple[Direction, ...] = ("forward", "input") if frozen else ("forward", "input", "weight")
    times = products_s([(product, direction) for direction in directions for product in products], case)
    own = [*zip(*(times[begin : begin + len(products)] for begin in range(0, len(times), len(products) or 1)), strict=True)]
    for product, (once, behind, *weights) in zip(products, own, strict=True):
        forward = forward + once
        input_gradient = input_gradient if product.detached else input_gradient + behind
        if not ends_early(product, kind, case):
            forward_of[product.module] = forward_of.get(product.module, array(0.0)) + once
        weight = weights[0] if weights else array(0.0)
        learnt = weight + accumulation_s(product, case) if weights else weight
        weight_gradient = weight_gradient + learnt
        if product.part in EXPERTS:
            experts_forward, experts_backward = experts_forward + once, experts_backward + behind + learnt
        if (block := BLOCK_OF.get(product.part)) and product.name not in INDEXED:
            if block not in begun:
                windows[block][:2] = behind, weight
            begun.add(block)
            windows[block][2] = behind
        cast = cast + cast_s(product, case)
    core_forward, core_backward = attention_core_s(kind, case, shape)
    if masking is not None:
        core_forward, core_backward = core_forward + masking[0], core_backward + masking[1]
    forward_of[ATTENTION_CORE] = core_forward
    if kind.mixer is not None:
        scan_forward, scan_backward = mixer_core_s(kind.mixer, case, shape)
        core_forward, core_backward = core_forward + scan_forward, core_backward + scan_backward
    ahead = behind = array(0.0)
    for row in case.implementation.passes:
        if not has_part(kind, row.part):
            continue
        exists = row_exists(row.only, kind, shape)
        if exists is False:
            continue
        elements = row_elements(row.width, row.part, row.shard, kind, hidden, case.batch.sequence_tokens, shape)
        if exists is not None:
            elements = np.where(exists, elements, 0.0)
        if row.part in ("experts", "expert_bias") and row.kind not in constants.pass_speeds:
            elements = elements / constants.expert_memory_ratio
            elements = elements * (constants.deterministic_scatter_ratio if case.launch.deterministic else 1.0)
        once = memory_bound_s(row.forward_bytes * elements, device, constants, kind=row.kind)
        back = memory_bound_s(row.backward_bytes * elements, device, constants, kind=row.kind)
        ahead, behind = ahead + once, behind + back
        if row.part in EXPERTS:
            experts_forward, experts_backward = experts_forward + once, experts_backward + back
        for module in row.modules:
            forward_of[module] = forward_of.get(module, array(0.0)) + once
    forward_of[PER_OPERATOR] = again_by_operator_s(times[: len(products)]) + ahead
    adapter_forward, adapter_backward = adapter_s(kind, case, shape)
    copied = graph_copy_s(case, shape)
    ahead, behind = ahead + adapter_forward + copied, behind + adapter_backward + copied
    return Pieces(
        products_forward=forward, products_input=input_gradient, products_weight=weight_gradient,
        attention_forward=core_forward, attention_backward=core_backward,
        elementwise_forward=ahead, elementwise_backward=behind, cast=cast,
        experts_forward=experts_forward, experts_backward=experts_backward,
        beside=(_beside(windows["mixing"]), _beside(windows["feed-forward"])),
        forward_of=forward_of,
    )


def _beside(window: list[Array]) -> Beside:
    """First input gradient, its weight gradient, last input gradient."""
    first_input, first_weight, last_input = window
    return Beside(first_input=first_input, first_weight=first_weight, last_input=last_input)
