"""What one micro-batch costs on one rank, per kind of layer and per end of the model: the tables that the rest gathers from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from meshwright.domain.layout import Full, NoRecompute, Selective
from meshwright.perf.activations import checkpoint_bytes, headroom_ratio, saved_bytes, working_bytes
from meshwright.perf.arrays import Array, array
from meshwright.perf.collectives import all_gather_s, point_to_point_s
from meshwright.perf.ends import EndTime, embedding_time, head_time, logits_bytes
from meshwright.perf.layer import LayerTime, layer_time, recompute_s
from meshwright.perf.operators import WorkShape, work_shape
from meshwright.perf.parameters import padded_vocabulary
from meshwright.perf.placement import layer_groups
from meshwright.perf.seconds import Seconds, seconds

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import ContextKind, Overlap, Treatment
    from meshwright.domain.model import LayerKind
    from meshwright.estimate.degrees import Degrees
    from meshwright.perf.placement import Groups


OFFLOAD_BUFFERS = 2.0
"""Layers whose offloaded tensors are on the device: the one that runs and the one that travels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class KindCosts:
    """One kind of layer; tuples run over the treatments of the settings."""

    time: LayerTime
    recompute: tuple[Seconds, ...]
    saved_bytes: tuple[Array, ...]
    transient_bytes: tuple[Array, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkCosts:
    """All that one micro-batch costs on a rank."""

    shape: WorkShape
    kinds: tuple[KindCosts, ...]
    embedding: EndTime
    head: EndTime
    logits_bytes: Array
    logits_before_bytes: Array
    """Logits of the micro-batch before that are still held."""
    head_input_bytes: Array
    """Input of the output layer, kept until its backward."""
    hop_s: Array
    """One activation (or its gradient) to the next stage."""


def vocabulary_rows(case: Case, tensor_parallel: Array) -> Array:
    """Rows of the embedding as the implementation pads them."""
    tp = np.asarray(tensor_parallel).astype(np.int64)
    return array(np.asarray(padded_vocabulary(case.model.vocabulary, tp=tp, multiple=case.implementation.pads_vocabulary_to)))


def kind_costs(kind: LayerKind, case: Case, shape: WorkShape, groups: Groups, settings: Settings) -> KindCosts:
    """One kind of layer under the treatments of the settings.

    Shapes:  the columns of ``shape``.
    Units:   s and bytes.
    Source:  ``perf.layer``, ``perf.activations``.
    """
    time = layer_time(kind, case, shape, groups, overlap=settings.overlap, context_kind=settings.context_kind)
    hidden, sequence = case.model.hidden, case.batch.sequence_tokens
    options = {
        "implementation": case.implementation, "precision": case.training.precision,
        "headroom_ratio": headroom_ratio(case, shape),
    }
    everything = saved_bytes(kind, hidden, sequence, shape, **options)  # type: ignore[arg-type]
    own = 0.0 if case.training.weights_frozen else case.implementation.weight_gradient_bytes
    working = working_bytes(kind, hidden, shape, weight_gradient_bytes=own, cut=case.implementation.cuts_query_groups)
    buffers = case.implementation.gather_buffer_bytes * shape.tokens * hidden
    working = working + np.where(shape.tensor_parallel > 1.0, buffers, 0.0)
    on_device = device_share(case)
    recompute: list[Seconds] = []
    saved: list[Array] = []
    brought: list[Array] = []
    for treatment in settings.treatments:
        match treatment:
            case NoRecompute():
                again, kept = seconds(), everything
            case Selective(modules=modules):
                again = recompute_s(time, modules)
                kept = saved_bytes(kind, hidden, sequence, shape, recomputed=modules, **options)  # type: ignore[arg-type]
            case Full():
                again, kept = recompute_s(time, None), checkpoint_bytes(hidden, shape, streams=kind.streams)
        moved = 0.0 if isinstance(treatment, Full) and case.launch.offloaded_checkpoints else on_device
        recompute.append(again)
        saved.append(moved * kept)
        brought.append(working + (everything - kept) + (OFFLOAD_BUFFERS * kept if moved < 1.0 else 0.0))
    return KindCosts(time=time, recompute=tuple(recompute), saved_bytes=tuple(saved), transient_bytes=tuple(brought))


def device_share(case: Case) -> float:
    """Share of what layers keep for backward that stays on the device, where the host takes that of some layers.

        1 - min(k, L) / L

    Symbols: k ``Launch.offloaded_layers``; L layers of the model.
    Holds:   one stage holds all layers: Megatron-Core refuses to offload layers under a pipeline. Layers weigh the same on average.
             Transfers hide behind compute; what is on its way takes ``OFFLOAD_BUFFERS`` layers on the device.
    Source:  Megatron-Core --cpu-offloading-num-layers; Transformer Engine cpu_offload.py (two layers in turn).
    """
    return 1.0 - min(case.launch.offloaded_layers, case.model.num_layers) / case.model.num_layers


def work_costs(case: Case, settings: Settings, degrees: Degrees) -> WorkCosts:
    """All costs of one micro-batch, for columns of degrees.

    Shapes:  degrees broadcast.
    Units:   s and bytes.
    Source:  ``perf``.
    """
    tp, cp, ep, etp = (
        degrees.tensor_parallel, degrees.context_parallel, degrees.expert_parallel, degrees.expert_tensor_parallel
    )
    shape = work_shape(
        microbatch_sequences=degrees.microbatch_sequences, sequence_tokens=case.batch.sequence_tokens,
        tensor_parallel=tp, sequence_parallel=degrees.sequence_parallel, context_parallel=cp,
        expert_parallel=ep, expert_tensor_parallel=etp,
    )
    groups = layer_groups(tp, cp, ep, etp, degrees.devices_per_stage, degrees.pipeline_parallel, case.cluster)
    vocabulary = vocabulary_rows(case, tp)
    return WorkCosts(
        shape=shape,
        kinds=tuple(kind_costs(kind, case, shape, groups, settings) for kind in case.model.kinds),
        embedding=embedding_time(case, shape, groups),
        head=head_time(case, shape, groups, vocabulary),
        logits_bytes=logits_bytes(case, shape, vocabulary),
        logits_before_bytes=case.implementation.logit_bytes_before * shape.tokens * vocabulary / shape.tensor_parallel,
        head_input_bytes=2.0 * shape.shard_tokens * case.model.hidden,
        hop_s=hop_s(case, shape, groups),
    )


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
