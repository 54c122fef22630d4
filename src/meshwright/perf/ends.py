"""What stands at the ends of the pipeline: the embedding in front, the output layer and the loss behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from meshwright.perf.arrays import Array, Number, array
from meshwright.perf.collectives import all_gather_s, all_reduce_s, of_tensor_s
from meshwright.perf.elementwise import EMBEDDING_BYTES, memory_bound_s
from meshwright.perf.layer import unit_host_s
from meshwright.perf.operators import head_product, mtp_product
from meshwright.perf.product_times import accumulation_s, products_s
from meshwright.perf.seconds import Seconds, seconds

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.perf.operators import WorkShape
    from meshwright.perf.placement import Groups


class EndTime(Struct, frozen=True, kw_only=True):
    """Forward and backward of an end of the model, and the weight-gradient share of its backward."""

    forward: Seconds
    backward: Seconds
    weight_gradient_s: Array


def embedding_time(case: Case, shape: WorkShape, groups: Groups) -> EndTime:
    """Look-up of token (and position) embeddings, its scatter-add backward, and the reduction over tensor ranks.

    Each tensor rank holds a slice of the vocabulary; the results are reduce-scattered (sequence parallelism) or all-reduced.

    Shapes:  the columns of ``shape``.
    Units:   s.
    Source:  Megatron-Core VocabParallelEmbedding.
    """
    device, constants, cluster = case.cluster.device, case.calibration.constants, case.cluster
    elements = shape.tokens * case.model.hidden
    tables = 1.0 + (1.0 if case.model.position_table else 0.0) + (1.0 if case.model.embedding_norm else 0.0)
    payload = 2.0 * elements
    sharded = shape.sequence_shards > 1.0
    of_all = of_tensor_s(payload, groups.tensor, cluster, constants)
    gap = 3.0 * constants.kernel_gap_s
    ahead, behind = (memory_bound_s(each * elements * tables, device, constants, kind="embedding") for each in EMBEDDING_BYTES)
    return EndTime(
        forward=seconds(compute=ahead + gap, tensor=np.where(sharded, of_all.scatter, of_all.reduce)),
        backward=seconds(compute=behind + gap, tensor=np.where(sharded, of_all.gather, 0.0)),
        weight_gradient_s=array(0.0),
    )


def head_time(case: Case, shape: WorkShape, groups: Groups, vocabulary: Number) -> EndTime:
    """Final norm, output layer and vocabulary-parallel cross entropy; once more for every further token that is predicted,
    with its projection.

    Symbols: logits T V / t on a rank; the loss moves the implementation's ``loss_passes`` bytes per logit, or its
             ``split_loss_passes`` where tensor ranks split the vocabulary. The unit of both ends costs its host time here.
    Shapes:  the columns of ``shape``.
    Units:   s.
    Holds:   the output layer computes in the base data type under every recipe.
    Source:  Megatron-Core vocab_parallel_cross_entropy; SimuMax ParallelCE (docs/sources.md#logits-and-loss).
    """
    device, constants, cluster, model = case.cluster.device, case.calibration.constants, case.cluster, case.model
    product = head_product(model, shape, vocabulary)
    logits = shape.tokens * array(vocabulary) / shape.tensor_parallel
    implementation = case.implementation
    copies = 1.0 + model.mtp_passes
    norm = shape.shard_tokens * model.hidden
    payload = 2.0 * shape.tokens * model.hidden
    gather, scatter, reduce = of_tensor_s(payload, groups.tensor, cluster, constants)
    sharded = shape.sequence_shards > 1.0
    scalars = 3.0 * all_reduce_s(4.0 * shape.tokens, groups.tensor, cluster, constants)
    joined = mtp_product(model, shape)
    ahead_s, input_s, joined_forward, joined_input, *weights = products_s(
        [
            (product, "forward"), (product, "input"), (joined, "forward"), (joined, "input"),
            *(() if case.training.weights_frozen else ((product, "weight"), (joined, "weight"))),
        ], case,
    )
    weight = weights[0] + accumulation_s(product, case) if weights else array(0.0)
    if implementation.split_loss_passes:
        moved_forward, moved_backward = (
            np.where(
                shape.tensor_parallel > 1.0,
                memory_bound_s(split * logits, device, constants, kind="loss_parallel"),
                memory_bound_s(alone * logits, device, constants, kind="loss"),
            )
            + memory_bound_s(around * norm, device, constants, kind="norm")
            for split, alone, around in zip(implementation.split_loss_passes, implementation.loss_passes, (4.0, 6.0), strict=True)
        )
    else:
        ahead, behind = implementation.loss_passes
        moved_forward = memory_bound_s(ahead * logits + 4.0 * norm, device, constants)
        moved_backward = memory_bound_s(behind * logits + 6.0 * norm, device, constants)
    forward, backward = ahead_s + moved_forward, input_s + weight + moved_backward
    joined_weight = weights[1] if weights else array(0.0)
    gap = 8.0 * constants.kernel_gap_s
    host = unit_host_s(case)
    whole = shape.tokens * array(vocabulary)
    spread = all_gather_s(2.0 * whole, groups.tensor, cluster, constants) if case.implementation.logits_gathered else 0.0
    return EndTime(
        forward=seconds(
            compute=copies * (forward + gap) + model.mtp_passes * joined_forward,
            tensor=copies * (np.where(sharded, gather, 0.0) + scalars + spread),
            host=host,
        ),
        backward=seconds(
            compute=copies * (backward + gap) + model.mtp_passes * (joined_input + joined_weight),
            tensor=copies * np.where(sharded, scatter if implementation.distributed_tensors else 2.0 * gather, reduce),
            host=host,
        ),
        weight_gradient_s=copies * weight + model.mtp_passes * joined_weight,
    )


def logits_bytes(case: Case, shape: WorkShape, vocabulary: Number) -> Array:
    """Bytes that the logits of one micro-batch take at the loss, on the last stage.

        q (1 + n) T V / t + w V h / t

    Symbols: n further tokens that are predicted, whose losses are taken together with the main one; q ``logit_bytes``: 2 in place;
             10 with an FP32 copy and the softmax that becomes the gradient; 14 where both stay; ``split_logit_bytes`` where the
             implementation says so and t > 1; w ``weight_gradient_bytes``; T at most ``logit_chunk_tokens`` where the loss
             is taken in chunks.
    Shapes:  the columns of ``shape``.
    Units:   bytes.
    Holds:   one micro-batch at a time is between head and loss, in every schedule.
    Source:  SimuMax ParallelCE: 4 cached and 2 transient, or 2 fused (docs/sources.md#logits-and-loss).
    """
    whole = 1.0 if case.implementation.logits_gathered else shape.tensor_parallel
    each: Number = case.implementation.logit_bytes
    if case.implementation.split_logit_bytes:
        each = np.where(shape.tensor_parallel > 1.0, case.implementation.split_logit_bytes, each)
    chunk = case.implementation.logit_chunk_tokens
    tokens = np.minimum(shape.tokens, chunk) if chunk else shape.tokens
    logits = each * (1.0 + case.model.mtp_passes) * tokens * array(vocabulary) / whole
    if case.training.weights_frozen:
        return logits
    width = case.model.embedding_width or case.model.hidden
    return logits + case.implementation.weight_gradient_bytes * array(vocabulary) * width / shape.tensor_parallel


def head_saved_bytes(case: Case, shape: WorkShape, vocabulary: Number) -> Array:
    """Bytes that norm, output layer and loss of one micro-batch keep for their backward.

        2 T h / t_s + 2 T h + q T V / t

    Symbols: t_s sequence shards: the norm's input is sharded, the output layer's is gathered; q ``logit_saved_bytes``.
    Shapes:  the columns of ``shape``.
    Units:   bytes.
    Holds:   implementations that keep gathered inputs (eager PyTorch); elsewhere ``logits_bytes`` and the head's input have it.
    Source:  PyTorch autograd: RMSNorm, Linear, log_softmax.
    """
    norm = 2.0 * shape.shard_tokens * case.model.hidden if case.model.final_norm else 0.0
    logits = case.implementation.logit_saved_bytes * shape.tokens * array(vocabulary) / shape.tensor_parallel
    return norm + 2.0 * shape.tokens * case.model.hidden + logits
