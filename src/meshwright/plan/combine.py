"""One step from its parts: pipeline, data parallelism, optimizer, host; and the memory of every row of stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from meshwright.perf.arrays import Array, array
from meshwright.perf.collectives import all_reduce_s
from meshwright.perf.data_parallel import Synchronisation, exposed_s, synchronisation
from meshwright.perf.schedules import SCHEDULES
from meshwright.perf.states import Shards, States, adapter_parameters, optimizer_s, training_states
from meshwright.domain.mesh import group

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.plan.costs import Settings
    from meshwright.plan.split import Composition
    from meshwright.plan.stages import StageCosts, StageParameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """Degrees of layouts; numbers or columns."""

    tensor_parallel: Array
    context_parallel: Array
    pipeline_parallel: Array
    virtual_stages: Array
    expert_parallel: Array
    expert_tensor_parallel: Array
    data_parallel: Array
    optimizer_shards: Array
    gradient_shards: Array
    parameter_shards: Array

    @property
    def world(self) -> Array:
        """Devices in use."""
        return self.tensor_parallel * self.context_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def expert_data_parallel(self) -> Array:
        """Replicas of an expert."""
        return self.world / (self.expert_tensor_parallel * self.expert_parallel * self.pipeline_parallel)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCosts:
    """What depends on sharding but not on the micro-batch: states per row, their synchronisation, the optimizer step."""

    states: States
    gathered_bytes: Array
    """Whole layers that full sharding gathers, and the gradients of one, per row."""
    synchronisation: Synchronisation
    tied_s: Array
    """All-reduce of the tied embedding's gradient between first and last stage."""
    optimizer_s: Array
    communicators: Array
    """Communicators of a rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Seconds of a step on the busiest row of stages; parts sum to ``step_s``."""

    step_s: Array
    work_s: Array
    """All micro-batches of the busiest row, with the communication inside."""
    busiest: Array
    """Index of the busiest row."""
    pipeline_exposed_s: Array
    bubble_s: Array
    data_parallel_exposed_s: Array
    optimizer_s: Array
    host_s: Array
    straggler_s: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class StageMemory:
    """Bytes per row."""

    parameters: Array
    gradients: Array
    optimizer: Array
    activations: Array
    temporary: Array
    overhead: Array
    in_flight: Array
    """Micro-batches in flight, in whole stages."""

    @property
    def allocated_bytes(self) -> Array:
        """Peak of the tensors."""
        return self.parameters + self.gradients + self.optimizer + self.activations + self.temporary

    @property
    def reserved_bytes(self) -> Array:
        """What the device must offer."""
        return self.allocated_bytes + self.overhead


def state_costs(case: Case, degrees: Degrees, parameters: StageParameters, composition: Composition, *, offload: bool) -> StateCosts:
    """States of every row and the collectives of the row that holds most.

    Shapes:  ``[row]`` or ``[row, column]`` from columns.
    Units:   bytes and s.
    Source:  ``perf.states``, ``perf.data_parallel``.
    """
    shards = Shards(
        optimizer=degrees.optimizer_shards, gradient=degrees.gradient_shards, parameter=degrees.parameter_shards,
        expert_data_parallel=degrees.expert_data_parallel,
    )  # fmt: skip
    adapters = adapter_parameters(case, composition.layers, degrees.tensor_parallel)
    states = training_states(parameters.dense, parameters.experts, adapters, shards, case)
    precision = case.training.precision
    full = degrees.parameter_shards > 1.0
    gathered = (parameters.dense_layer + parameters.expert_layer) * (2.0 * precision.gather_bytes + precision.gradient_bytes)
    frozen = case.training.weights_frozen
    largest_dense = adapters.max(axis=0) if frozen else parameters.dense.max(axis=0)
    largest_experts = array(0.0) * largest_dense if frozen else parameters.experts.max(axis=0)
    replicas = degrees.data_parallel * degrees.context_parallel
    times = synchronisation(
        largest_dense, largest_experts, replicas=replicas, stride=degrees.tensor_parallel,
        expert_replicas=degrees.expert_data_parallel, expert_stride=degrees.expert_tensor_parallel * degrees.expert_parallel,
        shards=degrees.optimizer_shards, case=case,
    )  # fmt: skip
    if frozen:
        times = _with_frozen_gather(times, parameters, degrees, replicas, case)
    host_offload = optimizer_s(states, case, offload=offload).max(axis=0)
    many = [degrees.tensor_parallel, degrees.context_parallel, degrees.pipeline_parallel, replicas, degrees.expert_parallel]
    communicators = array(1.0)
    for axis in many:
        communicators = communicators + np.where(axis > 1.0, 1.0, 0.0)
    if offload:
        states = States(
            parameter_bytes=states.parameter_bytes, gradient_bytes=states.gradient_bytes,
            optimizer_bytes=np.zeros_like(states.optimizer_bytes), owned_parameters=states.owned_parameters,
            buffer_parameters=states.buffer_parameters,
        )  # fmt: skip
    return StateCosts(
        states=states,
        gathered_bytes=np.where(full, gathered, 0.0),
        synchronisation=times,
        tied_s=_tied_s(case, degrees),
        optimizer_s=host_offload,
        communicators=communicators,
    )


def _with_frozen_gather(times: Synchronisation, parameters: StageParameters, degrees: Degrees, replicas: Array, case: Case) -> Synchronisation:
    """Frozen weights are gathered under full sharding, though only adapters are reduced."""
    whole = synchronisation(
        parameters.dense.max(axis=0), parameters.experts.max(axis=0), replicas=replicas, stride=degrees.tensor_parallel,
        expert_replicas=degrees.expert_data_parallel, expert_stride=degrees.expert_tensor_parallel * degrees.expert_parallel,
        shards=degrees.parameter_shards, case=case,
    )  # fmt: skip
    full = degrees.parameter_shards > 1.0
    return Synchronisation(
        scatter_s=times.scatter_s, reduce_s=times.reduce_s, last_bucket_s=times.last_bucket_s,
        gather_s=np.where(full, whole.gather_s, times.gather_s),
    )  # fmt: skip


def _tied_s(case: Case, degrees: Degrees) -> Array:
    if not case.model.tied_embeddings or case.training.weights_frozen:
        return array(0.0) * degrees.pipeline_parallel
    width = case.model.embedding_width or case.model.hidden
    payload = case.training.precision.gradient_bytes * case.model.vocabulary * width / degrees.tensor_parallel
    ends = group(2.0, degrees.world / degrees.pipeline_parallel, case.cluster)
    between = all_reduce_s(payload, ends, case.cluster, case.calibration.constants)
    return np.where(degrees.pipeline_parallel > 1.0, between, 0.0)


def step_time(
    case: Case, settings: Settings, degrees: Degrees, composition: Composition, stages: StageCosts, state: StateCosts, *,
    hop_s: Array, num_microbatches: Array,
) -> StepTime:  # fmt: skip
    """One optimizer step.

        step = (m W + bubble + hops + dp + optimizer + host) (1 + straggler)

    Symbols: W forward + backward of the busiest row; m micro-batches; bubble, hops of the schedule's closed form.
    Shapes:  rows first where there are rows; everything else broadcasts.
    Units:   s.
    Holds:   the closed form of the schedule; finalists are checked by the event simulation.
    Source:  ``perf.schedules``; stragglers as in zhebrak (reference/cost-model.md section 9).
    """
    constants = case.calibration.constants
    schedule = SCHEDULES[settings.schedule]
    work = stages.forward_s + stages.backward_s
    work = np.where(composition.multiplicity > 0.0, work, -1.0)
    busiest = work.argmax(axis=0)

    def of_busiest(values: Array) -> Array:
        values = np.broadcast_to(values, work.shape)
        return np.take_along_axis(values, busiest[None], axis=0)[0]

    forward, backward, weight = of_busiest(stages.forward_s), of_busiest(stages.backward_s), of_busiest(stages.weight_s)
    total = np.maximum(composition.multiplicity, 0.0) * work
    slot = forward + backward
    fill = np.maximum(0.0, total.sum(axis=0) - slot)
    counts = {
        "num_stages": degrees.pipeline_parallel.astype(np.int64), "num_microbatches": np.asarray(num_microbatches).astype(np.int64),
        "num_chunks": degrees.virtual_stages.astype(np.int64),
    }  # fmt: skip
    bubble = schedule.bubble_s(
        forward_s=forward, backward_input_s=backward - weight, backward_weight_s=weight, fill_s=fill, hop_s=0.0, **counts
    )
    hops = array(np.asarray(schedule.exposed_hops(**counts)))
    m = array(num_microbatches)
    several = degrees.pipeline_parallel > 1.0
    if settings.schedule == "interleaved" and not (settings.overlap.point_to_point and case.implementation.point_to_point_overlap):
        hops = hops + np.where(several, 2.0 * m * degrees.virtual_stages, 0.0)
    pipeline = np.where(several, hops * hop_s, 0.0)
    overlap, implementation = settings.overlap, case.implementation
    data = exposed_s(
        state.synchronisation, gradient_shards=degrees.gradient_shards, parameter_shards=degrees.parameter_shards,
        num_microbatches=m, forward_s=forward, backward_s=backward, layers=of_busiest(composition.layers), case=case,
        gradient_overlap=overlap.gradient_reduce and implementation.gradient_overlap,
        parameter_overlap=overlap.parameter_gather and implementation.parameter_overlap,
    )  # fmt: skip
    data = data + state.tied_s
    host = constants.step_host_s + np.where(several, m * degrees.virtual_stages * constants.microbatch_host_s, 0.0)
    nodes = np.maximum(1.0, degrees.world / case.cluster.devices_per_node)
    straggler = constants.straggler_slope * np.sqrt(2.0 * np.log(nodes))
    work_s = m * slot
    before = work_s + bubble + pipeline + data + state.optimizer_s + host
    return StepTime(
        step_s=before + straggler * before, work_s=work_s, busiest=busiest, pipeline_exposed_s=pipeline, bubble_s=np.asarray(bubble),
        data_parallel_exposed_s=data, optimizer_s=state.optimizer_s, host_s=host, straggler_s=straggler * before,
    )  # fmt: skip


def stage_memory(
    case: Case, settings: Settings, degrees: Degrees, composition: Composition, stages: StageCosts, state: StateCosts, *,
    num_microbatches: Array,
) -> StageMemory:  # fmt: skip
    """Memory of every row.

        activations = saved n / V;   temporary = transient + gathered layers;   overhead = phi (activations + temporary) + context
                                                                                           + communicators

    Symbols: n chunks in flight of the schedule, V chunks of a stage; phi ``fragmentation_ratio``.
    Shapes:  ``[row]`` or ``[row, column]``.
    Units:   bytes.
    Holds:   the last micro-batch's transient peak comes on top of all in flight.
    Source:  reference/cost-model.md 7.2 (peak_i = static_i + (n_i - 1) cache_i + peak of one micro-batch) and section 9.
    """
    constants = case.calibration.constants
    schedule = SCHEDULES[settings.schedule]
    chunks = schedule.in_flight_until_weight(
        stage=composition.stage.astype(np.int64), num_stages=degrees.pipeline_parallel.astype(np.int64),
        num_microbatches=np.asarray(num_microbatches).astype(np.int64), num_chunks=degrees.virtual_stages.astype(np.int64),
    )  # fmt: skip
    in_flight = array(np.asarray(chunks)) / degrees.virtual_stages
    activations = stages.saved_bytes * in_flight
    temporary = stages.transient_bytes + state.gathered_bytes
    overhead = (
        constants.fragmentation_ratio * (activations + temporary)
        + constants.context_bytes
        + state.communicators * constants.communicator_bytes
    )
    return StageMemory(
        parameters=state.states.parameter_bytes, gradients=state.states.gradient_bytes, optimizer=state.states.optimizer_bytes,
        activations=activations, temporary=temporary, overhead=overhead, in_flight=in_flight,
    )  # fmt: skip
