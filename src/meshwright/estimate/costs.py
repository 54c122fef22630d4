"""What one micro-batch costs on one rank, per kind of layer and per end of the model: the tables that the rest gathers from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, structs

from meshwright.domain.layout import Full, NoRecompute, Selective
from meshwright.estimate.tables import Table
from meshwright.perf.activations import (
    attention_working_bytes,
    checkpoint_bytes,
    headroom_ratio,
    saved_bytes,
    working_bytes,
)
from meshwright.perf.arrays import Array, array, take
from meshwright.perf.collectives import all_gather_s, point_to_point_s
from meshwright.perf.ends import EndTime, embedding_time, head_time, logits_bytes
from meshwright.perf.layer import LayerTime, layer_time, recompute_s
from meshwright.perf.masked import is_masked, masked_kind, masking_bytes, masking_s
from meshwright.perf.offload import offload_s
from meshwright.perf.operators import WorkShape, work_shape
from meshwright.perf.parameters import padded_vocabulary
from meshwright.perf.placement import crossing, layer_groups
from meshwright.perf.seconds import Seconds, seconds
from meshwright.perf.tower import TowerCosts, tower_costs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from meshwright.domain.case import Case
    from meshwright.domain.layout import ContextKind, Overlap, Treatment
    from meshwright.domain.model import LayerKind
    from meshwright.estimate.degrees import Degrees
    from meshwright.perf.placement import Groups

    Ints = NDArray[np.int64]

OFFLOAD_BUFFERS = 2.0
"""Layers whose offloaded tensors are on the device: the one that runs and the one that travels. Of checkpoints it is the one that
runs: they are fetched when their layer does (torch.autograd.graph.save_on_cpu)."""


class Settings(Struct, frozen=True, kw_only=True):
    """Knobs that are the same for a whole column: schedule, treatments, switches."""

    schedule: str
    treatments: tuple[Treatment, ...]
    """Those that layers may have; counts and costs by treatment are in this order."""
    overlap: Overlap
    context_kind: ContextKind
    offload: bool = False
    compiled: bool | None = None
    attention: str | None = None
    """Kernels that the layouts name (``domain.kernels``)."""


class BareLayer(Struct, frozen=True, kw_only=True):
    """One kind of layer, whatever is recomputed in it."""

    time: LayerTime
    everything_bytes: Array
    """Kept where nothing is recomputed, but for masks."""
    working_bytes: Array
    mask_bytes: Array
    """Kept by a mask of the attention core."""
    scores_bytes: Array
    """Held while a mask is made."""
    walked_bytes: Array | None
    """Held while attention runs backward; None where ``working_bytes`` has all of it."""
    headroom_ratio: Array


class Ends(Struct, frozen=True, kw_only=True):
    """What one micro-batch costs on a rank beside its layers."""

    shape: WorkShape
    embedding: EndTime
    head: EndTime
    logits_bytes: Array
    logits_before_bytes: Array
    """Logits of the micro-batch before that are still held."""
    head_input_bytes: Array
    """Input of the output layer, kept until its backward."""
    hop_s: Array
    """One activation (or its gradient) to the next stage."""
    tower: TowerCosts | None
    """In front of the first layer; its seconds are the embedding's, too."""


class BareWork(Ends, frozen=True, kw_only=True):
    """All that one micro-batch costs on a rank, whatever is recomputed."""

    layers: tuple[BareLayer, ...]


class KindCosts(Struct, frozen=True, kw_only=True):
    """One kind of layer; tuples run over the treatments of the settings."""

    time: LayerTime
    recompute: tuple[Seconds, ...]
    saved_bytes: tuple[Array, ...]
    transient_bytes: tuple[Array, ...]


class WorkCosts(Ends, frozen=True, kw_only=True):
    """All that one micro-batch costs on a rank, under each treatment."""

    kinds: tuple[KindCosts, ...]


def vocabulary_rows(case: Case, tensor_parallel: Array) -> Array:
    """Rows of the embedding as the implementation pads them."""
    tp = np.asarray(tensor_parallel).astype(np.int64)
    return array(np.asarray(padded_vocabulary(case.model.vocabulary, tp=tp, multiple=case.implementation.pads_vocabulary_to)))


def bare_layer(kind: LayerKind, case: Case, shape: WorkShape, groups: Groups, settings: Settings) -> BareLayer:
    """One kind of layer whatever is recomputed in it: of the settings, overlap and kind of context parallelism.

    Shapes:  the columns of ``shape``.
    Units:   s and bytes.
    Source:  ``perf.layer``, ``perf.activations``.
    """
    masking, kept_mask, held_scores = None, array(0.0), array(0.0)
    if is_masked(kind, case):
        masking, (kept_mask, held_scores) = masking_s(kind, case, shape), masking_bytes(kind, case, shape)
        kind = masked_kind(kind)
    time = layer_time(kind, case, shape, groups, overlap=settings.overlap, context_kind=settings.context_kind, masking=masking)
    hidden, sequence, headroom = case.model.hidden, case.batch.sequence_tokens, headroom_ratio(case, shape)
    options = _options(case, headroom)
    working = working_bytes(
        kind, hidden, shape, implementation=case.implementation, weights_frozen=case.training.weights_frozen,
        slice_tokens=case.launch.slice_tokens,
    )
    buffers = case.implementation.gather_buffer_bytes * shape.tokens * hidden
    return BareLayer(
        time=time, everything_bytes=saved_bytes(kind, hidden, sequence, shape, **options),  # type: ignore[arg-type]
        working_bytes=working + np.where(shape.tensor_parallel > 1.0, buffers, 0.0), mask_bytes=kept_mask, scores_bytes=held_scores,
        walked_bytes=_attention_peak(kind, case, shape, settings, options), headroom_ratio=headroom,
    )


def _options(case: Case, headroom: Array) -> dict[str, object]:
    """What all questions about kept bytes have in common."""
    return {"implementation": case.implementation, "precision": case.training.precision, "headroom_ratio": headroom}


def kind_costs(kind: LayerKind, case: Case, shape: WorkShape, bare: BareLayer, settings: Settings) -> KindCosts:
    """One kind of layer under the treatments of the settings.

    Shapes:  the columns of ``shape``.
    Units:   s and bytes.
    Source:  ``perf.layer``, ``perf.activations``.
    """
    if is_masked(kind, case):
        kind = masked_kind(kind)
    hidden, sequence, time = case.model.hidden, case.batch.sequence_tokens, bare.time
    everything, kept_mask, options = bare.everything_bytes, bare.mask_bytes, _options(case, bare.headroom_ratio)
    recompute: list[Seconds] = []
    saved: list[Array] = []
    brought: list[Array] = []
    for treatment in settings.treatments:
        match treatment:
            case NoRecompute():
                again, kept = seconds(), everything + kept_mask
            case Selective(modules=modules):
                again = recompute_s(time, modules)
                kept = saved_bytes(kind, hidden, sequence, shape, recomputed=modules, **options)  # type: ignore[arg-type]
                kept = kept + (0.0 if "core_attn" in modules else kept_mask)
            case Full():
                again, kept = recompute_s(time, None), checkpoint_bytes(hidden, shape, streams=kind.streams)
        peak = bare.working_bytes + (everything + kept_mask - kept) + bare.scores_bytes
        if bare.walked_bytes is not None:
            peak = np.maximum(peak, bare.walked_bytes - kept)
        if case.launch.offloads:
            away = _offloaded_bytes(kind, case, shape, kept, treatment, options)
            again = again.plus(offload_s(away, time.forward.total, time.backward.total + again.total, case.cluster))
            kept, peak = kept - away, peak + (1.0 if isinstance(treatment, Full) else OFFLOAD_BUFFERS) * _of_a_layer(away, case)
        recompute.append(again)
        saved.append(kept)
        brought.append(peak)
    return KindCosts(time=time, recompute=tuple(recompute), saved_bytes=tuple(saved), transient_bytes=tuple(brought))


def _attention_peak(
    kind: LayerKind, case: Case, shape: WorkShape, settings: Settings, options: Mapping[str, object]
) -> Array | None:
    """What a layer holds while its attention runs backward; None where ``working_bytes`` has all of it."""
    implementation = case.implementation
    if not (implementation.frees_operators or any(implementation.ring_backward_bytes)):
        return None
    own = saved_bytes(kind, case.model.hidden, case.batch.sequence_tokens, shape, parts=("attention", "mixer"), **options)  # type: ignore[arg-type]
    ring = settings.context_kind == "ring"
    return own + attention_working_bytes(kind, case.model.hidden, shape, implementation, ring=ring)


def _offloaded_bytes(
    kind: LayerKind, case: Case, shape: WorkShape, kept: Array, treatment: Treatment, options: Mapping[str, object]
) -> Array:
    """Of what a layer keeps, what goes to the host.

        kept            checkpoints of full recomputation, where they go there (``Launch.offloaded_checkpoints``)
        kept min(k, L) / L, on average over the layers, of which k do (``Launch.offloaded_layers``)
        the inputs of some modules (``Launch.offloaded_modules``)

    Symbols: L layers of the model.
    Holds:   whole layers under one stage that recomputes nothing: Megatron-Core refuses others.
    Source:  Megatron-Core --cpu-offloading-num-layers, --offload-modules; torch.autograd.graph.save_on_cpu.
    """
    launch = case.launch
    if isinstance(treatment, Full):
        return kept if launch.offloaded_checkpoints else 0.0 * kept
    if launch.offloaded_modules:
        recomputed = treatment.modules if isinstance(treatment, Selective) else ()
        return saved_bytes(
            kind, case.model.hidden, case.batch.sequence_tokens, shape, recomputed=recomputed, inputs_of=launch.offloaded_modules,
            **options,  # type: ignore[arg-type]
        )
    return kept * (min(launch.offloaded_layers, case.model.num_layers) / case.model.num_layers)


def _of_a_layer(away: Array, case: Case) -> Array:
    """What one of the layers that go to the host has there, of the mean over all layers."""
    layers, moved = case.model.num_layers, case.launch.offloaded_layers
    return away if case.launch.offloaded_modules or not moved else away * (layers / min(moved, layers))


class Alike(Struct, frozen=True, kw_only=True, eq=False):
    """Columns that differ in the degrees of experts alone: one of each such, and which of them every column is like."""

    one: Ints
    like: Ints


def work_costs(case: Case, settings: Settings, degrees: Degrees, alike: Alike | None = None) -> WorkCosts:
    """All costs of one micro-batch, for columns of degrees; a layer without experts is computed once for those that are ``alike``.

    Shapes:  degrees broadcast.
    Units:   s and bytes.
    Source:  ``perf``.
    """
    if alike is None:
        return treated(case, settings, bare_work(case, settings, degrees))
    shape, groups = _ground(case, degrees)

    def of(kind: LayerKind) -> KindCosts:
        if kind.experts is not None:
            return kind_costs(kind, case, shape, bare_layer(kind, case, shape, groups, settings), settings)
        own, among = _ground(case, take(degrees, alike.one))
        costs = kind_costs(kind, case, own, bare_layer(kind, case, own, among, settings), settings)
        return Table(costs, len(alike.one)).take(alike.like)

    return WorkCosts(kinds=tuple(map(of, case.model.kinds)), **structs.asdict(_ends(case, shape, groups, degrees)))


def work_keys(case: Case, degrees: Degrees) -> list[tuple[float, ...]]:
    """Of every column all that the costs of one micro-batch read of its degrees: columns with one key cost the same.

    Shapes:  degrees are columns of one length, or numbers.
    Units:   ranks, sequences, and the share of hops between stages that cross domains.
    """
    crosses = crossing(degrees.devices_per_stage, degrees.pipeline_parallel, case.cluster)
    columns = np.array([
        degrees.tensor_parallel, degrees.sequence_parallel, degrees.context_parallel, degrees.expert_parallel,
        degrees.expert_tensor_parallel, degrees.microbatch_sequences, crosses,
    ])
    return list(map(tuple, columns.reshape(len(columns), -1).T.tolist()))


def bare_work(case: Case, settings: Settings, degrees: Degrees) -> BareWork:
    """What one micro-batch costs whatever is recomputed: of the settings, overlap and kind of context parallelism.

    Shapes:  degrees broadcast; what ``work_keys`` says alone is read.
    Units:   s and bytes.
    Source:  ``perf``.
    """
    shape, groups = _ground(case, degrees)
    layers = tuple(bare_layer(kind, case, shape, groups, settings) for kind in case.model.kinds)
    return BareWork(layers=layers, **structs.asdict(_ends(case, shape, groups, degrees)))


def treated(case: Case, settings: Settings, bare: BareWork) -> WorkCosts:
    """The same under the treatments of the settings.

    Shapes:  the columns of ``bare``.
    Units:   s and bytes.
    Source:  ``kind_costs``.
    """
    ends = structs.asdict(bare)
    kinds = zip(case.model.kinds, ends.pop("layers"), strict=True)
    return WorkCosts(kinds=tuple(kind_costs(kind, case, bare.shape, layer, settings) for kind, layer in kinds), **ends)


def _ends(case: Case, shape: WorkShape, groups: Groups, degrees: Degrees) -> Ends:
    vocabulary = vocabulary_rows(case, degrees.tensor_parallel)
    embedding, tower = embedding_time(case, shape, groups), None
    if case.model.tower is not None:
        tower = tower_costs(case.model.tower, case, degrees.microbatch_sequences, degrees.devices_per_stage)
        embedding = structs.replace(
            embedding, forward=embedding.forward.plus(tower.forward), backward=embedding.backward.plus(tower.backward)
        )
    return Ends(
        shape=shape,
        embedding=embedding,
        head=head_time(case, shape, groups, vocabulary),
        logits_bytes=logits_bytes(case, shape, vocabulary),
        logits_before_bytes=case.implementation.logit_bytes_before * shape.tokens * vocabulary / shape.tensor_parallel,
        head_input_bytes=2.0 * shape.shard_tokens * case.model.hidden,
        hop_s=hop_s(case, shape, groups),
        tower=tower,
    )


def _ground(case: Case, degrees: Degrees) -> tuple[WorkShape, Groups]:
    """What a rank works on, and with whom."""
    tp, cp, ep, etp = (
        degrees.tensor_parallel, degrees.context_parallel, degrees.expert_parallel, degrees.expert_tensor_parallel
    )
    shape = work_shape(
        microbatch_sequences=degrees.microbatch_sequences, sequence_tokens=case.batch.sequence_tokens,
        tensor_parallel=tp, sequence_parallel=degrees.sequence_parallel, context_parallel=cp,
        expert_parallel=ep, expert_tensor_parallel=etp,
    )
    return shape, layer_groups(tp, cp, ep, etp, degrees.devices_per_stage, degrees.pipeline_parallel, case.cluster)


def hop_s(case: Case, shape: WorkShape, groups: Groups) -> Array:
    """Time of an activation, or its gradient, from one stage to the next.

        send(2 n T h / t_s)                          sequence parallelism (t_s = t), or every tensor rank sends all of it (t_s = 1)
        send(2 T h / t) + all-gather(2 T h) over t   where the implementation scatters it

    Symbols: T tokens of the micro-batch; h hidden; n residual streams; t TP; t_s sequence shards.
    Shapes:  the columns of ``shape``.
    Units:   s.
    Source:  Narayanan et al. 2021 (arXiv 2104.04473) section 4.1, scatter and gather; DeepSpeed PipelineEngine pipe_partitioned,
             grad_partitioned.
    """
    cluster, constants = case.cluster, case.calibration.constants
    whole = 2.0 * shape.tokens * case.model.hidden * case.model.streams
    scatter = case.implementation.pipeline_scatter
    shares = shape.tensor_parallel if scatter else shape.sequence_shards
    sent = point_to_point_s(whole / shares, crosses=groups.pipeline_crosses, cluster=cluster, constants=constants)
    if not scatter:
        return sent
    return sent + np.where(shape.sequence_shards > 1.0, 0.0, all_gather_s(whole, groups.tensor, cluster, constants))
