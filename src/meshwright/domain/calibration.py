"""Physical constants of a kind of device under a kind of framework: priors here, fitted values from ``calibrate``.

No constant knows a model, a row or a cell. ``none@0`` is the set of priors that stands in the catalogue; estimates made
with it say that they are uncalibrated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TypeAlias

import numpy as np
from msgspec import field
from numpy.typing import NDArray

from meshwright.domain.uncertainty import OTHER, FitCurve, Scale, Uncertainty
from meshwright.value import Value

Constant: TypeAlias = float | NDArray[np.float64]
"""A number, or a column of trial values while a calibration is fitted: formulas may only apply ufuncs to it."""


class Tile(Value, frozen=True, kw_only=True):
    """A GEMM tile: rows and columns of the output, and its main-loop efficiency relative to the best tile."""

    rows: int
    columns: int
    ratio: float


class Constants(Value, frozen=True, kw_only=True):
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
    unaligned_ratio: Constant
    """Speed of a batched product whose rows are no multiple of 16 bytes, relative to an aligned one."""
    grouped_gemm_ratio: Constant
    """Speed of a grouped GEMM of small groups, of a wave each or less, relative to one GEMM of the same tiles."""
    tiles: tuple[Tile, ...]
    attention_forward_ratio: Constant
    """Share of the BF16 peak of a long fused attention forward."""
    attention_backward_ratio: Constant
    """The same for backward, on its 2.5 times the work."""
    attention_rows: int
    """Query rows of one work group of the attention kernel."""
    scan_ratio: Constant
    """Share of the BF16 peak that the chunked recurrence of a linear mixer sustains, beside what it reads and writes."""
    memory_ratio: Constant
    """Share of the memory bandwidth that an elementwise kernel reaches."""
    expert_memory_ratio: Constant
    """Speed of passes over routed tokens (permutations, gates, casts, expert by expert) relative to other elementwise kernels."""
    kernel_gap_s: Constant
    """Device time lost between two kernels."""
    launch_s: Constant
    """Host time to launch one kernel without graphs: the floor under a layer of small kernels."""
    native_launch_s: Constant
    """The same for a kernel that native code launches in a loop over local experts."""
    graph_launch_s: Constant
    """Host time to launch one kernel inside a CUDA graph."""
    collective_host_s: Constant
    """Host time to start one collective inside a layer, where the implementation counts them apart from kernels."""
    shard_host_s: Constant
    """Host time of one sharded unit in one pass, where the implementation counts its units."""
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
    expert_sync_s: Constant
    """From the host's reading of token counts in a mixture layer until its launch queue is full again, beside the dispatch."""
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
    stall_chance: Constant
    """Probability that the messages of a pipeline between nodes stall where nothing that is known makes them."""
    pressure_edge_ratio: Constant
    """Reserved over offered memory from which the allocator returns and asks again."""
    pressure_slowdown: Constant
    """Slowdown of a step whose allocator does so all the time."""
    expert_load_spread: Constant
    """Standard deviation of the tokens of an expert over their mean, where nothing forces the routing."""
    expert_host_s: Constant
    """Host time of the router, dispatcher and permutations of an eager, dropless mixture layer in one pass, beside its kernels."""
    plain_host_ratio: Constant
    """Host time of a launch that nobody tuned over that of one whose processes are bound and whose garbage collection waits."""
    deterministic_scatter_ratio: Constant
    """Passes over routed tokens in deterministic mode, in time, over those that may add in any order."""
    deterministic_attention_ratio: Constant
    """The same of the backward of attention."""
    fallback_score_bytes: Constant
    """Bytes moved per element of the score matrix by a forward of attention that fell back; its backward moves twice as many."""
    plain_update_bytes: Constant
    """Bytes that an Adam update moves per parameter as a list of operators beyond those of one fused kernel, moments in FP32."""
    expert_headroom_ratio: Constant
    """The same in memory."""
    context_bytes: Constant
    """Device context and kernels, outside the allocator."""
    communicator_bytes: Constant
    """Buffers of one communicator."""
    fragmentation_ratio: Constant
    """Reserved over allocated, minus one."""
    run_ahead_ratio: Constant
    """Share of the tensors handed to communication streams that the allocator cannot use again because the host runs ahead."""
    upper_margin_ratio: Constant
    """The upper bound adds this share of activations and temporaries."""
    host_adam_bytes_per_s: Constant
    """Share of one device in the host's memory bandwidth during an optimizer step on the CPU."""
    host_process_bytes: Constant
    """Host memory of one rank: interpreter, libraries, loaders, pinned buffers."""
    pass_speeds: Mapping[str, float] = field(default_factory=dict)
    """Kind of memory-bound pass -> its speed relative to ``memory_ratio``; 1 for a kind that is not named."""


NO_NUMBERS = frozenset({"tiles", "pass_speeds"})
"""Fields of ``Constants`` that are no single number."""


class Key(Value, frozen=True, kw_only=True):
    """What a calibration may know about a run: its hardware, its software, its numbers. Never its model or its layout."""

    device: str
    device_family: str
    cluster: str
    """Name of the cluster, for what its links do."""
    framework: str
    """Framework family of the implementation."""
    release: str
    """Version of the framework, as far as it is known."""
    precision: str

    def values(self) -> Mapping[str, str]:
        """The value of every level of pooling, from all runs to one cell."""
        return {
            "all": "", "family": self.device_family, "device": self.device, "cluster": self.cluster,
            "framework": self.framework,
            "precision": self.precision, "release": f"{self.framework}@{self.release}",
            "cell": f"{self.device}|{self.framework}|{self.precision}",
        }


LEVELS = ("all", "family", "device", "cluster", "framework", "precision", "cell", "release")
"""Levels of partial pooling; an offset of each is added on the log scale."""


OWN = "own"
"""What a user's own runs add to a cell, on top of what every other level makes of the constant, its maximum included."""


def most_of(maximum: float | None, reached: Mapping[str, float], device: str) -> float:
    """What was reached on a device, else the maximum of all, else infinity."""
    return reached.get(device, math.inf if maximum is None else maximum)


class Freedom(Value, frozen=True, kw_only=True):
    """How far a fit may move a constant: standard deviation of the offset of its log at each level, and its largest value."""

    name: str
    spreads: Mapping[str, float]
    maximum: float | None = None
    reached: Mapping[str, float] = field(default_factory=dict)
    """Device -> the most that a benchmark has reached on it: its largest value there."""
    launch: bool = False
    """Of how a run is launched: what untuned runs teach."""

    def most(self, device: str) -> float:
        """The largest value on a device; infinite where nothing bounds it."""
        return most_of(self.maximum, self.reached, device)


class Offsets(Value, frozen=True, kw_only=True):
    """What a fit learnt of one constant: level -> value -> offset of its log; what was not seen has none."""

    by_level: Mapping[str, Mapping[str, float]]
    maximum: float | None = None
    reached: Mapping[str, float] = field(default_factory=dict)
    """Device -> its largest value there, below ``maximum``."""

    def most(self, device: str) -> float:
        """The largest value on a device; infinite where nothing bounds it."""
        return most_of(self.maximum, self.reached, device)

    def of(self, key: Key) -> Mapping[str, float]:
        """Level -> offset that the key has at it, without zeros."""
        values = key.values()
        found = {level: self.by_level.get(level, {}).get(values.get(level, values["cell"]), 0.0) for level in (*LEVELS, OWN)}
        return {level: offset for level, offset in found.items() if offset}

    def apply(self, prior: float, key: Key) -> float:
        """The constant for a key: prior times the exponential of the offsets that the key has, no more than ``most``.

        Own runs move what the others made of it: a constant at its maximum is moved from there.
        """
        values, total = key.values(), 0.0
        for level, value in values.items():
            total += self.by_level.get(level, {}).get(value, 0.0)
        most = max(prior, self.most(key.device))
        fitted = min(prior * math.exp(total), most)
        return min(fitted * math.exp(self.by_level.get(OWN, {}).get(values["cell"], 0.0)), most)


def fitted_constants(prior: Constants, offsets: Mapping[str, Offsets], key: Key) -> Constants:
    """The priors of a device family moved by what was learnt about a key and its kin."""
    moved = {name: each.apply(float(getattr(prior, name)), key) for name, each in offsets.items()}
    return replace(prior, **moved)  # type: ignore[arg-type]


class Move(Value, frozen=True, kw_only=True):
    """One constant: its prior, what it became, and the offsets of its log that made the difference."""

    name: str
    prior: float
    value: float
    offsets: Mapping[str, float]
    """Level of pooling -> offset, or ``measured`` -> offset; empty where nothing moved it."""
    source: str = ""
    """Where a measured value comes from."""


def moves(prior: Constants, fitted: Constants, offsets: Mapping[str, Offsets], key: Key) -> tuple[Move, ...]:
    """Every constant with what moved it, in the order of ``Constants``."""
    return tuple(
        Move(
            name=each.name, prior=float(getattr(prior, each.name)), value=float(getattr(fitted, each.name)),
            offsets=offsets[each.name].of(key) if each.name in offsets else {},
        )
        for each in fields(prior) if each.name not in NO_NUMBERS
    )


class Calibration(Value, frozen=True, kw_only=True):
    """Constants with a name and a version, and whether any of them was fitted to measurements."""

    name: str
    version: str
    constants: Constants
    fitted: bool = False
    uncertainty: Uncertainty | None = None
    """Intervals and probabilities; None: nothing is known about the error."""
    moved: tuple[Move, ...] = ()
    """What the fit did to every constant; empty for the priors."""
    measured: str = ""
    """``cluster@date`` of the profile whose constants stand above the others; empty where there is none."""

    @property
    def label(self) -> str:
        """``name@version``; ``none@0`` for the priors; ``none@0+cluster@date`` where a profile of the cluster stands above them."""
        return f"{self.name}@{self.version}" + (f"+{self.measured}" if self.measured else "")


class CalibrationTable(Value, frozen=True, kw_only=True):
    """Everything that a fit learnt, for any device, framework and precision; a file on disk."""

    name: str
    version: str
    """Date of the fit, and a letter where there are several."""
    offsets: Mapping[str, Offsets]
    step: Scale
    memory: Scale
    fits: Mapping[str, FitCurve]
    """Framework family -> curve; ``*`` for those without failed runs."""
    ranking_ratio: float
    """Relative error between layouts of one case."""
    seen: Mapping[str, Mapping[str, int]]
    """Level of pooling -> value -> number of runs that the fit saw."""
    provenance: Mapping[str, str]
    """Where the runs come from, how many were left out and why."""
    diagnostics: Mapping[str, float]

    def calibration(self, prior: Constants, key: Key) -> Calibration:
        """The constants of a key, borrowed from its kin where it has no runs of its own, and what is known about the error."""
        values, constants = key.values(), fitted_constants(prior, self.offsets, key)
        return Calibration(
            name=self.name, version=self.version, constants=constants, fitted=True,
            moved=moves(prior, constants, self.offsets, key),
            uncertainty=Uncertainty(
                step=self.step, memory=self.memory, fit=self.fits.get(key.framework, self.fits[OTHER]),
                ranking_ratio=self.ranking_ratio,
                seen={level: self.seen.get(level, {}).get(values[level], 0) for level in ("family", "device", "framework", "cell")},
            ),
        )
