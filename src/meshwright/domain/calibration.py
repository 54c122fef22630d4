"""Physical constants of a kind of device under a kind of framework: priors here, fitted values from ``calibrate``.

No constant knows a model, a row or a cell. ``none@0`` is the set of priors that stands in the catalogue; estimates made
with it say that they are uncalibrated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Constant: TypeAlias = float | NDArray[np.float64]
"""A number, or a column of trial values while a calibration is fitted: formulas may only apply ufuncs to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A GEMM tile: rows and columns of the output, and its main-loop efficiency relative to the best tile."""

    rows: int
    columns: int
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Efficiencies (0..1, of the device's own peak), latencies and overheads."""

    gemm_ratio: Constant
    """Share of the dense peak that a very large BF16 GEMM sustains."""
    gemm_fp8_ratio: Constant
    """The same for FP8, of the FP8 peak."""
    gemm_fp4_ratio: Constant
    """The same for FP4, of the FP4 peak."""
    gemm_setup_k: Constant
    """Prologue and epilogue of a tile, as extra length of k."""
    gemm_wave_ratio: Constant
    """How much of an unfilled last wave is lost: 1 all of it, 0 nothing (stream-K)."""
    gemm_weight_gradient_ratio: Constant
    """Speed of the weight-gradient GEMM (NT layout, FP32 accumulation) relative to the forward GEMM."""
    grouped_gemm_ratio: Constant
    """Speed of a grouped GEMM relative to one GEMM of the same tiles."""
    tiles: tuple[Tile, ...]
    attention_forward_ratio: Constant
    """Share of the BF16 peak of a long fused attention forward."""
    attention_backward_ratio: Constant
    """The same for backward, on its 2.5 times the work."""
    attention_rows: int
    """Query rows of one work group of the attention kernel."""
    memory_ratio: Constant
    """Share of the memory bandwidth that an elementwise kernel reaches."""
    kernel_gap_s: Constant
    """Device time lost between two kernels."""
    launch_s: Constant
    """Host time to launch one kernel without graphs: the floor under a layer of small kernels."""
    graph_launch_s: Constant
    """The same inside a CUDA graph."""
    collective_host_s: Constant
    """Host time to start one collective inside a layer, where the implementation counts them apart from kernels."""
    collective_skew_s: Constant
    """What each rank adds to the wait for the last of a tensor group's hosts, while these hosts also serve pipeline messages
    between nodes."""
    scale_up_ratio: Constant
    """Share of the scale-up bandwidth that a large collective reaches."""
    network_ratio: Constant
    """Share of the network bandwidth that a large collective reaches."""
    collective_fixed_s: Constant
    """Start of a collective, whatever its size and group."""
    peer_s: Constant
    """Start of one message of an all-to-all."""
    fabric_slope: Constant
    """Loss of network bandwidth per doubling of the nodes in a group beyond eight."""
    contention_slowdown: Constant
    """Slowdown of compute while a network collective runs beside it (SMs and bandwidth taken)."""
    contention_slowdown_scale_up: Constant
    """Slowdown of compute while a scale-up collective runs beside it."""
    overlap_ratio: Constant
    """Share of a collective that the framework can hide when there is enough compute beside it."""
    straggler_slope: Constant
    """Step-time growth: 1 + slope * sqrt(2 ln nodes)."""
    step_host_s: Constant
    """Host work once per step: data, logging, synchronisation."""
    microbatch_host_s: Constant
    """Host work once per micro-batch and stage under a pipeline."""
    stall_s: Constant
    """One pipeline message whose size is sent ahead and waited for, when it stalls."""
    stall_nodes: Constant
    """Nodes of a job from which such messages stall."""
    stall_tensor_domains: Constant
    """Scale-up domains of a tensor group from which they stall."""
    stall_replicated_nodes: Constant
    """Nodes from which they stall where optimizer states are not sharded."""
    stall_replicated_microbatches: Constant
    """Micro-batches from which they stall there."""
    pressure_edge_ratio: Constant
    """Reserved over offered memory from which the allocator returns and asks again."""
    pressure_slowdown: Constant
    """Slowdown of a step whose allocator does so all the time."""
    expert_imbalance_ratio: Constant
    """Tokens of the fullest expert rank over the mean, in time."""
    expert_headroom_ratio: Constant
    """The same in memory."""
    context_bytes: Constant
    """Device context and kernels, outside the allocator."""
    communicator_bytes: Constant
    """Buffers of one communicator."""
    fragmentation_ratio: Constant
    """Reserved over allocated, minus one."""
    upper_margin_ratio: Constant
    """The upper bound adds this share of activations and temporaries."""
    host_adam_bytes_per_s: Constant
    """Share of one device in the host's memory bandwidth during an optimizer step on the CPU."""
    host_process_bytes: Constant
    """Host memory of one rank: interpreter, libraries, loaders, pinned buffers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Constants with a name and a version, and whether any of them was fitted to measurements."""

    name: str
    version: str
    constants: Constants
    fitted: bool = False

    @property
    def label(self) -> str:
        """``name@version``; ``none@0`` for the priors."""
        return f"{self.name}@{self.version}"
