"""What a list of the catalogue says of each entry: numbers in base units, and the words of the table made from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.api.views.estimates import number, whole
from meshwright.perf.parameters import active_parameters, total_parameters
from meshwright.units import GIB, GIGA, TERA, count

if TYPE_CHECKING:
    from collections.abc import Callable

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


def without_samples(facts: Facts) -> Facts:
    """Facts of an entry for people: of timed products and collectives only how many there are; sources list the constants."""
    measured = facts.get("measured")
    if not measured:
        return facts
    counts = {key: f"{len(value)} timed" for key, value in measured.items() if isinstance(value, list) and value}
    return facts | {"measured": {"version": measured["version"], **counts}}


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


def words(kind: str, facts: Facts) -> dict[str, str]:
    """The line of an entry in the table of its kind."""
    return {"name": facts["name"], **_WORDS[kind](facts)}


def _device_words(facts: Facts) -> dict[str, str]:
    return {
        "family": facts["family"],
        "memory_gib": f"{facts['memory_bytes'] / GIB:.0f}",
        "memory_gb_per_s": f"{facts['memory_bytes_per_s'] / GIGA:,.0f}",
        "scale_up_gb_per_s": f"{facts['scale_up_bytes_per_s'] / GIGA:,.0f}",
        "dense_tflops": ", ".join(
            f"{name} {peak / TERA:,.4g}" for name, peak in facts["peak_flops_per_s"].items() if name != "fp32"
        ),
        "aliases": ", ".join(facts["aliases"]),
    }


def _cluster_words(facts: Facts) -> dict[str, str]:
    return {
        "device": facts["device"],
        "devices_per_node": str(facts["devices_per_node"]),
        "scale_up_devices": str(facts["scale_up_devices"]),
        "scale_up_gb_per_s": f"{facts['scale_up_bytes_per_s'] / GIGA:,.0f}",
        "network_gb_per_s": f"{facts['network_bytes_per_s'] / GIGA:,.4g}",
    }


def _model_words(facts: Facts) -> dict[str, str]:
    experts = facts["num_experts"]
    return {
        "parameters": count(facts["parameters"]),
        "active": count(facts["active_parameters"]) if experts else "",
        "layers": str(facts["layers"]),
        "hidden": str(facts["hidden"]),
        "vocabulary": str(facts["vocabulary"]),
        "experts": f"{facts['experts_per_token']} of {experts}" if experts else "",
        "assumed": ", ".join(facts["assumed"]),
    }


def _framework_words(facts: Facts) -> dict[str, str]:
    return {
        "title": facts["title"],
        "version": facts["version"],
        "implementation": facts["implementation"],
        "schedules": ", ".join(facts["schedules"]),
        "zero": ", ".join(map(str, facts["zero_stages"])),
        "export": "yes" if facts["exports"] else "",
    }


def _implementation_words(facts: Facts) -> dict[str, str]:
    return {"what": facts["description"]}


_WORDS: dict[str, Callable[[Facts], dict[str, str]]] = {
    "devices": _device_words, "clusters": _cluster_words, "models": _model_words, "frameworks": _framework_words,
    "implementations": _implementation_words,
}
