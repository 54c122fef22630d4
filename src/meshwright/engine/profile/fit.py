"""Samples of a machine -> the machine as the cost model knows it. Pure; numpy, no torch."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from meshwright.catalog import cluster_for, implementation, priors
from meshwright.catalog import device as device_named
from meshwright.catalog.device_sheet import device_names
from meshwright.domain.measured import Measured
from meshwright.engine.profile.fit_attention import fit_attention
from meshwright.engine.profile.fit_compute import fit_grouped, fit_products
from meshwright.engine.profile.fit_host import fit_memory, fit_passes, fit_transfers, mean_host_s, median_s, without_host
from meshwright.engine.profile.fit_links import fit_beside, fit_links
from meshwright.engine.profile.fitted import BenchFit, Fitted, FittedMachine
from meshwright.errors import fault
from meshwright.perf.elementwise import kind_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from meshwright.domain.cluster import Cluster, Device
    from meshwright.domain.sample import Sample
    from meshwright.engine.profile.machine import Machine

REFERENCE = "reference"
"""The implementation whose passes a profile runs."""
STRANGERS = {"cpu": "cpu", "cuda": "h100-sxm", "npu": "ascend-910b3"}
"""Kind of machine -> the device whose figures stand where nothing was measured and the catalogue does not know the device."""


def fit(samples: Sequence[Sample], machine: Machine, *, name: str = "this-machine") -> FittedMachine:
    """Everything that the samples say about the machine, in the cost model's words.

    Errors:  ``InputError`` where no product was timed: nothing could be said about compute.
    """
    by_bench: defaultdict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        if math.isfinite(sample.seconds) and sample.seconds > 0.0:
            by_bench[sample.bench].append(sample)
    if not by_bench["product"]:
        raise fault("profile.products", "no matrix product was timed: measure more before a cluster file is written")
    base, known = _base(machine)
    cluster = _shape(machine, base, name, known=known)
    constants = priors(base).constants
    figures: dict[str, Fitted] = {}
    found: dict[str, Fitted] = {}
    benches: list[BenchFit] = []

    plain = mean_host_s(by_bench["operator"], ("plain",), "operators without autograd")
    if plain is not None and cluster.device.synchronous:  # elsewhere the device's own clock has timed them
        for bench in ("product", "grouped", "attention"):
            by_bench[bench] = [without_host(each, plain.value) for each in by_bench[bench]]
    bandwidth = None if known else fit_memory(by_bench["memory"])
    if bandwidth is not None:
        figures["memory_bandwidth"] = bandwidth
        cluster = replace(cluster, device=replace(cluster.device, memory_bytes_per_s=bandwidth.value))
    transfer = fit_transfers(by_bench["transfer"])
    if transfer is not None:
        figures["host_link"] = transfer
        cluster = replace(cluster, host_link_bytes_per_s=transfer.value)

    host = _host_times(by_bench, synchronous=cluster.device.synchronous)
    gap = host["kernel_gap_s"].value if "kernel_gap_s" in host else 0.0
    bytes_of = pass_bytes()
    first = fit_passes(by_bench["pass"], bytes_of, cluster.device.memory_bytes_per_s, gap)
    if first is not None:
        constants = replace(constants, memory_ratio=first[0].value)

    compute = fit_products(by_bench["product"], cluster.device, constants, known_peaks=known)
    figures |= {f"peak.{dtype}": peak for dtype, peak in compute.peaks.items()}
    found |= compute.found
    benches = [*compute.benches, *benches]
    cluster = replace(cluster, device=compute.device)
    constants = compute.constants
    ratio = float(constants.memory_ratio)
    passes: dict[str, Fitted] = {}
    passed = fit_passes(by_bench["pass"], bytes_of, cluster.device.memory_bytes_per_s, gap, memory_ratio=ratio)
    if passed is not None:
        passes = passed[1]
        benches.append(passed[2])
    grouped = fit_grouped(by_bench["grouped"], cluster.device, constants)
    if grouped is not None:
        found["grouped_gemm_ratio"] = grouped[0]
        benches.append(grouped[1])
    attention = fit_attention(by_bench["attention"], cluster.device, constants)
    if attention is not None:
        found |= attention[0]
        benches.append(attention[2])

    links = fit_links(by_bench["collective"], cluster, constants)
    figures |= links.figures
    found |= links.found
    benches += links.benches
    found |= fit_beside(by_bench["beside"])
    found |= host
    cores = attention[1] if attention else ()
    measured = Measured(
        name=name, version=machine.date, constants={key: each.value for key, each in found.items()}, tiles=compute.tiles,
        pass_speeds={kind: each.value for kind, each in passes.items()}, products=compute.products, cores=cores,
        scale_up=links.timed.get("scale_up", ()), network=links.timed.get("network", ()),
        sources={key: each.words for key, each in found.items()}
        | {f"pass_speeds.{kind}": each.words for kind, each in passes.items()},
    )
    missing = tuple(bench for bench in _WANTED if not by_bench[bench])
    return FittedMachine(
        cluster=replace(links.cluster, measured=measured), figures=figures, constants=found, passes=passes, tiles=compute.tiles,
        benches=tuple(benches), base=base.name, not_measured=missing,
    )


_WANTED = (
    "product", "grouped", "attention", "pass", "operator", "distributed", "unit", "message", "transfer", "collective", "beside",
    "memory",
)


def _host_times(by_bench: Mapping[str, Sequence[Sample]], *, synchronous: bool) -> dict[str, Fitted]:
    """Host times by the name of their constant; on a processor the time of an operator is the gap between two of them."""
    both = ("forward", "backward")
    tried = {
        "kernel_gap_s" if synchronous else "launch_s": mean_host_s(by_bench["operator"], both, "small operators"),
        "collective_host_s": mean_host_s(by_bench["distributed"], both, "DTensor redistributions beyond the collective"),
        "shard_host_s": mean_host_s(by_bench["unit"], both, "FSDP units beyond the collective"),
        "microbatch_host_s": median_s(by_bench["message"], "hops of a pipeline schedule beyond the message"),
    }
    return {name: each for name, each in tried.items() if each is not None}


def _base(machine: Machine) -> tuple[Device, bool]:
    """The catalogue's device behind a machine, and whether it is that very device, with published peaks."""
    spelling = "-".join(machine.name.lower().split())
    known = device_names().find(spelling) if machine.kind != "cpu" else None
    return device_named(known or STRANGERS[machine.kind]), known is not None


def _shape(machine: Machine, base: Device, name: str, *, known: bool) -> Cluster:
    """The cluster before anything of it was fitted: sizes of the machine, the rest from the device's usual shape.

    Its tiers are those that were measured: inside a node, and between nodes; of one node alone a scale-up domain may reach further.
    """
    usual = cluster_for(base.name)
    per_node = max(1, min(machine.ranks_per_node, machine.ranks))
    on_host = machine.kind == "cpu"
    memory = machine.memory_bytes // per_node if on_host else machine.memory_bytes
    units = machine.num_units if on_host or machine.num_units > 1 else base.num_units  # some drivers do not say them
    device = replace(
        base, name=base.name if known else f"{name}-device", memory_bytes=max(1, memory), num_units=max(1, units),
        aliases=(), synchronous=on_host, peak_flops_per_s=base.peak_flops_per_s if known else {},
    )
    beyond = usual.scale_up_devices > usual.devices_per_node and machine.ranks <= per_node
    return replace(
        usual, name=name, device=device, num_devices=machine.ranks, devices_per_node=per_node,
        scale_up_devices=usual.scale_up_devices if beyond else per_node, host_memory_bytes=machine.host_memory_bytes,
    )


def pass_bytes() -> Callable[[str, str], float | None]:
    """Bytes that the reference step's implementation counts per element of a kind of pass, by kind and direction."""
    return partial(kind_bytes, implementation(REFERENCE))
