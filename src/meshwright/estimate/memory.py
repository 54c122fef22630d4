"""Memory of every row of stages: what must fit, and what the framework's own counter shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from meshwright.estimate.held_chunks import held_chunks
from meshwright.perf.activations import piled_bytes
from meshwright.perf.arrays import Array, Number, array
from meshwright.perf.schedules import SCHEDULES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from meshwright.domain.case import Case
    from meshwright.domain.memory_reading import MemoryReading
    from meshwright.estimate.combine import StateCosts
    from meshwright.estimate.costs import Settings
    from meshwright.estimate.degrees import Degrees
    from meshwright.estimate.split import Composition, Uneven
    from meshwright.estimate.stages import KindInputs, StageCosts
    from meshwright.perf.operators import WorkShape


class ActivationMemory(Struct, frozen=True, kw_only=True):
    """What micro-batches in flight keep, and the working set on top; per row."""

    activations: Array
    transient: Array
    in_flight: Array
    """Micro-batches in flight, in whole stages."""


class StageMemory(Struct, frozen=True, kw_only=True):
    """Bytes per row."""

    parameters: Array
    gradients: Array
    optimizer: Array
    moments: Array
    """Part of ``optimizer`` that the first update allocates."""
    activations: Array
    temporary: Array
    fragmentation: Array
    """Held by the allocator beside the tensors."""
    outside: Array
    """Context and communicators, outside the allocator."""
    piled: Array
    """What the allocator holds on top while there is room, and gives up where there is none; part of no sum here."""

    @property
    def overhead(self) -> Array:
        """What is reserved but not allocated by tensors."""
        return self.fragmentation + self.outside

    @property
    def allocated_bytes(self) -> Array:
        """Peak of the tensors."""
        return self.parameters + self.gradients + self.optimizer + self.activations + self.temporary

    @property
    def reserved_bytes(self) -> Array:
        """What the device must offer."""
        return self.allocated_bytes + self.overhead

    def shown(self, reading: MemoryReading, composition: Composition, capacity_bytes: float) -> Array:
        """What a run's own figure of memory would be, of the stage that it is taken from.

            allocated;   first step: max(allocated - moments, states);   allocator: allocated + fragmentation + piled where that
            fits;   device: that, context and communicators

        Shapes:  ``[row(, column)]`` -> without rows.
        Units:   bytes.
        Holds:   tensors handed to a communication stream are given up when an allocation fails.
        Source:  torch.cuda.max_memory_allocated, max_memory_reserved; nvidia-smi.
        """
        room = np.where(self.reserved_bytes + self.piled <= capacity_bytes, self.piled, 0.0)
        held = self.allocated_bytes + self.fragmentation + room
        states = self.parameters + self.gradients + self.optimizer
        figure = {
            "allocated": self.allocated_bytes, "first step": np.maximum(self.allocated_bytes - self.moments, states),
            "allocator": held, "device": held + self.outside,
        }[reading.kind]
        rows = np.broadcast_to(figure, np.broadcast_shapes(figure.shape, composition.stage.shape))
        if reading.stage == "fullest":
            return np.asarray(rows.max(axis=0))
        end = composition.embedding if reading.stage == "first" else composition.head
        return np.asarray(np.where(np.broadcast_to(end, rows.shape) > 0.0, rows, 0.0).max(axis=0))


def activation_memory(
    settings: Settings, composition: Composition, stages: StageCosts, degrees: Degrees, kinds: tuple[KindInputs, ...]
) -> ActivationMemory:
    """What the micro-batches in flight keep on every row.

        (saved + front) n / V;   where the chunks of a stage are not alike max over moments of sum_v h_v saved_v

    Symbols: n chunks in flight under the schedule; V chunks of a stage; h_v those of chunk v at one moment of the schedule's order;
             front what a tower keeps on the first stage.
    Shapes:  ``[row]`` or ``[row, column]``.
    Units:   bytes.
    Holds:   the working set of one layer comes on top of all in flight, and what the micro-batch before leaves, where there is one.
    Source:  docs/sources.md#in-flight (peak_i = static_i + (n_i - 1) cache_i + peak of one micro-batch).
    """
    chunks = SCHEDULES[settings.schedule].in_flight_until_weight(
        stage=composition.stage.astype(np.int64), num_stages=degrees.pipeline_parallel.astype(np.int64),
        num_microbatches=degrees.num_microbatches.astype(np.int64), num_chunks=degrees.virtual_stages.astype(np.int64),
    )
    in_flight = array(np.asarray(chunks)) / degrees.virtual_stages
    activations = stages.saved_bytes * in_flight
    if composition.uneven is not None:
        columns, exact = _uneven_bytes(settings, composition, composition.uneven, degrees, kinds)
        in_flight = np.broadcast_to(in_flight, activations.shape)
        saved, mean = (each.reshape(len(exact), -1)[:, columns] for each in (stages.saved_bytes, in_flight))
        activations = _put(activations, columns, exact)
        in_flight = _put(in_flight, columns, np.divide(exact, saved, out=mean.copy(), where=saved > 0.0))
    if stages.front_bytes.ndim:
        activations = activations + stages.front_bytes * in_flight
    before = np.where(degrees.num_microbatches > 1.0, stages.before_bytes, 0.0)
    return ActivationMemory(activations=activations, transient=stages.transient_bytes + before, in_flight=in_flight)


def _put(values: Array, columns: NDArray[np.int64], found: Array) -> Array:
    """Rows of values with other ones in some columns; a single layout is one column."""
    table = values.reshape(len(values), -1).copy()
    table[:, columns] = found
    return table.reshape(values.shape)


def _uneven_bytes(
    settings: Settings, composition: Composition, uneven: Uneven, degrees: Degrees, kinds: tuple[KindInputs, ...]
) -> tuple[NDArray[np.int64], Array]:
    """Columns whose chunks are not alike, and what their rows hold at the fullest moment of the schedule's order.

    Splits and numbers of micro-batches recur, so how many layers are held is counted once for each pair of them; layers are whole,
    so the counts are exact and a column has the same bits wherever it stands.

    Shapes:  ``[row, column]``, of one layout ``[row, 1]``.
    """
    columns = np.flatnonzero(uneven.split >= 0)
    split, m = uneven.split[columns], np.broadcast_to(degrees.num_microbatches, uneven.split.shape)[columns].astype(np.int64)
    _, first, pair = np.unique(split * (int(m.max(initial=0)) + 1) + m, return_index=True, return_inverse=True)
    at = columns[first]
    own = (np.broadcast_to(each, uneven.split.shape)[at] for each in (degrees.pipeline_parallel, degrees.virtual_stages))
    counts = np.vstack([m[first], *own, composition.stage.reshape(len(composition.stage), -1)[:, at]]).astype(np.int64)
    held = held_chunks(settings.schedule, counts)
    counts_of: list[Array] = []
    saved_of: list[Array] = []
    for treatment, layers in enumerate(uneven.layers):
        if layers is None:
            continue
        placed = layers[:, : held.shape[1]][..., split[first]]
        for index, kind in enumerate(kinds):
            saved = np.broadcast_to(kind.saved_bytes[treatment], uneven.split.shape)[columns]
            counts_of.append(np.einsum("mcrp,rcp->mrp", held, placed[:, :, index]))
            saved_of.append(saved)
    total: Array = array(0.0)
    for counted, saved in zip(_fullest_moments(counts_of), saved_of, strict=True):
        total = total + counted[..., pair] * saved
    return columns, total.max(axis=0)


def _fullest_moments(counts: list[Array]) -> list[Array]:
    """Of moments at which layers of some sorts are held, those that may be the fullest: at no other is there as much of each sort.

    Shapes:  ``[moment, ...]`` each -> fewer moments, the same number everywhere: where fewer would do, others stand beside them.
    """
    if len(counts) == 1:
        return [counts[0].max(axis=0, keepdims=True)]
    stacked = np.stack(counts)
    moments = np.arange(stacked.shape[1])
    beaten = np.zeros(stacked.shape[1:], dtype=np.bool_)
    for other in moments:
        no_more = (stacked <= stacked[:, other : other + 1]).all(axis=0)
        less = (stacked < stacked[:, other : other + 1]).any(axis=0)
        earlier = (moments > other).reshape(-1, *(1,) * (stacked.ndim - 2))
        beaten |= no_more & (less | earlier)
    most = int((~beaten).sum(axis=0).max(initial=1))
    first = np.argsort(beaten, axis=0, kind="stable")[:most]
    return [np.take_along_axis(each, first, axis=0) for each in counts]


def held_bytes(case: Case, tensor_bytes: Number) -> Array:
    """What the allocator holds for tensors: (1 + phi) tensors, ``fragmentation_bytes`` on top of them.

    Symbols: phi ``fragmentation_ratio``.
    Units:   bytes.
    """
    return np.asarray((1.0 + case.calibration.constants.fragmentation_ratio) * tensor_bytes)


def fragmentation_bytes(case: Case, tensor_bytes: Number) -> Array:
    """What the allocator holds beside tensors: phi tensors.

    Symbols: phi ``fragmentation_ratio``.
    Units:   bytes.
    Source:  docs/sources.md#reserve-and-stragglers: runs reserve 3-6 % more than all that they allocate.
    """
    return np.asarray(case.calibration.constants.fragmentation_ratio * tensor_bytes)


def outside_bytes(case: Case, state: StateCosts) -> Array:
    """What lies outside the allocator: the context, and the buffers of every communicator.

    Units:   bytes.
    """
    constants = case.calibration.constants
    return np.asarray(constants.context_bytes + state.communicators * constants.communicator_bytes)


def static_bytes(case: Case, state: StateCosts) -> Array:
    """Reserved bytes of a row that do not depend on the micro-batch: states, gathered layers, context, communicators.

    Units:   bytes.
    Source:  ``stage_memory``, whose terms these are.
    """
    return held_bytes(case, state.states.total_bytes + state.gathered_bytes) + outside_bytes(case, state)


def dynamic_bytes(case: Case, activation: ActivationMemory) -> Array:
    """Reserved bytes of a row that depend on the micro-batch: activations and working set with their fragmentation.

    Units:   bytes.
    Holds:   of the backward's peak; that of the optimizer step has ``step_bytes`` instead, and the larger of the two counts.
    Source:  ``stage_memory``, whose terms these are.
    """
    return held_bytes(case, activation.activations + activation.transient)


def step_bytes(case: Case, state: StateCosts) -> Array:
    """Reserved bytes of a row that the optimizer step needs beside the static ones, when activations are gone.

    Units:   bytes.
    Source:  ``perf.states``.
    """
    return held_bytes(case, state.states.step_bytes)


def stage_memory(case: Case, activation: ActivationMemory, state: StateCosts, piled: Array | None = None) -> StageMemory:
    """Memory of every row by purpose; its reserved bytes are ``static_bytes + max(dynamic_bytes, step_bytes)``, to the last bits.

        temporary = max(working set, U - activations) + gathered layers;   overhead = phi allocated + context + communicators

    The peak is that of the backward of the last micro-batch in flight, in which all terms live together, or that of the optimizer
    step, when activations are gone and FP32 copies of gradients (U) stand in their place: recomputing more frees nothing below it.
    Where such copies do not fit into the blocks of activations, they are counted with the states instead
    (``Implementation.update_gradient_bytes``).

    Symbols: phi ``fragmentation_ratio``; U ``States.step_bytes``.
    Shapes:  ``[row]`` or ``[row, column]``.
    Units:   bytes.
    Source:  docs/sources.md#reserve-and-stragglers; SimuMax B200 runs reserve 3-6 % more than all that they allocate.
    """
    states = state.states
    temporary = np.maximum(activation.transient, states.step_bytes - activation.activations) + state.gathered_bytes
    return StageMemory(
        parameters=states.parameter_bytes, gradients=states.gradient_bytes, optimizer=states.optimizer_bytes,
        moments=states.optimizer_bytes - states.master_bytes, activations=activation.activations, temporary=temporary,
        fragmentation=fragmentation_bytes(case, states.total_bytes + activation.activations + temporary),
        outside=outside_bytes(case, state), piled=array(0.0) if piled is None else piled,
    )


def piled_memory(case: Case, shape: WorkShape, composition: Composition, activation: ActivationMemory, degrees: Degrees) -> Array:
    """What a row's layers hand to communication streams, as far as it piles up (``perf.activations.piled_bytes``).

    Shapes:  ``[row]`` or ``[row, column]``.
    Units:   bytes.
    Source:  ``perf.activations.piled_bytes``.
    """
    per_node = float(case.cluster.devices_per_node)
    return piled_bytes(
        case.model.hidden, shape, implementation=case.implementation, layers=composition.layers, in_flight=activation.in_flight,
        pipeline_parallel=degrees.pipeline_parallel, tensor_nodes=np.maximum(1.0, degrees.tensor_parallel / per_node),
        nodes=degrees.world / per_node, run_ahead_ratio=case.calibration.constants.run_ahead_ratio,
    )
