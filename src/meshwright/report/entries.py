"""The line of an entry in the table of its kind, and its facts as people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.views.entries import Facts
from meshwright.units import GIB, GIGA, TERA, count

if TYPE_CHECKING:
    from collections.abc import Callable


def without_samples(facts: Facts) -> Facts:
    """Facts of an entry for people: of timed products and collectives only how many there are; sources list the constants."""
    measured = facts.get("measured")
    if not measured:
        return facts
    counts = {key: f"{len(value)} timed" for key, value in measured.items() if isinstance(value, list) and value}
    return facts | {"measured": {"version": measured["version"], **counts}}


def words(kind: str, facts: Facts) -> dict[str, str]:
    """The line of an entry in the table of its kind: headings and what stands below them."""
    return {"name": facts["name"], **_WORDS[kind](facts)}


def _device_words(facts: Facts) -> dict[str, str]:
    return {
        "family": facts["family"],
        "memory\nGiB": f"{facts['memory_bytes'] / GIB:.0f}",
        "memory\nGB/s": f"{facts['memory_bytes_per_s'] / GIGA:,.0f}",
        "scale-up\nGB/s": f"{facts['scale_up_bytes_per_s'] / GIGA:,.0f}",
        "dense TFLOP/s": ", ".join(
            f"{name} {peak / TERA:,.4g}" for name, peak in facts["peak_flops_per_s"].items() if name != "fp32"
        ),
        "aliases": ", ".join(facts["aliases"]),
    }


def _cluster_words(facts: Facts) -> dict[str, str]:
    return {
        "device": facts["device"],
        "devices\nper node": str(facts["devices_per_node"]),
        "scale-up\ndevices": str(facts["scale_up_devices"]),
        "scale-up\nGB/s": f"{facts['scale_up_bytes_per_s'] / GIGA:,.0f}",
        "network\nGB/s": f"{facts['network_bytes_per_s'] / GIGA:,.4g}",
    }


def _model_words(facts: Facts) -> dict[str, str]:
    experts = facts["num_experts"]
    return {
        "params": count(facts["parameters"]),
        "active": count(facts["active_parameters"]) if experts else "",
        "layers": str(facts["layers"]),
        "hidden": str(facts["hidden"]),
        "vocab.": str(facts["vocabulary"]),
        "experts": f"{facts['experts_per_token']} of {experts}" if experts else "",
        "assumed": ", ".join(facts["assumed"]),
    }


def _framework_words(facts: Facts) -> dict[str, str]:
    return {
        "title": facts["title"],
        "version": facts["version"],
        "implementation": facts["implementation"],
        "schedules": ", ".join(facts["schedules"]),
        "ZeRO": ", ".join(map(str, facts["zero_stages"])),
        "export": "yes" if facts["exports"] else "",
    }


def _implementation_words(facts: Facts) -> dict[str, str]:
    return {"what": facts["description"]}


SPARE = ("aliases", "assumed", "implementation", "title")
"""Columns that a narrow terminal leaves out, the first first; the entry by its name has them."""
_WORDS: dict[str, Callable[[Facts], dict[str, str]]] = {
    "devices": _device_words, "clusters": _cluster_words, "models": _model_words, "frameworks": _framework_words,
    "implementations": _implementation_words,
}
