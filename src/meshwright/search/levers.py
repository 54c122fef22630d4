"""When nothing fits: which changes would make it fit, each tried and not guessed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from meshwright.domain.training import Lora
from meshwright.estimate.many import evaluate_many
from meshwright.search.sizes import that_fit
from meshwright.units import gib

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout
    from meshwright.search.result import SearchOptions

MAX_NODES = 4096


def levers(case: Case, features: Features, least: Estimate, options: SearchOptions) -> tuple[str, ...]:
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
        found.append(_devices(case, features))
    else:
        found.append("fewer pins: " + " ".join(f"{knob}={value}" for knob, value in sorted(options.pins.items())))
    return tuple(lever for lever in found if lever)


def _try(case: Case, layout: Layout, capacity: float, words: str) -> str:
    _, reserved = evaluate_many(case, [layout])
    left = float(reserved[0]) - capacity
    return f"{words}: " + ("fits" if left <= 0 else f"still {gib(left)} short")


def _devices(case: Case, features: Features) -> str:
    """The smallest larger number of devices on which a layout fits, the number that ``min_devices`` finds."""
    per_node = case.cluster.devices_per_node
    devices = next(that_fit(case, features, above=case.cluster.num_devices, limit_nodes=MAX_NODES), None)
    if devices is None:
        return ""
    nodes = -(-devices // per_node)
    return f"more devices: a layout fits on {devices} ({nodes} node{'s' if nodes > 1 else ''})"
