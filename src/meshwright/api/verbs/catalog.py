"""``catalog``: devices, clusters, models, frameworks, implementations, published runs; each figure with its source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec import field

from meshwright.api import published_runs
from meshwright.api.door import door
from meshwright.api.fields import Faults, Field, Values, one_of
from meshwright.api.request import Answer, Progress, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from meshwright.evidence.rows.attempts import Attempts
    from meshwright.evidence.rows.near import Near, Wanted

KINDS = ("devices", "clusters", "models", "frameworks", "implementations", "runs")
LIMIT = 10


class CatalogRequest(Request, frozen=True, kw_only=True):
    """A kind of entries, one of them by name, or published runs near a case."""

    FIELDS: ClassVar[tuple[Field, ...]] = (
        Field(name="kind", kind="argument", metavar="KIND", parse=one_of(*KINDS), help=", ".join(KINDS)),
        Field(name="name", kind="argument", metavar="NAME", help="One entry, with every figure and its source."),
        *published_runs.FIELDS,
    )

    kind: str | None = None
    name: str | None = None
    near: str | Path | None = None
    device: str | None = None
    nodes: int | str | None = None
    devices: int | str | None = None
    sequence: int | str | None = None
    global_batch: int | str | None = None
    task: str | None = None
    precision: str | None = None
    framework: str | None = None
    limit: int | str | None = None


class CatalogAnswer(Answer, frozen=True, kw_only=True):
    """What the catalogue holds."""

    kind: str

    def to_json(self) -> dict[str, Any]:
        """The document of ``catalog --json``."""
        return {"kind": self.kind}


class EntriesAnswer(CatalogAnswer, frozen=True, kw_only=True):
    """All entries of a kind."""

    entries: list[dict[str, Any]]

    def to_json(self) -> dict[str, Any]:
        """Entries in base units."""
        return {"kind": self.kind, "entries": self.entries}


class EntryAnswer(CatalogAnswer, frozen=True, kw_only=True):
    """One entry with every figure and its source."""

    name: str
    facts: dict[str, Any]
    sources: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Facts and sources by figure."""
        return {"kind": self.kind, "name": self.name, "facts": self.facts, "sources": self.sources}


class RunsAnswer(CatalogAnswer, frozen=True, kw_only=True):
    """All published runs, the fastest of each cell."""

    cells: list[Attempts]
    limit: int | None

    def to_json(self) -> dict[str, Any]:
        """Runs by their figures."""
        from meshwright.api.views.runs import attempts_view

        return {"kind": "runs", "total": len(self.cells), "entries": [attempts_view(cell) for cell in self.cells[: self.limit]]}


class NearestAnswer(CatalogAnswer, frozen=True, kw_only=True):
    """The published runs nearest to a question."""

    wanted: Wanted
    found: list[Near]
    total: int

    def to_json(self) -> dict[str, Any]:
        """Runs with what differs."""
        from meshwright.api.views.estimates import plain
        from meshwright.api.views.runs import run_view

        return {"kind": "runs", "near": plain(self.wanted), "total": self.total, "entries": [run_view(each) for each in self.found]}


@door
def catalog(request: CatalogRequest, *, progress: Progress | None = None) -> CatalogAnswer:
    """List a kind, or show one entry.

    Errors:  ``InputError`` with every fault of the request, and for an unknown name.
    """
    faults = Faults()
    values = request.read(faults)
    if "kind" not in values and not faults.messages:
        faults.add("catalog.kind", "KIND is missing: one of {kinds}", kinds=", ".join(KINDS))
    kind, single = values.get("kind"), "name" in values
    for name in published_runs.NAMES:
        if name in values and (kind != "runs" or single):
            option = f"--{name.replace('_', '-')}"
            faults.add("catalog.option", "{option} belongs to `catalog runs` without a NAME", path=option, option=option)
    if kind == "runs" and not single and any(name in values for name in published_runs.QUESTION):
        return _nearest(values, faults)
    if faults.messages and single and kind is not None:
        with faults.at("name"):
            _entry(values) if kind != "runs" else published_runs.in_full(values["name"])
    faults.check()
    if kind == "runs" and not single:
        return RunsAnswer(kind="runs", cells=published_runs.every(), limit=values.get("limit"))
    if kind == "runs":
        name, facts, sources = published_runs.in_full(values["name"])
        return EntryAnswer(kind="runs", name=name, facts=facts, sources=sources)
    return _entry(values) if single else _list(values)


def _nearest(values: Values, faults: Faults) -> NearestAnswer:
    """The runs nearest to what was asked."""
    from meshwright.evidence.rows.attempts import attempts
    from meshwright.evidence.rows.near import nearest

    wanted = published_runs.wanted(values, faults)
    found = nearest(wanted, values.get("limit") or LIMIT)
    return NearestAnswer(kind="runs", wanted=wanted, found=list(found), total=len(attempts()))


def _list(values: Values) -> EntriesAnswer:
    """All entries of a kind."""
    names, show, facts = _tables()[values["kind"]]
    return EntriesAnswer(kind=values["kind"], entries=[{"name": name, **facts(show(name))} for name in names()])


def _entry(values: Values) -> EntryAnswer:
    """One entry with every figure and its source."""
    from meshwright.api.views.entries import framework_facts
    from meshwright.api.views.estimates import plain

    kind = values["kind"]
    item = _tables()[kind][1](values["name"])
    if kind == "frameworks":
        facts = plain(framework_facts(item))
    else:
        facts = {key: value for key, value in plain(item).items() if value is not None}
    return EntryAnswer(kind=kind, name=values["name"], facts=facts, sources=plain(_sources(kind, values["name"])))


def _tables() -> dict[str, tuple[Callable[[], Any], Callable[[str], Any], Callable[[Any], dict[str, Any]]]]:
    """Kind -> its names, one entry, and what a list says of an entry."""
    from meshwright import frameworks
    from meshwright.api.views import entries
    from meshwright.catalog import clusters, load_cluster, load_model, models
    from meshwright.catalog import device as device_named
    from meshwright.catalog import devices as device_names
    from meshwright.catalog.implementations import implementation, implementations

    return {
        "devices": (device_names, device_named, entries.device),
        "clusters": (clusters, load_cluster, entries.cluster),
        "models": (models, load_model, entries.model),
        "frameworks": (frameworks.frameworks, frameworks.framework, entries.framework),
        "implementations": (implementations, implementation, entries.implementation),
    }


def _sources(kind: str, name: str) -> Mapping[str, Any]:
    """Where each figure of an entry comes from."""
    from meshwright.catalog import provenance

    match kind:
        case "devices":
            return provenance("device", name)
        case "clusters":
            return provenance("cluster", name)
        case "models":
            return provenance("model", name)
        case _:
            return {}
