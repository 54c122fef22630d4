"""Samples of a machine that behaves exactly as the cost model says, with some noise: what a fit must find again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from meshwright.catalog import implementation, load_cluster, priors
from meshwright.domain.calibration import Constants, Tile
from meshwright.domain.cluster import Cluster
from meshwright.domain.mesh import group
from meshwright.domain.sample import Sample
from meshwright.engine.profile.machine import Machine
from meshwright.perf.attention import flash_attention_s
from meshwright.perf.collectives import all_gather_s, all_reduce_s, all_to_all_s, point_to_point_s, reduce_scatter_s
from meshwright.perf.elementwise import kind_bytes
from meshwright.perf.gemm import linear_s

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SHAPES = (
    (512, 512, 512),
    (1024, 256, 704),
    (512, 1408, 512),
    (2048, 512, 512),
    (256, 512, 1376),
    (1024, 1024, 1024),
    (128, 512, 384),
)
PAYLOADS = (2**10, 2**16, 2**20, 2**24)
KINDS = {"norm": 0.5, "gate": 2.0, "adam": 1.0, "permute": 0.7}
"""Kind of pass -> speed relative to ``memory_ratio``."""
SEEN_BYTES = {"permute": 20.0}
"""Bytes per element as the benchmark sees them, of kinds that the implementation does not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A machine whose constants are known."""

    machine: Machine
    cluster: Cluster
    constants: Constants


def machine(**changes: Any) -> Machine:
    values: dict[str, Any] = {
        "name": "Some Processor", "kind": "cpu", "cores": 2, "memory_bytes": 24 * 2**30, "host_memory_bytes": 24 * 2**30,
        "ranks": 2, "ranks_per_node": 2, "num_units": 1, "threads": 1, "torch": "2.13.0", "host": "here", "date": "2026-11-21",
    }
    return Machine(**values | changes)


def cpu_world(**constants: float) -> World:
    """Two processes of one host."""
    cluster = load_cluster("workstation")
    device = replace(
        cluster.device, num_units=1, peak_flops_per_s={"bf16": 1.2e12, "fp32": 1.6e11}, memory_bytes_per_s=13e9, synchronous=True
    )
    values: dict[str, Any] = {
        "gemm_ratio": 0.9, "gemm_setup_k": 70.0, "gemm_weight_gradient_ratio": 0.8, "collective_fixed_s": 3e-4, "peer_s": 5e-5,
        "scale_up_ratio": 1.0, "memory_ratio": 0.7, "attention_forward_ratio": 0.2, "attention_backward_ratio": 0.15,
        "grouped_gemm_ratio": 0.6, "kernel_gap_s": 5e-6, "tiles": (Tile(rows=32, columns=32, ratio=1.0),),
    }
    changed = replace(priors(device).constants, **values | constants)
    link = replace(cluster.scale_up, bytes_per_s=1.5e9, latency_s=1e-4)
    return World(machine=machine(), cluster=replace(cluster, device=device, scale_up=link), constants=changed)


def gpu_world() -> World:
    """One node of eight GPUs that the catalogue knows, which reach other shares of their peaks than its priors say."""
    cluster = load_cluster("dgx-h100")
    constants = replace(
        priors(cluster.device).constants, gemm_ratio=0.66, gemm_setup_k=120.0, gemm_wave_ratio=0.7, memory_ratio=0.9,
        attention_forward_ratio=0.5, attention_backward_ratio=0.4, collective_fixed_s=2e-5, peer_s=2e-6, scale_up_ratio=1.0,
    )
    here = machine(
        name="NVIDIA H100 80GB HBM3",
        kind="cuda",
        memory_bytes=cluster.device.memory_bytes,
        ranks=8,
        ranks_per_node=8,
        num_units=132,
    )
    link = replace(cluster.scale_up, bytes_per_s=3e11)
    return World(machine=here, cluster=replace(cluster, num_devices=8, scale_up=link), constants=constants)


class Clock:
    """Makes samples: seconds as the formula says, times noise."""

    def __init__(self, world: World, noise: float, seed: int) -> None:
        self.world, self.noise, self.random = world, noise, np.random.default_rng(seed)

    def sample(self, bench: Any, seconds: float, values: Mapping[str, float] | None = None, **arguments: Any) -> Sample:
        median = float(seconds) * float(np.exp(self.noise * self.random.standard_normal()))
        return Sample(
            bench=bench, arguments=arguments, busy_ranks=self.world.machine.ranks, seconds=median, low_s=0.99 * median,
            high_s=1.01 * median, best_s=0.98 * median, worst_s=1.1 * median, blocks=7, calls=3, values=values or {}, load=0.5,
        )


def samples(world: World, *, noise: float = 0.0, seed: int = 0, scale: int = 1) -> list[Sample]:
    """A whole profile of the world; ``scale`` times larger sizes for larger devices."""
    clock = Clock(world, noise, seed)
    return [*_compute(clock, scale), *_passes(clock, scale), *_hosts(clock), *_collectives(clock)]


def _compute(clock: Clock, scale: int) -> Iterator[Sample]:
    device, constants = clock.world.cluster.device, clock.world.constants
    on = {"device": device, "constants": constants}
    for (rows, columns, inner), direction, dtype in product(SHAPES, ("forward", "input", "weight"), ("bf16", "fp32")):
        if dtype == "fp32" and (direction != "forward" or device.name != "cpu"):
            continue
        sizes = {"rows": rows * scale, "columns": columns * scale, "inner": inner * scale}
        seconds = linear_s(**sizes, direction=direction, dtype=dtype, **on)  # type: ignore[arg-type]
        yield clock.sample("product", float(seconds), **sizes, dtype=dtype, direction=direction)
    for rows, groups in ((8192, 8), (32768, 16)):
        seconds = linear_s(
            rows * scale / groups, 512, 1024, direction="forward", dtype="bf16", groups=groups, grouped=True, **on  # type: ignore[arg-type]
        )
        yield clock.sample(
            "grouped", float(seconds), rows=rows * scale, columns=512, inner=1024, groups=groups, dtype="bf16", direction="forward"
        )
    for sequences, heads, tokens, width in ((4, 8, 256, 64), (1, 8, 1024, 64), (2, 4, 512, 128)):
        shape = {"sequences": sequences, "heads": heads, "key_heads": heads, "tokens": tokens * scale, "head_dim": width}
        both = flash_attention_s(
            (tokens * scale) ** 2 / 2, sequences * heads, tokens * scale, key_dim=width, value_dim=width, **on  # type: ignore[arg-type]
        )
        for direction, each in zip(("forward", "backward"), both, strict=True):
            yield clock.sample("attention", float(each), **shape, dtype="bf16", direction=direction)


def _passes(clock: Clock, scale: int) -> Iterator[Sample]:
    device, constants = clock.world.cluster.device, clock.world.constants
    reference = implementation("reference")
    rate = device.memory_bytes_per_s * float(constants.memory_ratio)
    for kind, speed in KINDS.items():
        for exponent, direction in product((16, 20, 22), ("forward",) if kind == "adam" else ("forward", "backward")):
            elements = 2**exponent * scale
            moved = elements * (kind_bytes(reference, kind, direction) or SEEN_BYTES[kind])
            seen = {"bytes": moved, "operators": 3.0}
            start = 3.0 * float(constants.kernel_gap_s)
            yield clock.sample(
                "pass",
                moved / (rate * speed) + start,
                seen,
                kind=kind,
                elements=elements,
                width=512,
                dtype="bf16",
                direction=direction,
            )
    yield clock.sample("memory", 2**28 * scale / device.memory_bytes_per_s, bytes=2**28 * scale)


def _hosts(clock: Clock) -> Iterator[Sample]:
    gap = float(clock.world.constants.kernel_gap_s)
    for kind, seconds in (("forward", 0.5 * gap), ("backward", 1.5 * gap)):
        yield clock.sample("operator", seconds, kind=kind)
    ranks = clock.world.machine.ranks
    for kind in ("forward", "backward"):
        yield clock.sample("distributed", 4e-4, kind=kind, ranks=ranks)
        yield clock.sample("unit", 6e-4, kind=kind, ranks=ranks)
    yield clock.sample("message", 8e-4, ranks=ranks, payload_bytes=1024)
    yield clock.sample("transfer", 2**24 / 8e9, bytes=2**24, direction="on_device")
    values = {"alone_s": 0.02, "beside_s": 0.024, "collective_alone_s": 0.006, "collective_beside_s": 0.008}
    yield clock.sample("beside", 0.004, values, operation="all-reduce", payload_bytes=2**20, ranks=ranks)


def _collectives(clock: Clock) -> Iterator[Sample]:
    """Of both tiers where there are several domains: one rank of each, and all ranks."""
    cluster, ranks = clock.world.cluster, clock.world.machine.ranks
    inside = cluster.scale_up_devices
    yield from _tier(clock, "scale_up", [(size, 1.0) for size in sorted({2, min(ranks, inside)})])
    if ranks > inside:
        yield from _tier(clock, "network", [(ranks // inside, float(inside)), (ranks, 1.0)])


def _tier(clock: Clock, tier: str, groups: list[tuple[int, float]]) -> Iterator[Sample]:
    cluster, constants = clock.world.cluster, clock.world.constants
    timed = {"all-reduce": all_reduce_s, "all-gather": all_gather_s, "reduce-scatter": reduce_scatter_s, "all-to-all": all_to_all_s}
    for payload, (ranks, stride) in product(PAYLOADS, groups):
        for operation, formula in timed.items():
            seconds = float(formula(payload, group(float(ranks), stride, cluster), cluster, constants))
            yield clock.sample("collective", seconds, operation=operation, ranks=ranks, payload_bytes=payload, tier=tier)
    for payload in PAYLOADS:
        seconds = float(point_to_point_s(payload, crosses=float(tier == "network"), cluster=cluster, constants=constants))
        yield clock.sample("collective", seconds, operation="send", ranks=2, payload_bytes=payload, tier=tier)
