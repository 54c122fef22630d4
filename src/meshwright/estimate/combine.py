"""One step from its parts: pipeline, data parallelism, optimizer, host; and the states of every row of stages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, structs

from meshwright.domain.mesh import group
from meshwright.perf.arrays import Array, array, spread
from meshwright.perf.collectives import all_reduce_s
from meshwright.perf.data_parallel import Synchronisation, exposed_s, synchronisation
from meshwright.perf.expert_exchange import unwoven_microbatches
from meshwright.perf.schedules import SCHEDULES
from meshwright.perf.sharded_units import UnitTimes, unit_counts, unit_times, units_exposed_s
from meshwright.perf.stalls import Load, chance_stall_s, memory_pressure, message_stall_s
from meshwright.perf.states import Shards, States, adapter_parameters, optimizer_s, training_states

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.estimate.costs import Settings
    from meshwright.estimate.degrees import Degrees
    from meshwright.estimate.split import Composition
    from meshwright.estimate.stages import StageCosts, StageParameters


class StateTimes(Struct, frozen=True, kw_only=True):
    """What a step takes that depends on the mesh and its sharding but not on the micro-batch."""

    synchronisation: Synchronisation
    units: UnitTimes | None
    """Data parallelism by sharded units, where the implementation has them, instead of ``synchronisation``."""
    tied_s: Array
    """All-reduce of the tied embedding's gradient between first and last stage."""
    optimizer_s: Array
    straggler_ratio: Array
    """What waiting for the slowest node adds to a step."""


class StateCosts(Struct, frozen=True, kw_only=True):
    """What depends on sharding but not on the micro-batch: states per row, their synchronisation, the optimizer step."""

    states: States
    gathered_bytes: Array
    """What full sharding holds whole per row: two layers, the gradients of one, and the embedding or output layer all along."""
    times: StateTimes
    communicators: Array
    """Communicators of a rank."""


class PipelineTime(Struct, frozen=True, kw_only=True):
    """All micro-batches through the pipeline, seen from the busiest row of stages."""

    busiest: Array
    """Index of the row."""
    forward_window_s: Array
    """Of the forward of one micro-batch on it: what data-parallel communication can hide behind."""
    backward_window_s: Array
    layers: Array
    work_s: Array
    """All its micro-batches, with the communication inside."""
    pipeline_exposed_s: Array
    bubble_s: Array
    unwoven_s: Array
    """What passes take more at the ends of the step, where exchanges of experts are woven into no other."""
    host_s: Array

    @property
    def through_s(self) -> Array:
        """The step but for data parallelism, optimizer, stragglers and stalls: what it takes at least."""
        return self.work_s + self.bubble_s + self.unwoven_s + self.pipeline_exposed_s + self.host_s


class StepTime(Struct, frozen=True, kw_only=True):
    """Seconds of a step on the busiest row of stages; parts sum to ``step_s``."""

    step_s: Array
    pipeline: PipelineTime
    data_parallel_exposed_s: Array
    optimizer_s: Array
    stall_s: Array
    """Stalled pipeline messages and the allocator's retries."""
    straggler_s: Array
    chance_s: Array
    """What messages that stall by chance add on average; no part of ``step_s``, which most runs take."""

    @property
    def mean_s(self) -> Array:
        """The step on average over the times that runs of one layout take."""
        return self.step_s + self.chance_s


def state_costs(
    case: Case, degrees: Degrees, parameters: StageParameters, composition: Composition, *, offload: bool
) -> StateCosts:
    """States of every row and the collectives of the row that holds most.

    Shapes:  ``[row]`` or ``[row, column]`` from columns.
    Units:   bytes and s.
    Source:  ``perf.states``, ``perf.data_parallel``.
    """
    shards = Shards(
        optimizer=degrees.optimizer_shards, gradient=degrees.gradient_shards, parameter=degrees.parameter_shards,
        expert_data_parallel=degrees.expert_data_parallel,
    )
    adapters = adapter_parameters(case, composition.layers, degrees.tensor_parallel)
    states = training_states(parameters.dense, parameters.experts, adapters, shards, case)
    precision = case.training.precision
    still = precision.parameter_bytes * parameters.frozen / degrees.parameter_shards
    states = structs.replace(states, parameter_bytes=states.parameter_bytes + still)
    full = degrees.parameter_shards > 1.0
    gathered = (parameters.dense_layer + parameters.expert_layer) * (2.0 * precision.gather_bytes + precision.gradient_bytes)
    gathered = gathered + parameters.ends * precision.gather_bytes
    frozen = case.training.weights_frozen
    largest_dense = adapters.max(axis=0) if frozen else parameters.dense.max(axis=0)
    largest_experts = array(0.0) * largest_dense if frozen else parameters.experts.max(axis=0)
    replicas = degrees.replicas
    times = synchronisation(
        largest_dense, largest_experts, replicas=replicas, stride=degrees.tensor_parallel,
        expert_replicas=degrees.expert_data_parallel, expert_stride=degrees.expert_tensor_parallel * degrees.expert_parallel,
        shards=degrees.optimizer_shards, layers=composition.layers.max(axis=0), layerwise=np.where(full, 1.0, 0.0), case=case,
    )
    if frozen:
        times = _with_frozen_gather(times, parameters, degrees, replicas, composition.layers.max(axis=0), case)
    host_offload = optimizer_s(states, case, offload=offload).max(axis=0)
    many = [degrees.tensor_parallel, degrees.context_parallel, degrees.pipeline_parallel, replicas, degrees.expert_parallel]
    communicators = array(1.0)
    for axis in many:
        communicators = communicators + np.where(axis > 1.0, 1.0, 0.0)
    if offload:
        # Zero where shards of weights and gradients go along, as they do under full sharding where the implementation says so.
        stays = np.where(full, 0.0, 1.0) if case.implementation.offloads_shards else array(1.0)
        states = States(
            parameter_bytes=states.parameter_bytes * stays, gradient_bytes=states.gradient_bytes * stays,
            optimizer_bytes=np.zeros_like(states.optimizer_bytes), master_bytes=np.zeros_like(states.master_bytes),
            owned_parameters=states.owned_parameters,
            reduced_parameters=states.reduced_parameters, step_bytes=np.zeros_like(states.step_bytes),
        )
    return StateCosts(
        states=states,
        gathered_bytes=np.where(full, gathered, 0.0),
        times=StateTimes(
            synchronisation=times, units=_units(case, degrees, parameters, composition), tied_s=_tied_s(case, degrees),
            optimizer_s=host_offload, straggler_ratio=straggler_ratio(case, degrees),
        ),
        communicators=communicators,
    )


def nodes_of(case: Case, degrees: Degrees) -> Array:
    """Nodes in use, at least one."""
    return np.maximum(1.0, degrees.world / case.cluster.devices_per_node)


def straggler_ratio(case: Case, degrees: Degrees) -> Array:
    """What waiting for the slowest of the nodes adds to a step, as a share of it.

        sigma sqrt(2 ln nodes)

    Symbols: sigma ``straggler_slope``.
    Shapes:  the columns of ``degrees``.
    Units:   ratio.
    Source:  the largest of so many normal errors; stragglers as in zhebrak, docs/sources.md#reserve-and-stragglers.
    """
    return np.asarray(case.calibration.constants.straggler_slope * np.sqrt(2.0 * np.log(nodes_of(case, degrees))))


def _units(case: Case, degrees: Degrees, parameters: StageParameters, composition: Composition) -> UnitTimes | None:
    """Sharded units of the row that has most."""
    if case.implementation.units is None:
        return None
    shards = np.maximum(degrees.gradient_shards, degrees.parameter_shards)
    layers = composition.layers.max(axis=0)
    return unit_times(
        parameters.dense.max(axis=0), parameters.experts.max(axis=0), replicas=degrees.replicas,
        stride=degrees.tensor_parallel, expert_replicas=degrees.expert_data_parallel,
        expert_stride=degrees.expert_tensor_parallel * degrees.expert_parallel,
        apart=np.where((degrees.tensor_parallel > 1.0) | (degrees.expert_parallel > 1.0), 1.0, 0.0), shards=shards,
        owners=np.where(shards > 1.0, 1.0, degrees.optimizer_shards), layers=layers,
        ends=(composition.layers + composition.embedding + composition.head).max(axis=0) - layers, case=case,
    )


def _with_frozen_gather(
    times: Synchronisation, parameters: StageParameters, degrees: Degrees, replicas: Array, layers: Array, case: Case
) -> Synchronisation:
    """Frozen weights are gathered under full sharding, though only adapters are reduced."""
    whole = synchronisation(
        parameters.dense.max(axis=0), parameters.experts.max(axis=0), replicas=replicas, stride=degrees.tensor_parallel,
        expert_replicas=degrees.expert_data_parallel, expert_stride=degrees.expert_tensor_parallel * degrees.expert_parallel,
        shards=degrees.parameter_shards, layers=layers, layerwise=array(1.0), case=case,
    )
    full = degrees.parameter_shards > 1.0
    return Synchronisation(
        scatter_s=times.scatter_s, reduce_s=times.reduce_s, last_bucket_s=times.last_bucket_s,
        gather_s=np.where(full, whole.gather_s, times.gather_s),
    )


def _tied_s(case: Case, degrees: Degrees) -> Array:
    if not case.model.tied_embeddings or case.training.weights_frozen:
        return array(0.0) * degrees.pipeline_parallel
    width = case.model.embedding_width or case.model.hidden
    payload = case.training.precision.gradient_bytes * case.model.vocabulary * width / degrees.tensor_parallel
    ends = group(2.0, degrees.devices_per_stage, case.cluster)
    between = all_reduce_s(payload, ends, case.cluster, case.calibration.constants)
    return np.where(degrees.pipeline_parallel > 1.0, between, 0.0)


def pipeline_time(
    case: Case, settings: Settings, composition: Composition, stages: StageCosts, degrees: Degrees, *, hop_s: Array
) -> PipelineTime:
    """All micro-batches through the pipeline.

        m W + n u + bubble + hops + host

    Symbols: W forward + backward of the busiest row; m micro-batches; u what both passes take more where they are woven into no
             other, n ``unwoven_microbatches``; bubble and hops from the schedule's closed form; host of a step, and of every
             micro-batch and chunk of a pipeline where the step is no graph.
    Shapes:  rows first where there are rows; everything else broadcasts.
    Units:   s.
    Holds:   as the schedule's closed form does; the event simulation knows better for unequal stages.
    Source:  ``perf.schedules``.
    """
    constants, schedule = case.calibration.constants, SCHEDULES[settings.schedule]
    pipeline_parallel, chunks, m = degrees.pipeline_parallel, degrees.virtual_stages, degrees.num_microbatches
    work = np.where(composition.multiplicity > 0.0, stages.forward_s + stages.backward_s, -1.0)
    busiest = work.argmax(axis=0)
    place = busiest if work.ndim == 1 else busiest * work.shape[1] + np.arange(work.shape[1])

    def of_busiest(values: Array) -> Array:
        return np.asarray(spread(values, work.shape).take(place))

    forward, backward, weight = of_busiest(stages.forward_s), of_busiest(stages.backward_s), of_busiest(stages.weight_s)
    slot = forward + backward
    fill = np.maximum(0.0, (composition.multiplicity * work).sum(axis=0) - slot)
    counts = {
        "num_stages": pipeline_parallel.astype(np.int64), "num_microbatches": m.astype(np.int64),
        "num_chunks": chunks.astype(np.int64),
    }
    bubble = schedule.bubble_s(
        forward_s=forward, backward_input_s=backward - weight, backward_weight_s=weight, fill_s=fill, hop_s=0.0, **counts
    )
    hops = array(np.asarray(schedule.exposed_hops(**counts)))
    several = pipeline_parallel > 1.0
    scheduling = 0.0 if case.implementation.cuda_graphs else m * chunks * constants.microbatch_host_s
    hidden = settings.overlap.point_to_point and case.implementation.point_to_point_overlap
    if settings.schedule == "interleaved" and not hidden:
        hops = hops + 2.0 * m * chunks
    # A chunk's gradients are complete after its last micro-batch, P chunks before the next one's: windows grow with the chunks.
    widen = (1.0 + (chunks - 1.0) * np.minimum(pipeline_parallel, m)) / chunks
    return PipelineTime(
        busiest=busiest, forward_window_s=of_busiest(stages.forward_window_s) * widen,
        backward_window_s=of_busiest(stages.backward_window_s) * widen, layers=of_busiest(composition.layers), work_s=m * slot,
        pipeline_exposed_s=np.where(several, hops * hop_s, 0.0), bubble_s=np.asarray(bubble),
        unwoven_s=unwoven_microbatches(pipeline_parallel, m) * of_busiest(stages.unwoven_s),
        host_s=constants.step_host_s + np.where(several, scheduling, 0.0),
    )


def step_time(
    case: Case, settings: Settings, pipeline: PipelineTime, state: StateTimes, degrees: Degrees, *, reserved_bytes: Array
) -> StepTime:
    """One optimizer step.

        step = (pipeline + data parallelism + optimizer) (1 + sigma sqrt(2 ln nodes) + a p) + stalled messages

    Symbols: sigma sqrt(2 ln nodes) ``straggler_ratio``; p ``memory_pressure`` at the reserved bytes of the fullest rank, a
             ``pressure_slowdown`` where the implementation's allocator retries (``Implementation.allocator_retries``).
             Where the host waits for every pipeline message (``Implementation.message_handshake``), pressure stalls the messages
             instead.
    Shapes:  everything broadcasts.
    Units:   s.
    Source:  ``straggler_ratio``, ``memory_pressure``.
    """
    overlap, implementation, constants = settings.overlap, case.implementation, case.calibration.constants
    hooks = bool(implementation.replicated_bucket_bytes) & (degrees.optimizer_shards <= 1.0)
    gradient_overlap = overlap.gradient_reduce & (implementation.gradient_overlap | hooks)
    parameter_overlap = overlap.parameter_gather and implementation.parameter_overlap
    windows = {"forward_s": pipeline.forward_window_s, "backward_s": pipeline.backward_window_s}
    if state.units is None:
        data = exposed_s(
            state.synchronisation, gradient_shards=degrees.gradient_shards, parameter_shards=degrees.parameter_shards,
            num_microbatches=degrees.num_microbatches, **windows, layers=pipeline.layers, case=case,
            gradient_overlap=gradient_overlap, parameter_overlap=parameter_overlap,
        )
    else:
        counts = unit_counts(
            gradient_shards=degrees.gradient_shards, parameter_shards=degrees.parameter_shards,
            pipeline_parallel=degrees.pipeline_parallel, num_microbatches=degrees.num_microbatches,
        )
        data = units_exposed_s(
            state.units, counts, **windows, case=case, gradient_overlap=gradient_overlap, parameter_overlap=parameter_overlap
        )
    data = data + state.tied_s
    before = pipeline.through_s + data + state.optimizer_s
    straggler = state.straggler_ratio * before
    stall = chance = array(0.0)
    if implementation.message_handshake or implementation.allocator_retries:
        pressure = memory_pressure(reserved_bytes, case.cluster.device.memory_bytes, constants)
    if implementation.message_handshake:
        replicated = (degrees.optimizer_shards <= 1.0) & (degrees.data_parallel > 1.0)
        load = Load(
            nodes=nodes_of(case, degrees), tensor_domains=array(group(degrees.tensor_parallel, 1.0, case.cluster).domains),
            replicated=np.where(replicated, 1.0, 0.0), num_microbatches=degrees.num_microbatches, pressure=pressure,
        )
        stall = message_stall_s(degrees.pipeline_parallel, load, constants)
        chance = chance_stall_s(degrees.pipeline_parallel, load, constants)
    elif implementation.allocator_retries:
        stall = constants.pressure_slowdown * pressure * before
    return StepTime(
        step_s=before + straggler + stall,
        pipeline=pipeline,
        data_parallel_exposed_s=data,
        optimizer_s=state.optimizer_s,
        stall_s=stall,
        straggler_s=straggler,
        chance_s=chance,
    )
