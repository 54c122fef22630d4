"""``meshwright catalog``: the facts, with their sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.api.fields import Faults, Field, Values, one_of
from meshwright.api.options import JSON
from meshwright.cli import catalog_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

KINDS = ("devices", "clusters", "models", "frameworks", "implementations", "runs")
EPILOG = (
    "Example: meshwright catalog devices h100-sxm, "
    "or meshwright catalog runs --near llama3-70b --device h100-sxm --nodes 8 --sequence 8192"
)
FIELDS = (
    Field(name="kind", kind="argument", metavar="KIND", parse=one_of(*KINDS), help=", ".join(KINDS)),
    Field(name="name", kind="argument", metavar="NAME", help="One entry, with every figure and its source."),
    *catalog_runs.FIELDS,
    JSON,
)


def run(values: Values, faults: Faults) -> int:
    """List a kind, or show one entry."""
    if "kind" not in values and not faults.messages:
        faults.add("catalog.kind", "KIND is missing: one of {kinds}", kinds=", ".join(KINDS))
    kind, single = values.get("kind"), "name" in values
    for name in catalog_runs.NAMES:
        if name in values and (kind != "runs" or single):
            option = f"--{name.replace('_', '-')}"
            faults.add("catalog.option", "{option} belongs to `catalog runs` without a NAME", path=option, option=option)
    if kind == "runs":
        return (catalog_runs.single if single else catalog_runs.listing)(values, faults)
    faults.check()
    return _entry(values) if single else _list(values)


def _list(values: Values) -> int:
    """All entries of a kind: numbers in base units as JSON, words in a table."""
    from meshwright.cli.output import print_json, print_report

    kind = values["kind"]
    names, show, facts = _tables()[kind]
    rows = [{"name": name, **facts(show(name))} for name in names()]
    if values["json"]:
        print_json({"kind": kind, "entries": rows})
    else:
        from meshwright.report.entries import words
        from meshwright.report.facts import name_list

        print_report(name_list(kind, [words(kind, row) for row in rows]))
    return 0


def _entry(values: Values) -> int:
    """One entry with every figure and its source."""
    from meshwright.api.views.estimates import plain
    from meshwright.cli.output import print_json, print_report
    from meshwright.report.entries import framework_facts, without_samples
    from meshwright.report.facts import entry

    kind = values["kind"]
    item = _tables()[kind][1](values["name"])
    sources = _sources(kind, values["name"])
    if kind == "frameworks":
        facts = plain(framework_facts(item))
    else:
        facts = {key: value for key, value in plain(item).items() if value is not None}
    if values["json"]:
        print_json({"kind": kind, "name": values["name"], "facts": facts, "sources": plain(sources)})
    else:
        print_report(entry(kind.removesuffix("s"), values["name"], without_samples(facts), plain(sources)))
    return 0


def _tables() -> dict[str, tuple[Callable[[], Any], Callable[[str], Any], Callable[[Any], dict[str, Any]]]]:
    """Kind -> its names, one entry, and what a list says of an entry."""
    from meshwright import catalog, frameworks
    from meshwright.catalog.implementations import implementation, implementations
    from meshwright.report import entries

    return {
        "devices": (catalog.devices, catalog.device, entries.device),
        "clusters": (catalog.clusters, catalog.load_cluster, entries.cluster),
        "models": (catalog.models, catalog.load_model, entries.model),
        "frameworks": (frameworks.frameworks, frameworks.framework, entries.framework),
        "implementations": (implementations, implementation, entries.implementation),
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
