"""Activations that wait on the host: what their way there and back adds to a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from meshwright.perf.arrays import Array
from meshwright.perf.seconds import Seconds, seconds

if TYPE_CHECKING:
    from meshwright.domain.cluster import Cluster


def offload_s(moved_bytes: Array, forward_s: Array, backward_s: Array, cluster: Cluster) -> Seconds:
    """Time that a layer waits for tensors on their way to the host in its forward, and back in its backward.

        max(0, B / link - F) + max(0, B / link - W)

    Symbols: B ``moved_bytes``; link ``host_link_bytes_per_s`` of a device; F, W seconds of the layer's forward and of its backward
             with what it computes again.
    Shapes:  everything broadcasts.
    Units:   bytes, s -> s.
    Holds:   transfers have a stream of their own, so that they run beside one layer's work; pinned host memory.
    Source:  Transformer Engine cpu_offload.py and Megatron-Core fine-grained activation offloading: copies on streams of their own.
    """
    way = moved_bytes / cluster.host_link_bytes_per_s
    return seconds(host=np.maximum(0.0, way - forward_s) + np.maximum(0.0, way - backward_s))
