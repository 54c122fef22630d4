"""Time of one layer on one rank for one micro-batch: operators, their communication, and what is run again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from meshwright.perf.adapters import KERNELS_BACKWARD, KERNELS_FORWARD, adapted_widths, adapter_s
from meshwright.perf.arrays import Array, array
from meshwright.perf.attention import core_pairs, core_widths, flash_attention_s, index_flops, index_loss_flops, is_detached
from meshwright.perf.corrections import core_ratios, product_ratio
from meshwright.perf.elementwise import launch_floor_s, memory_bound_s
from meshwright.perf.exchange import Beside, collective_host_s, context_s, expert_s, imbalance_ratio, tensor_s
from meshwright.perf.fallback import fallback_attention_s
from meshwright.perf.gemm import gemm_s, linear_s
from meshwright.perf.messages import keeps_last_product
from meshwright.perf.mixers import chunk_flops, mixer_kernels
from meshwright.perf.operators import layer_products
from meshwright.perf.seconds import Seconds, seconds
from meshwright.perf.widths import has_part, row_elements, row_exists

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import ContextKind, Overlap
    from meshwright.domain.measured import Direction
    from meshwright.domain.mixers import Mixer
    from meshwright.domain.model import Attention, LayerKind
    from meshwright.perf.operators import Product, WorkShape
    from meshwright.perf.placement import Groups

ATTENTION_CORE = "core_attn"
COMMUNICATION = "comm"
ALIGNED_ELEMENTS = 8
"""16-bit elements in the 16 bytes to which the operands of a batched product must be aligned for the matrix units."""


BLOCK_OF = {"attention": "mixing", "mixer": "mixing", "mlp": "feed-forward", "shared": "feed-forward"}
"""Part of a product -> the block whose communication runs beside it."""
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
    beside: tuple[Beside, Beside]
    """Of the mixing and of the feed-forward block, what their communication runs beside."""
    forward_of: dict[str, Array]


class LayerTime(Struct, frozen=True, kw_only=True):
    """Forward and backward of one layer; ``weight_gradient_s`` is the part of the backward that may wait (zero bubble)."""

    forward: Seconds
    backward: Seconds
    weight_gradient_s: Array
    forward_window_s: Array
    """What communication on other streams can hide behind: the device computes, or waits for its host."""
    backward_window_s: Array
    regather_s: Array
    """Gathering in backward what sequence parallelism cut, where only the module ``comm`` does."""
    exchange_s: Array
    """The exchange in front of attention, where the recomputation of its core runs it again."""
    left_out: Seconds
    """The end of the forward that a full recomputation does not run again, as nothing behind it is kept."""
    pieces: Pieces


def product_s(product: Product, case: Case, direction: Direction) -> Array:
    """Time of one product in one direction: ``forward``, ``input`` gradient or ``weight`` gradient.

        ``linear_s``, moved by what the cluster's profile measured of such products

    Shapes:  the product's columns.
    Units:   s.
    Source:  ``perf.gemm.linear_s``, ``perf.corrections.product_ratio``.
    """
    precision, constants = case.training.precision, case.calibration.constants
    dtype = precision.gemm_dtype if product.low_precision else precision.base_dtype
    if not case.cluster.device.supports(dtype):
        dtype = precision.base_dtype
    in_bytes = precision.saved_input_bytes if product.low_precision else 2.0
    time = linear_s(
        product.rows, product.columns, product.inner, direction=direction, device=case.cluster.device, constants=constants,
        dtype=dtype, in_bytes=in_bytes, groups=product.groups, grouped=product.grouped,
    )
    if product.ranks is not None:
        return imbalance_ratio(case, product.groups * product.ranks, product.ranks) * time
    measured = case.cluster.measured
    if measured is None or not measured.products:
        return time
    return time * product_ratio(measured, product.rows, product.columns, product.inner, dtype=dtype, direction=direction)


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


def _products(kind: LayerKind, case: Case, shape: WorkShape) -> tuple[Product, ...]:
    """The products of a layer as the implementation joins and cuts them."""
    implementation = case.implementation
    return layer_products(
        kind, case.model.hidden, shape, joined=implementation.joined_products, cut=implementation.cuts_query_groups
    )


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
    forward = input_gradient = weight_gradient = cast = array(0.0)
    products = _products(kind, case, shape)
    windows = {part: [array(0.0)] * 3 for part in BLOCK_OF.values()}
    begun: set[str] = set()
    for product in products:
        once, behind = product_s(product, case, "forward"), product_s(product, case, "input")
        forward = forward + once
        input_gradient = input_gradient if product.detached else input_gradient + behind
        forward_of[product.module] = forward_of.get(product.module, array(0.0)) + once
        weight = array(0.0) if frozen else product_s(product, case, "weight")
        if not frozen:
            weight_gradient = weight_gradient + weight + accumulation_s(product, case)
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
        ahead = ahead + once
        behind = behind + memory_bound_s(row.backward_bytes * elements, device, constants, kind=row.kind)
        for module in row.modules:
            forward_of[module] = forward_of.get(module, array(0.0)) + once
    adapter_forward, adapter_backward = adapter_s(kind, case, shape)
    ahead, behind = ahead + adapter_forward, behind + adapter_backward
    return Pieces(
        products_forward=forward, products_input=input_gradient, products_weight=weight_gradient,
        attention_forward=core_forward, attention_backward=core_backward,
        elementwise_forward=ahead, elementwise_backward=behind, cast=cast,
        beside=(_beside(windows["mixing"]), _beside(windows["feed-forward"])),
        forward_of=forward_of,
    )


def _beside(window: list[Array]) -> Beside:
    """First input gradient, its weight gradient, last input gradient."""
    first_input, first_weight, last_input = window
    return Beside(first_input=first_input, first_weight=first_weight, last_input=last_input)


def kernels(kind: LayerKind, case: Case, shape: WorkShape, context_kind: ContextKind) -> tuple[Array, Array]:
    """Kernels that the forward and the backward of one layer launch.

        n h / 2 + n_mixer + [ring] (c - 1) n_ring + a n_adapter + [moe] (n_moe + q n_expert E / e)

    Symbols: h 2, or 1 in layers of one block; n_mixer ``perf.mixers.mixer_kernels``; c context parallelism; a adapters (LoRA);
             E / e local experts, whose products are launched one by one where the implementation says so;
             q ``expert_kernels`` of the precision, 1 where the experts are fused.
    Shapes:  the columns of ``shape``.
    Units:   kernels.
    Source:  Transformer Engine GroupedLinear runs one cuBLAS call per expert and product; MindSpeed ring_context_parallel.
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
    each = 1.0 if implementation.expert_fusion else case.training.precision.expert_kernels
    return (
        forward + implementation.kernels_moe_forward + implementation.kernels_expert_forward * local * each,
        backward + implementation.kernels_moe_backward + implementation.kernels_expert_backward * local * each,
    )


def layer_time(
    kind: LayerKind, case: Case, shape: WorkShape, groups: Groups, *, overlap: Overlap, context_kind: ContextKind,
    masking: tuple[Array, Array] | None = None,
) -> LayerTime:
    """Forward and backward of one layer for one micro-batch, with what communication leaves exposed.

        window = compute + wait for the host;   compute alone where every launch is waited for, or the device is the host

    Symbols: ``masking`` what a mask adds to the attention core of both passes (``perf.masked``).
    Shapes:  the columns of ``shape``.
    Units:   s.
    Holds:   an idle device hides what travels as a busy one does, so slower operators make no step shorter. Not where exchanges of
             experts are overlapped: they hide in the wait for the host, which is then counted without them.
    Source:  ``layer_pieces`` and ``perf.exchange``; collectives run on streams of their own (CUDA C++ Programming Guide, streams).
    """
    pieces, constants = layer_pieces(kind, case, shape, masking), case.calibration.constants
    implementation = case.implementation
    kernels_forward, kernels_backward = kernels(kind, case, shape, context_kind)
    tensor = tensor_s(kind, case, shape, groups, pieces.beside, pieces.products_forward, overlap=overlap)
    context = context_s(kind, case, shape, groups, pieces.attention_forward, pieces.attention_backward, context_kind=context_kind)
    ahead = pieces.products_forward + pieces.attention_forward + pieces.elementwise_forward + pieces.cast / 3.0
    behind = pieces.products_input + pieces.products_weight + pieces.attention_backward + pieces.elementwise_backward
    behind = behind + pieces.cast * (2.0 / 3.0)
    ahead = ahead + kernels_forward * constants.kernel_gap_s + tensor.slowdown_forward
    behind = behind + kernels_backward * constants.kernel_gap_s + tensor.slowdown_backward
    pace = array(constants.plain_host_ratio if case.launch.plain_host else 1.0)
    waits = kind.experts is not None and implementation.expert_host_sync and not implementation.cuda_graphs
    sync = array(constants.expert_sync_s) if waits else array(0.0)
    eager = waits and case.launch.graphs != "partial" and not case.cluster.device.synchronous
    routing = array(constants.expert_host_s) if eager else array(0.0)
    each = collective_host_s(case, groups)
    ahead_host = routing + implementation.collectives_forward * each
    behind_host = routing + implementation.collectives_backward * each
    if implementation.units is not None:
        ahead_host, behind_host = ahead_host + unit_host_s(case), behind_host + unit_host_s(case)

    def waits_s(device_s: Array, count: Array, collectives_s: Array) -> Array:
        return launch_floor_s(
            device_s, count, constants, collectives_s=collectives_s, pace=pace, graphs=implementation.cuda_graphs,
            blocking=implementation.blocking_launches, synchronous=case.cluster.device.synchronous,
        )

    idles = not implementation.blocking_launches and not case.cluster.device.synchronous
    woven = ahead + behind
    if idles:
        woven = woven + waits_s(ahead, kernels_forward, ahead_host) + waits_s(behind, kernels_backward, behind_host)
    expert = expert_s(kind, case, shape, groups, woven, overlap=overlap)
    ahead, behind = ahead + expert.slowdown_forward, behind + expert.slowdown_backward
    busy_forward = ahead + tensor.forward + context.forward + expert.forward
    busy_backward = behind + tensor.backward + context.backward + expert.backward
    wait_forward = sync + waits_s(busy_forward, kernels_forward, ahead_host)
    wait_backward = waits_s(busy_backward, kernels_backward, behind_host)
    return LayerTime(
        forward=seconds(
            compute=ahead, tensor=tensor.forward, context=context.forward, expert=expert.forward, host=wait_forward,
        ),
        backward=seconds(
            compute=behind, tensor=tensor.backward, context=context.backward, expert=expert.backward, host=wait_backward,
        ),
        weight_gradient_s=pieces.products_weight,
        forward_window_s=ahead + wait_forward if idles else ahead,
        backward_window_s=behind + wait_backward if idles else behind,
        regather_s=tensor.again,
        exchange_s=context.again,
        left_out=left_out(kind, case, shape, tensor.last),
        pieces=pieces,
    )


def unit_host_s(case: Case) -> Array:
    """Host time of one sharded unit of parameters in one pass, where the implementation has such units.

    Shapes:  none; a column where the constant is a column of trials.
    Units:   s.
    Source:  ``Constants.shard_host_s``; PyTorch FSDP2, hooks of a module.
    """
    return array(0.0 if case.implementation.units is None else case.calibration.constants.shard_host_s)


def left_out(kind: LayerKind, case: Case, shape: WorkShape, last_s: Array) -> Seconds:
    """The end of a forward that full recomputation does not run again: the last product and the message behind it.

    Shapes:  the columns of ``shape``.
    Units:   s.
    Holds:   implementations that stop early (``Implementation.checkpoints``), where nothing keeps the last product's result.
    Source:  torch.utils.checkpoint, early stop; ``perf.messages.keeps_last_product``.
    """
    if not case.implementation.checkpoints or keeps_last_product(kind):
        return seconds()
    last = _products(kind, case, shape)[-1]
    return seconds(compute=product_s(last, case, "forward"), tensor=last_s)


WITHIN_MOE = ("shared_experts",)
"""Modules that lie inside the one that module ``moe`` runs again."""


def recompute_s(time: LayerTime, modules: tuple[str, ...] | None) -> Seconds:
    """What backward runs again: the named modules, or the whole forward (``None``).

        full: forward, communication included, without what is left out;   selective: forward of the modules' operators

    Shapes:  the columns of ``time``.
    Units:   s.
    Holds:   ``moe`` runs its all-to-all and its shared experts again, ``comm`` gathers again; ``layernorm`` and activations cost
             their passes only.
    Source:  Korthikanti et al. 2022 section 5; Megatron-Core recompute modules (docs/sources.md#activations).
    """
    if modules is None:
        return time.forward.plus(time.left_out.times(-1.0))
    compute = array(0.0)
    if "moe" in modules:
        modules = (*(module for module in modules if module not in WITHIN_MOE), *WITHIN_MOE)
    for module in modules:
        compute = compute + time.pieces.forward_of.get(module, array(0.0))
    expert = time.forward.expert if "moe" in modules else np.zeros_like(time.forward.expert)
    tensor = time.regather_s if COMMUNICATION in modules else np.zeros_like(time.regather_s)
    context = time.exchange_s if ATTENTION_CORE in modules else np.zeros_like(time.exchange_s)
    return seconds(compute=compute, tensor=tensor, context=context, expert=expert)
