"""From layers to stages: what each sort of stage costs for one micro-batch, and how many parameters it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from meshwright.perf.arrays import Array, array
from meshwright.perf.parameters import (
    embedding_parameters,
    final_norm_parameters,
    head_parameters,
    layer_parameters,
    mtp_parameters,
)
from meshwright.perf.seconds import Seconds, seconds
from meshwright.plan.costs import vocabulary_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshwright.domain.case import Case
    from meshwright.plan.costs import KindCosts, WorkCosts
    from meshwright.plan.split import Composition


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCosts:
    """Rows of a composition, for one micro-batch: ``[row]`` or ``[row, column]``."""

    forward_s: Array
    backward_s: Array
    weight_s: Array
    """Part of the backward that may wait (zero bubble)."""
    saved_bytes: Array
    transient_bytes: Array
    """Largest working set while one of its layers, or the loss, runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageParameters:
    """Parameters of a rank of each row, before data-parallel sharding."""

    dense: Array
    experts: Array
    dense_layer: Array
    """Dense parameters of the largest layer: what full sharding gathers at a time."""
    expert_layer: Array


def _weighted(composition: Composition, costs: WorkCosts, value: Callable[[KindCosts, int], Array | None]) -> Array:
    """Sum over kinds and treatments of layers times a value, ``[row]`` or ``[row, column]``."""
    total: Array | None = None
    for treatment, counts in enumerate(composition.counts):
        if counts is None:
            continue
        for index, kind in enumerate(costs.kinds):
            each = value(kind, treatment)
            assert each is not None, "a treatment that was not asked for"
            part = counts[:, index] * each
            total = part if total is None else total + part
    assert total is not None, "a composition without layers"
    return total


def stage_costs(costs: WorkCosts, composition: Composition) -> StageCosts:
    """Seconds and bytes of each row for one micro-batch.

        F = sum n_k F_k + [embedding] E_F + [head] H_F;   B likewise, with what is recomputed

    Shapes:  composition ``[row, kind(, column)]``, costs ``[column]`` -> ``[row(, column)]``.
    Units:   s and bytes.
    Source:  sums of ``perf.layer`` and ``perf.ends``.
    """
    embedding, head = composition.embedding, composition.head
    again = _weighted(composition, costs, lambda kind, t: _seconds(kind, t).total)
    forward = _weighted(composition, costs, lambda kind, _: kind.time.forward.total)
    backward = _weighted(composition, costs, lambda kind, _: kind.time.backward.total) + again
    weight = _weighted(composition, costs, lambda kind, _: kind.time.weight_gradient_s)
    saved = _weighted(composition, costs, lambda kind, t: kind.saved_bytes[t])
    transient = array(0.0)
    for treatment, counts in enumerate(composition.counts):
        if counts is None:
            continue
        for index, kind in enumerate(costs.kinds):
            each = kind.transient_bytes[treatment]
            assert each is not None, "a treatment that was not asked for"
            transient = np.maximum(transient, np.where(counts[:, index] > 0.0, each, 0.0))
    hidden_input = 2.0 * costs.shape.shard_tokens
    return StageCosts(
        forward_s=forward + embedding * costs.embedding.forward.total + head * costs.head.forward.total,
        backward_s=backward + embedding * costs.embedding.backward.total + head * costs.head.backward.total,
        weight_s=weight + head * costs.head.weight_gradient_s,
        saved_bytes=saved,
        transient_bytes=np.maximum(transient, head * (costs.logits_bytes + hidden_input)),
    )


def _seconds(kind: KindCosts, treatment: int) -> Seconds:
    again = kind.recompute[treatment]
    assert again is not None, "a treatment that was not asked for"
    return again


def stage_seconds(costs: WorkCosts, composition: Composition) -> tuple[Seconds, Seconds]:
    """Forward and backward of each row, cause by cause (the same sums as ``stage_costs``)."""

    def total(pick: Callable[[Seconds], Array]) -> tuple[Array, Array]:
        ahead = _weighted(composition, costs, lambda kind, _: pick(kind.time.forward))
        behind = _weighted(composition, costs, lambda kind, t: pick(kind.time.backward) + pick(_seconds(kind, t)))
        ahead = ahead + composition.embedding * pick(costs.embedding.forward) + composition.head * pick(costs.head.forward)
        behind = behind + composition.embedding * pick(costs.embedding.backward) + composition.head * pick(costs.head.backward)
        return ahead, behind

    compute, tensor = total(lambda s: s.compute), total(lambda s: s.tensor)
    context, expert, host = total(lambda s: s.context), total(lambda s: s.expert), total(lambda s: s.host)
    ahead, behind = (
        seconds(compute=compute[i], tensor=tensor[i], context=context[i], expert=expert[i], host=host[i]) for i in (0, 1)
    )
    return ahead, behind


def stage_parameters(
    case: Case, composition: Composition, *, tensor_parallel: Array, expert_parallel: Array, expert_tensor_parallel: Array, pipeline_parallel: Array
) -> StageParameters:  # fmt: skip
    """Parameters on a rank of each row.

    Symbols: as in ``perf.parameters``; the vocabulary is padded as the implementation does. Tied embeddings are held twice under a
             pipeline, once without.
    Shapes:  ``[row]`` or ``[row, column]``.
    Units:   parameters.
    Source:  ``perf.parameters``.
    """
    tp, ep, etp = (np.asarray(degree).astype(np.int64) for degree in (tensor_parallel, expert_parallel, expert_tensor_parallel))
    model = case.model
    vocabulary = vocabulary_rows(case, tensor_parallel).astype(np.int64)
    counts = composition.kind_counts()
    dense = experts = largest_dense = largest_experts = array(0.0)
    for index, kind in enumerate(model.kinds):
        each = layer_parameters(model, kind, tp=tp, ep=ep, etp=etp)
        layers = counts[:, index]
        if kind is model.kinds[model.pattern[-1]] and model.num_mtp_layers:
            layers = layers - composition.head * model.num_mtp_layers
        dense = dense + layers * array(np.asarray(each.dense))
        experts = experts + layers * array(np.asarray(each.routed))
        present = layers > 0.0
        largest_dense = np.maximum(largest_dense, np.where(present, array(np.asarray(each.dense)), 0.0))
        largest_experts = np.maximum(largest_experts, np.where(present, array(np.asarray(each.routed)), 0.0))
    front = embedding_parameters(model, tp=tp, vocabulary=vocabulary)
    copied = np.asarray(pipeline_parallel) > 1
    back = head_parameters(model, tp=tp, vocabulary=vocabulary, copied=copied) + final_norm_parameters(model)
    extra = mtp_parameters(model, tp=tp, ep=ep, etp=etp)
    dense = dense + composition.embedding * array(np.asarray(front.dense))
    dense = dense + composition.head * (array(np.asarray(back.dense)) + array(np.asarray(extra.dense)))
    experts = experts + composition.head * array(np.asarray(extra.routed))
    return StageParameters(dense=dense, experts=experts, dense_layer=largest_dense, expert_layer=largest_experts)
