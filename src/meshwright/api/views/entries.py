"""What the catalogue says of each entry: numbers in base units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.api.views.estimates import number, whole
from meshwright.perf.parameters import active_parameters, total_parameters

if TYPE_CHECKING:
    from meshwright.domain.cluster import Cluster, Device
    from meshwright.domain.implementation import Implementation
    from meshwright.domain.model import Model
    from meshwright.frameworks import Framework

Facts = dict[str, Any]


def device(item: Device) -> Facts:
    """A device."""
    return {
        "family": item.family,
        "memory_bytes": whole(item.memory_bytes),
        "memory_bytes_per_s": number(item.memory_bytes_per_s),
        "scale_up_bytes_per_s": number(item.scale_up_bytes_per_s),
        "peak_flops_per_s": {name: number(peak) for name, peak in item.peak_flops_per_s.items()},
        "aliases": list(item.aliases),
    }


def cluster(item: Cluster) -> Facts:
    """A cluster."""
    return {
        "device": item.device.name,
        "devices_per_node": item.devices_per_node,
        "scale_up_devices": item.scale_up_devices,
        "scale_up_bytes_per_s": number(item.scale_up.bytes_per_s),
        "network_bytes_per_s": number(item.network.bytes_per_s),
    }


def model(item: Model) -> Facts:
    """A model; ``active_parameters`` are those that one token meets."""
    experts = item.experts
    return {
        "parameters": whole(total_parameters(item)),
        "active_parameters": whole(active_parameters(item)),
        "layers": item.num_layers,
        "hidden": item.hidden,
        "vocabulary": item.vocabulary,
        "num_experts": experts.num_experts if experts else None,
        "experts_per_token": experts.experts_per_token if experts else None,
        "assumed": list(item.assumed),
    }


def framework(item: Any) -> Facts:
    """A framework."""
    return {
        "title": item.title,
        "version": item.version,
        "implementation": item.implementation,
        "schedules": list(item.features.schedules),
        "zero_stages": list(item.features.zero_stages),
        "exports": item.writer is not None,
    }


def framework_facts(item: Framework) -> Facts:
    """Everything about a framework that is no function."""
    return {
        "name": item.name,
        "title": item.title,
        "aliases": item.aliases,
        "version": item.version,
        "releases": item.releases,
        "implementation": item.implementation,
        "keys": len(item.surface().at(item.version)) if item.surface is not None else 0,
        "features": item.features,
        "unspoken": item.unspoken,
        "resume": {knob: f"{meaning.resume}: {meaning.reason}" for knob, meaning in item.resume.items()},
        "limits": {limit.id: limit.words for limit in item.limits},
        "checks": {check.id: f"{check.severity}: {check.words}" for check in item.checks},
    }


def implementation(item: Implementation) -> Facts:
    """An implementation."""
    return {"description": item.description, "family": item.family}
