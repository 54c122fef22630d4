"""What no overlap hides and no bandwidth explains: pipeline messages that stall, and an allocator at the edge of the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from meshwright.perf.arrays import Array, Number, array

if TYPE_CHECKING:
    from meshwright.domain.calibration import Constants

EDGE_POWER = 64.0
"""Sharpness of the memory's edge: 4 % below it one allocation in fourteen is retried, 8 % below one in two hundred."""
FAR = 1e3
"""A value so many times below its edge is as good as none; keeps the powers finite."""
LOAD_POWER = 16.0
"""Sharpness of a threshold on nodes, domains or micro-batches, which differ by factors of two."""


class Load(Struct, frozen=True, kw_only=True):
    """What decides whether pipeline messages stall; numbers or columns."""

    nodes: Array
    tensor_domains: Array
    """Scale-up domains of a tensor group."""
    replicated: Array
    """1 where optimizer states are replicated over several data-parallel ranks, else 0."""
    num_microbatches: Array
    pressure: Array


def beyond(value: Number, edge: Number, power: float) -> Array:
    """A smooth step: how far a value is beyond its edge.

        1 / (1 + (edge / value)^power)

    Shapes:  everything broadcasts; value > 0.
    Units:   the same for both -> ratio.
    Source:  a differentiable threshold, so that edges can be fitted.
    """
    return 1.0 / (1.0 + np.power(np.minimum(edge / array(value), FAR), power))


def memory_pressure(reserved_bytes: Number, memory_bytes: Number, constants: Constants) -> Array:
    """Share of the allocations that find no room, return cached blocks to the device and ask again.

        1 / (1 + (e M / R)^64)

    Symbols: R reserved bytes of the fullest rank; M memory of the device; e ``pressure_edge_ratio``.
    Shapes:  everything broadcasts.
    Units:   bytes -> ratio.
    Holds:   a caching allocator with fixed segments.
    Source:  playbook rows with PP > 1 and 68 GB or more on the reporting rank take 3.3 to 7.8 times as long as their neighbours;
             torchtitan tables: 37 retries cut 8835 tokens/s to 1984.
    """
    return beyond(np.maximum(1.0, reserved_bytes), constants.pressure_edge_ratio * array(memory_bytes), EDGE_POWER)


def stalled_share(load: Load, constants: Constants) -> Array:
    """Share of the pipeline messages that stall: any of four causes is enough.

        1 - (1 - [nodes]) (1 - [domains of TP]) (1 - r [nodes, replicated] [micro-batches, replicated]) (1 - p (1 - 1/m))

    Symbols: [x] ``beyond`` of x and its constant; r 1 where optimizer states are replicated (ZeRO-0 with data parallelism);
             p pressure, met only by micro-batches that find others in flight; m micro-batches.
    Shapes:  the fields of ``load``.
    Units:   ratio.
    Holds:   between causes that were seen alone; single rows of 8 and 16 nodes stall without any of them.
    Source:  playbook rows: all pipelines over 64 nodes, those of TP 32, those of ZeRO-0 over eight nodes with sixteen
             micro-batches or more, and those near the memory's edge stall by the same time a message.
    """
    free = 1.0 - beyond(load.nodes, constants.stall_nodes, LOAD_POWER)
    free = free * (1.0 - beyond(load.tensor_domains, constants.stall_tensor_domains, LOAD_POWER))
    many = beyond(load.nodes, constants.stall_replicated_nodes, LOAD_POWER)
    long = beyond(load.num_microbatches, constants.stall_replicated_microbatches, LOAD_POWER)
    met = load.pressure * (1.0 - 1.0 / load.num_microbatches)
    return 1.0 - free * (1.0 - load.replicated * many * long) * (1.0 - met)


def message_stall_s(pipeline_parallel: Number, load: Load, constants: Constants) -> Array:
    """Time that stalled messages add to a step.

        s T (2 min(P - 1, 2) m + 2 (P - 1)),   P > 1

    Symbols: s ``stalled_share``; T ``stall_s``; P stages; m micro-batches. A stage in the middle sends and receives an
             activation and a gradient for every micro-batch, one at the end half of them; the way down and up the pipeline
             comes on top.
    Shapes:  everything broadcasts.
    Units:   s.
    Holds:   implementations whose host waits for every message (``Implementation.message_handshake``).
    Source:  nanotron parallel/pipeline_parallel/p2p.py; playbook rows over 64 nodes: 0.57-0.65 s a micro-batch for two stages,
             1.0-1.25 s for 4 to 32.
    """
    return stalled_share(load, constants) * all_stalled_s(pipeline_parallel, load.num_microbatches, constants)


def chance_stall_s(pipeline_parallel: Number, load: Load, constants: Constants) -> Array:
    """Time that messages which no known cause makes stall add to a step on average, as now and then all of them do.

        p (1 - s) A [P > 1, nodes > 1]

    Symbols: p ``stall_chance``; s ``stalled_share``; A ``all_stalled_s``.
    Shapes:  everything broadcasts.
    Units:   s.
    Holds:   what ``message_stall_s`` holds for: the mean of two times, of which a run takes one.
    Source:  the mean of s A with probability 1 - p and A with p; docs/nanotron-stalls.md.
    """
    free = np.where(load.nodes > 1.0, 1.0 - stalled_share(load, constants), 0.0)
    return constants.stall_chance * free * all_stalled_s(pipeline_parallel, load.num_microbatches, constants)


def all_stalled_s(pipeline_parallel: Number, num_microbatches: Number, constants: Constants) -> Array:
    """Time that messages add to a step of which every one stalls.

        T (2 min(P - 1, 2) m + 2 (P - 1))

    Symbols: those of ``message_stall_s``.
    Shapes:  everything broadcasts.
    Units:   s.
    Source:  ``message_stall_s``.
    """
    stages = array(pipeline_parallel)
    return constants.stall_s * (2.0 * np.minimum(stages - 1.0, 2.0) * array(num_microbatches) + 2.0 * (stages - 1.0))
