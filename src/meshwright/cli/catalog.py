"""``meshwright catalog``: the facts, with their sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.cli.fields import Faults, Field, Values, one_of
from meshwright.cli.options import JSON
from meshwright.units import GIGA, TERA

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

KINDS = ("devices", "clusters", "models", "frameworks", "implementations")
EPILOG = "Example: meshwright catalog devices h100-sxm"
FIELDS = (
    Field(name="kind", kind="argument", metavar="KIND", parse=one_of(*KINDS), help=", ".join(KINDS)),
    Field(name="name", kind="argument", metavar="NAME", help="One entry, with every figure and its source."),
    JSON,
)


def run(values: Values, faults: Faults) -> int:
    """List a kind, or show one entry."""
    from meshwright.cli.output import print_json, print_report

    if "kind" not in values and not faults.messages:
        faults.add("catalog.kind", "KIND is missing: one of {kinds}", kinds=", ".join(KINDS))
    faults.check()
    kind = values["kind"]
    names, show, row = _tables()[kind]
    if "name" in values:
        item = show(values["name"])
        sources = _sources(kind, values["name"])
        from meshwright.report.facts import entry
        from meshwright.report.view import plain

        facts = {key: value for key, value in plain(item).items() if value is not None and key != "writer"}
        if kind == "frameworks":
            facts["limits"] = {limit.id: limit.words for limit in item.limits}
        if values["json"]:
            print_json({"kind": kind, "name": values["name"], "facts": facts, "sources": plain(sources)})
        else:
            print_report(entry(kind.removesuffix("s"), values["name"], facts, plain(sources)))
        return 0
    rows = [{"name": name, **row(show(name))} for name in names()]
    if values["json"]:
        print_json({"kind": kind, "entries": rows})
    else:
        from meshwright.report.facts import name_list

        print_report(name_list(kind, rows))
    return 0


def _tables() -> dict[str, tuple[Callable[[], Any], Callable[[str], Any], Callable[[Any], dict[str, str]]]]:
    """Kind -> its names, one entry, and the row of an entry."""
    from meshwright import catalog, frameworks
    from meshwright.catalog.implementations import implementation, implementations

    return {
        "devices": (catalog.devices, catalog.device, _device_row),
        "clusters": (catalog.clusters, catalog.load_cluster, _cluster_row),
        "models": (catalog.models, catalog.load_model, _model_row),
        "frameworks": (frameworks.frameworks, frameworks.framework, _framework_row),
        "implementations": (implementations, implementation, lambda item: {"what": item.description}),
    }


def _sources(kind: str, name: str) -> Mapping[str, Any]:
    """Where each figure of an entry comes from."""
    from meshwright import catalog

    match kind:
        case "devices":
            return catalog.provenance("device", name)
        case "clusters":
            return catalog.provenance("cluster", name)
        case "models":
            return catalog.provenance("model", name)
        case _:
            return {}


def _device_row(device: Any) -> dict[str, str]:
    """A device in one line."""
    peaks = device.peak_flops_per_s
    return {
        "family": device.family,
        "memory_gib": f"{device.memory_bytes / 2**30:.0f}",
        "memory_gb_per_s": f"{device.memory_bytes_per_s / GIGA:,.0f}",
        "scale_up_gb_per_s": f"{device.scale_up_bytes_per_s / GIGA:,.0f}",
        "dense_tflops": ", ".join(f"{name} {peak / TERA:,.4g}" for name, peak in peaks.items() if name != "fp32"),
        "aliases": ", ".join(device.aliases),
    }


def _cluster_row(cluster: Any) -> dict[str, str]:
    """A cluster in one line."""
    return {
        "device": cluster.device.name,
        "devices_per_node": str(cluster.devices_per_node),
        "scale_up_devices": str(cluster.scale_up_devices),
        "scale_up_gb_per_s": f"{cluster.scale_up.bytes_per_s / GIGA:,.0f}",
        "network_gb_per_s": f"{cluster.network.bytes_per_s / GIGA:,.4g}",
    }


def _model_row(model: Any) -> dict[str, str]:
    """A model in one line."""
    from meshwright.perf.parameters import active_parameters, total_parameters
    from meshwright.units import count

    experts = model.experts
    return {
        "parameters": count(total_parameters(model)),
        "active": count(active_parameters(model)) if experts else "",
        "layers": str(model.num_layers),
        "hidden": str(model.hidden),
        "vocabulary": str(model.vocabulary),
        "experts": f"{experts.experts_per_token} of {experts.num_experts}" if experts else "",
        "assumed": ", ".join(model.assumed),
    }


def _framework_row(framework: Any) -> dict[str, str]:
    """A framework in one line."""
    return {
        "title": framework.title,
        "version": framework.version,
        "implementation": framework.implementation,
        "schedules": ", ".join(framework.features.schedules),
        "zero": ", ".join(map(str, framework.features.zero_stages)),
        "export": "yes" if framework.writer is not None else "",
    }
