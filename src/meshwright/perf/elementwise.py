"""Memory-bound work and the host's launch floor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.perf.arrays import Array, Number, array

if TYPE_CHECKING:
    from meshwright.domain.calibration import Constants
    from meshwright.domain.cluster import Device
    from meshwright.domain.implementation import Implementation

TIMED_SHARDS = 2.0
"""Shards of the units whose copies a profile times."""
EMBEDDING_BYTES = (4.0, 10.0)
"""Bytes read and written per element that is looked up, forward and backward."""


def memory_bound_s(moved_bytes: Number, device: Device, constants: Constants, *, kind: str = "") -> Array:
    """Time of elementwise kernels that read and write ``moved_bytes`` in all.

        t = bytes / (bw * mu * speed)

    Symbols: mu ``memory_ratio``; speed of the ``kind`` of pass relative to it, 1 where it was not measured (``pass_speeds``).
    Shapes:  moved_bytes broadcasts.
    Units:   bytes -> s.
    Holds:   large tensors; the fixed cost of a kernel is counted per launch (``launch_floor_s``).
    Source:  SimuMax default 0.67-0.91 of the bandwidth (docs/sources.md#memory-bound-operators).
    """
    time = array(moved_bytes) / (device.memory_bytes_per_s * constants.memory_ratio)
    return time / constants.pass_speeds[kind] if kind in constants.pass_speeds else time


def kind_bytes(implementation: Implementation, kind: str, direction: str) -> float | None:
    """Bytes that the cost model counts per element of a kind of pass; None where its elements are not those of one row.

    Shapes:  elements of the row; of a loss its (own) logits, of ``adam`` the parameters, of ``embedding`` the hidden states, of
             ``gathered`` (from ``TIMED_SHARDS`` shards) and ``scattered`` the parameters of a unit.
    Units:   bytes.
    Source:  the implementation's tables.
    """
    ahead = direction == "forward"
    match kind:
        case "loss":
            return implementation.loss_passes[not ahead]
        case "loss_parallel":
            return (implementation.split_loss_passes or implementation.loss_passes)[not ahead]
        case "embedding":
            return EMBEDDING_BYTES[not ahead]
        case "adam":
            return implementation.update_bytes or None
        case "gathered" | "scattered" if implementation.units is not None:
            units = implementation.units
            return units.reduce_bytes if kind == "scattered" else units.gather_shard_bytes / TIMED_SHARDS + units.gather_bytes
        case "permute" | "router":
            return None
        case _:
            rows = (row for row in implementation.passes if row.kind == kind)
            return next((row.forward_bytes if ahead else row.backward_bytes for row in rows), None)


def launch_floor_s(
    device_s: Number, kernels: Number, constants: Constants, *, graphs: bool, blocking: bool = False, native: Number = 0.0,
    collectives_s: Number = 0.0, synchronous: bool = False, pace: Number = 1.0,
) -> Array:
    """Extra time because the host cannot launch kernels as fast as the device ends them.

        t = max(0, h - device),   h = p (kernels * launch + native * native_launch + collectives)
        t = h             where every launch is ``blocking``
        t = collectives   where the device is the host (``Device.synchronous``): its operators cost their gaps alone

    Symbols: native kernels beside the others, launched by a loop of native code; collectives host time of the collectives and
             sharded units (``perf.exchange.collective_host_s``), and of the routing of an eager mixture (``expert_host_s``);
             p ``pace``, ``plain_host_ratio`` where nobody tuned the launch.
    Shapes:  device_s, kernels, native and collectives_s broadcast.
    Units:   s.
    Holds:   eager frameworks, one launching thread; with CUDA graphs the launch is the graph's.
    Source:  docs/sources.md#launch-floor; CUDA C++ Programming Guide, CUDA_LAUNCH_BLOCKING.
    """
    if synchronous:
        return array(collectives_s)
    launch, native_launch = constants.launch_s, constants.native_launch_s
    if graphs:
        launch = native_launch = constants.graph_launch_s
    host_s = array(kernels) * launch + array(native) * native_launch + collectives_s
    return np.maximum(0.0, pace * host_s - (0.0 if blocking else device_s))
