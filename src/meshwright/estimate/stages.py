"""From layers to stages: what each sort of stage costs for one micro-batch, and how many parameters it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np
from msgspec import Struct, structs

from meshwright.estimate.costs import vocabulary_rows
from meshwright.perf.arrays import Array, array
from meshwright.perf.parameters import (
    embedding_parameters,
    final_norm_parameters,
    frozen_parameters,
    head_parameters,
    layer_parameters,
    mtp_parameters,
)
from meshwright.perf.seconds import Seconds, seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from meshwright.domain.case import Case
    from meshwright.estimate.costs import WorkCosts
    from meshwright.estimate.degrees import Degrees
    from meshwright.estimate.split import Composition

Item = TypeVar("Item")
NOTHING = array(0.0)


class KindInputs(Struct, frozen=True, kw_only=True):
    """What stages need of one kind of layer; tuples run over the treatments of the settings."""

    forward_s: Array
    backward_s: Array
    weight_s: Array
    unwoven_s: Array
    forward_window_s: Array
    backward_window_s: Array
    again_s: tuple[Array, ...]
    saved_bytes: tuple[Array, ...]
    transient_bytes: tuple[Array, ...]


class Front(Struct, frozen=True, kw_only=True):
    """Bytes of a tower in front of the first layer: what it keeps, and what one of its layers holds while it runs."""

    saved_bytes: Array
    transient_bytes: Array


class StageInputs(Struct, frozen=True, kw_only=True):
    """The sums of ``WorkCosts`` that stages are made of: few enough to be gathered for a column of stages."""

    kinds: tuple[KindInputs, ...]
    embedding_forward_s: Array
    embedding_backward_s: Array
    head_forward_s: Array
    head_backward_s: Array
    head_weight_s: Array
    head_bytes: Array
    before_bytes: Array
    hop_s: Array
    front: Front | None


def stage_inputs(costs: WorkCosts) -> StageInputs:
    """Totals over causes of everything that one micro-batch costs."""
    tower = costs.tower
    kinds = tuple(
        KindInputs(
            forward_s=kind.time.forward.total, backward_s=kind.time.backward.total, weight_s=kind.time.weight_gradient_s,
            unwoven_s=kind.time.unwoven.total, forward_window_s=kind.time.forward_window_s,
            backward_window_s=kind.time.backward_window_s, again_s=tuple(again.total for again in kind.recompute),
            saved_bytes=kind.saved_bytes, transient_bytes=kind.transient_bytes,
        )
        for kind in costs.kinds
    )
    return StageInputs(
        kinds=kinds,
        embedding_forward_s=costs.embedding.forward.total,
        embedding_backward_s=costs.embedding.backward.total,
        head_forward_s=costs.head.forward.total,
        head_backward_s=costs.head.backward.total,
        head_weight_s=costs.head.weight_gradient_s,
        head_bytes=costs.logits_bytes + costs.head_input_bytes,
        before_bytes=costs.logits_before_bytes,
        hop_s=costs.hop_s,
        front=None if tower is None else Front(saved_bytes=tower.saved_bytes, transient_bytes=tower.transient_bytes),
    )


Treated = tuple[tuple[Array, Array, Array], ...]
"""Of each kind of layer what a treatment decides: seconds run again, bytes that are kept, and the working set."""


def untreated(inputs: StageInputs) -> StageInputs:
    """The inputs that are the same under every treatment."""
    kinds = tuple(structs.replace(kind, again_s=(), saved_bytes=(), transient_bytes=()) for kind in inputs.kinds)
    return structs.replace(inputs, kinds=kinds)


def treated(inputs: StageInputs, treatment: int) -> Treated:
    """The inputs that one treatment decides."""
    return tuple((kind.again_s[treatment], kind.saved_bytes[treatment], kind.transient_bytes[treatment]) for kind in inputs.kinds)


def under(inputs: StageInputs, treatment: int) -> StageInputs:
    """The inputs of one treatment alone."""
    return treated_as(inputs, treated(inputs, treatment))


def treated_as(inputs: StageInputs, own: Treated) -> StageInputs:
    """Inputs with those of one treatment."""
    kinds = tuple(
        structs.replace(kind, again_s=(again,), saved_bytes=(saved,), transient_bytes=(working,))
        for kind, (again, saved, working) in zip(inputs.kinds, own, strict=True)
    )
    return structs.replace(inputs, kinds=kinds)


def together(each: Sequence[StageInputs]) -> StageInputs:
    """The inputs of several treatments, of which each has one."""
    kinds = tuple(
        structs.replace(
            kinds[0], again_s=tuple(kind.again_s[0] for kind in kinds), saved_bytes=tuple(kind.saved_bytes[0] for kind in kinds),
            transient_bytes=tuple(kind.transient_bytes[0] for kind in kinds),
        )
        for kinds in zip(*(inputs.kinds for inputs in each), strict=True)
    )
    return structs.replace(each[0], kinds=kinds)


class StageCosts(Struct, frozen=True, kw_only=True):
    """Rows of a composition, for one micro-batch: ``[row]`` or ``[row, column]``."""

    forward_s: Array
    backward_s: Array
    weight_s: Array
    """Part of the backward that may wait (zero bubble)."""
    unwoven_s: Array
    """What both passes take more where exchanges of experts are woven into no other."""
    forward_window_s: Array
    """Windows of the layers alone, beside which data-parallel communication runs."""
    backward_window_s: Array
    saved_bytes: Array
    transient_bytes: Array
    """Largest working set while one of its layers, or the loss, runs."""
    before_bytes: Array
    """What the micro-batch before leaves behind."""
    front_bytes: Array
    """What a trained tower keeps, beside ``saved_bytes``; the number nought where there is no tower."""


class StageParameters(Struct, frozen=True, kw_only=True):
    """Parameters of a rank of each row, before data-parallel sharding."""

    dense: Array
    experts: Array
    dense_layer: Array
    """Dense parameters of the largest layer: what full sharding gathers at a time."""
    expert_layer: Array
    ends: Array
    """Parameters of embedding, output layer and last norm on the row."""
    frozen: Array
    """Parameters of a frozen tower, beside all of these: weights alone."""


def _weighted(composition: Composition, kinds: tuple[Item, ...], value: Callable[[Item, int], Array]) -> Array:
    """Sum over kinds and treatments of layers times a value, ``[row]`` or ``[row, column]``."""
    total: Array | None = None
    for treatment, counts in enumerate(composition.counts):
        if counts is None:
            continue
        for index, kind in enumerate(kinds):
            part = counts[:, index] * value(kind, treatment)
            total = part if total is None else total + part
    assert total is not None, "a composition without layers"
    return total


def stage_costs(inputs: StageInputs, composition: Composition) -> StageCosts:
    """Seconds and bytes of each row for one micro-batch.

        F = sum n_k F_k + [embedding] E_F + [head] H_F;   B likewise, with what is recomputed

    Shapes:  composition ``[row, kind(, column)]``, inputs ``[column]`` -> ``[row(, column)]``.
    Units:   s and bytes.
    Source:  sums of ``perf.layer`` and ``perf.ends``.
    """
    embedding, head, kinds = composition.embedding, composition.head, inputs.kinds
    forward = _weighted(composition, kinds, lambda kind, _: kind.forward_s)
    backward = _weighted(composition, kinds, lambda kind, t: kind.backward_s + kind.again_s[t])
    transient = array(0.0)
    for treatment, counts in enumerate(composition.counts):
        if counts is None:
            continue
        for index, kind in enumerate(kinds):
            transient = np.maximum(transient, np.where(counts[:, index] > 0.0, kind.transient_bytes[treatment], 0.0))
    transient, front = np.maximum(transient, head * inputs.head_bytes), inputs.front
    if front is not None:
        transient = np.maximum(transient, embedding * front.transient_bytes)
    return StageCosts(
        forward_s=forward + embedding * inputs.embedding_forward_s + head * inputs.head_forward_s,
        backward_s=backward + embedding * inputs.embedding_backward_s + head * inputs.head_backward_s,
        weight_s=_weighted(composition, kinds, lambda kind, _: kind.weight_s) + head * inputs.head_weight_s,
        unwoven_s=_weighted(composition, kinds, lambda kind, _: kind.unwoven_s),
        forward_window_s=_weighted(composition, kinds, lambda kind, _: kind.forward_window_s),
        backward_window_s=_weighted(composition, kinds, lambda kind, _: kind.backward_window_s),
        saved_bytes=_weighted(composition, kinds, lambda kind, t: kind.saved_bytes[t]),
        transient_bytes=transient,
        before_bytes=head * inputs.before_bytes,
        front_bytes=NOTHING if front is None else embedding * front.saved_bytes,
    )


def stage_seconds(costs: WorkCosts, composition: Composition) -> tuple[Seconds, Seconds, Seconds]:
    """Forward and backward of each row, and what both take more woven into no other, by cause (the sums of ``stage_costs``)."""

    def total(pick: Callable[[Seconds], Array]) -> tuple[Array, Array, Array]:
        ahead = _weighted(composition, costs.kinds, lambda kind, _: pick(kind.time.forward))
        behind = _weighted(composition, costs.kinds, lambda kind, t: pick(kind.time.backward) + pick(kind.recompute[t]))
        ahead = ahead + composition.embedding * pick(costs.embedding.forward) + composition.head * pick(costs.head.forward)
        behind = behind + composition.embedding * pick(costs.embedding.backward) + composition.head * pick(costs.head.backward)
        return ahead, behind, _weighted(composition, costs.kinds, lambda kind, _: pick(kind.time.unwoven))

    compute, tensor = total(lambda s: s.compute), total(lambda s: s.tensor)
    context, expert, host = total(lambda s: s.context), total(lambda s: s.expert), total(lambda s: s.host)
    ahead, behind, unwoven = (
        seconds(compute=compute[i], tensor=tensor[i], context=context[i], expert=expert[i], host=host[i]) for i in range(3)
    )
    return ahead, behind, unwoven


def stage_parameters(case: Case, composition: Composition, degrees: Degrees) -> StageParameters:
    """Parameters on a rank of each row.

    Symbols: as in ``perf.parameters``; the vocabulary is padded as the implementation does. Tied embeddings are held twice under a
             pipeline, once without.
    Shapes:  ``[row]`` or ``[row, column]``.
    Units:   parameters.
    Source:  ``perf.parameters``.
    """
    tp, ep, etp = (
        degree.astype(np.int64) for degree in (degrees.tensor_parallel, degrees.expert_parallel, degrees.expert_tensor_parallel)
    )
    model = case.model
    vocabulary = vocabulary_rows(case, degrees.tensor_parallel).astype(np.int64)
    counts, cut = composition.kind_counts(), case.implementation.cuts_query_groups
    dense = experts = largest_dense = largest_experts = array(0.0)
    for index, kind in enumerate(model.kinds):
        each = layer_parameters(model, kind, tp=tp, ep=ep, etp=etp, cut=cut)
        layers = counts[:, index]
        if behind := model.mtp_kinds.count(index):
            layers = layers - composition.head * behind
        dense = dense + layers * array(np.asarray(each.dense))
        experts = experts + layers * array(np.asarray(each.routed))
        present = layers > 0.0
        largest_dense = np.maximum(largest_dense, np.where(present, array(np.asarray(each.dense)), 0.0))
        largest_experts = np.maximum(largest_experts, np.where(present, array(np.asarray(each.routed)), 0.0))
    front = embedding_parameters(model, tp=tp, vocabulary=vocabulary)
    copied = degrees.pipeline_parallel > 1.0
    back = head_parameters(model, tp=tp, vocabulary=vocabulary, copied=copied) + final_norm_parameters(model)
    extra = mtp_parameters(model, tp=tp, ep=ep, etp=etp, cut=cut)
    # Multi-token prediction embeds tokens on the last stage, so an untied table stands there a second time.
    copy = np.where(copied & bool(model.num_mtp_layers and not model.tied_embeddings), array(np.asarray(front.sharded)), 0.0)
    ends = composition.head * (1.0 - composition.embedding) * copy
    ends = ends + composition.embedding * array(np.asarray(front.dense)) + composition.head * array(np.asarray(back.dense))
    dense = dense + ends + composition.head * array(np.asarray(extra.dense))
    experts = experts + composition.head * array(np.asarray(extra.routed))
    return StageParameters(
        dense=dense, experts=experts, dense_layer=largest_dense, expert_layer=largest_experts, ends=ends,
        frozen=composition.embedding * float(frozen_parameters(model)),
    )
