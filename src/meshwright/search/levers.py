"""When nothing fits: which changes would make it fit, each tried and not guessed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.training import Lora
from meshwright.estimate.many import evaluate_many
from meshwright.search.linearity import fits_anywhere
from meshwright.units import gib

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout, Overlap
    from meshwright.search.result import SearchOptions

MAX_NODES = 4096


def levers(case: Case, features: Features, least: Estimate, options: SearchOptions, overlap: Overlap) -> tuple[str, ...]:
    """Changes that would make the case fit, and what each gives.

    More devices (how many), optimizer states in host memory, shorter sequences, gradients in BF16, LoRA, a larger share of memory.
    """
    found: list[str] = []
    layout, capacity = least.layout, case.capacity_bytes
    if features.optimizer_offload and not layout.offload:
        found.append(
            _try(case, replace(layout, offload=("optimizer",)), capacity, "optimizer states in host memory (offload=optimizer)")
        )
    if case.training.precision.gradient_bytes > 2.0:
        precision = replace(case.training.precision, gradient_bytes=2.0)
        own = replace(case, training=replace(case.training, precision=precision))
        found.append(_try(own, layout, capacity, "gradients in BF16 (--gradient-dtype bf16)"))
        if features.optimizer_offload:
            both = replace(layout, offload=("optimizer",))
            found.append(_try(own, both, capacity, "both: optimizer offload and BF16 gradients"))
    if case.training.task != "lora":
        adapters = replace(case, training=replace(case.training, task="lora", lora=Lora()))
        found.append(_try(adapters, layout, capacity, "adapters only (--task lora)"))
    if case.memory_ratio < 1.0 and least.memory_reserved_bytes <= case.cluster.device.memory_bytes * (1.0 - case.reserve_ratio):
        found.append("the whole device (--max-memory-ratio 1.0), at the risk of running at the edge")
    if not options.pins:
        found.append(_devices(case, features, overlap))
    else:
        found.append("fewer pins: " + " ".join(f"{knob}={value}" for knob, value in sorted(options.pins.items())))
    return tuple(lever for lever in found if lever)


def _try(case: Case, layout: Layout, capacity: float, words: str) -> str:
    _, reserved = evaluate_many(case, [layout])
    left = float(reserved[0]) - capacity
    return f"{words}: " + ("fits" if left <= 0 else f"still {gib(left)} short")


def _devices(case: Case, features: Features, overlap: Overlap) -> str:
    """The smallest number of devices, doubling from what there is and then in whole nodes, on which a layout fits."""
    per_node = case.cluster.devices_per_node
    devices = case.cluster.num_devices
    while devices < MAX_NODES * per_node:
        devices *= 2
        if devices > per_node:
            devices = -(-devices // per_node) * per_node
        if fits_anywhere(case, features, devices, overlap=overlap):
            nodes = -(-devices // per_node)
            return f"more devices: a layout fits on {devices} ({nodes} node{'s' if nodes > 1 else ''})"
    return ""
