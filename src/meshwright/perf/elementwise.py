"""Memory-bound work and the host's launch floor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.perf.arrays import Array, Number, array

if TYPE_CHECKING:
    from meshwright.domain.calibration import Constants
    from meshwright.domain.cluster import Device


def memory_bound_s(moved_bytes: Number, device: Device, constants: Constants) -> Array:
    """Time of elementwise kernels that read and write ``moved_bytes`` in all.

        t = bytes / (bw * mu)

    Shapes:  moved_bytes broadcasts.
    Units:   bytes -> s.
    Holds:   large tensors; the fixed cost of a kernel is counted per launch (``launch_floor_s``).
    Source:  SimuMax default 0.67-0.91 of the bandwidth (reference/cost-model.md 3.3).
    """
    return array(moved_bytes) / (device.memory_bytes_per_s * constants.memory_ratio)


def launch_floor_s(
    device_s: Number, kernels: Number, constants: Constants, *, graphs: bool, blocking: bool = False, collectives_s: Number = 0.0
) -> Array:
    """Extra time because the host cannot launch kernels as fast as the device ends them.

        t = max(0, h - device),   h = kernels * launch + collectives;   t = h where every launch is ``blocking``

    Symbols: collectives host time of the collectives among them (``perf.exchange.collective_host_s``).
    Shapes:  device_s, kernels and collectives_s broadcast.
    Units:   s.
    Holds:   eager frameworks, one launching thread; with CUDA graphs the launch is the graph's.
    Source:  reference/cost-model.md section 10; CUDA C++ Programming Guide, CUDA_LAUNCH_BLOCKING.
    """
    launch = constants.graph_launch_s if graphs else constants.launch_s
    return np.maximum(0.0, array(kernels) * launch + collectives_s - (0.0 if blocking else device_s))
