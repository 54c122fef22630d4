"""Published runs: which ones are near to what somebody asks, and one in full."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.api import numbers
from meshwright.api.fields import Faults, Field, Values, one_of
from meshwright.errors import fault, nearest

if TYPE_CHECKING:
    from meshwright.evidence.rows.attempts import Attempts
    from meshwright.evidence.rows.near import Wanted
    from meshwright.evidence.rows.published_run import Published

_PANEL = "Published runs near a case (catalog runs)"
FIELDS = (
    Field(name="near", metavar="MODEL", panel=_PANEL, help="A model by name or file, or a size such as 8B."),
    Field(name="device", metavar="NAME", panel=_PANEL, help="The device that it is to run on."),
    Field(name="nodes", parse=numbers.count, metavar="N", panel=_PANEL, help="Number of nodes of that device."),
    Field(name="devices", parse=numbers.count, metavar="N", panel=_PANEL, help="Number of devices, instead of nodes."),
    Field(name="sequence", parse=numbers.sequence, metavar="TOKENS", panel=_PANEL, help="Tokens of a sequence."),
    Field(name="global_batch", parse=numbers.count, metavar="N", panel=_PANEL, help="Sequences per optimizer step."),
    Field(name="task", parse=one_of("pretrain", "sft", "lora"), metavar="pretrain|sft|lora", panel=_PANEL,
          help="What is trained [default: pretrain]."),
    Field(name="precision", metavar="NAME", panel=_PANEL, help="The precision recipe [default: bf16]."),
    Field(name="framework", metavar="NAME", panel=_PANEL, help="Prefer runs of this framework's family."),
    Field(name="limit", parse=numbers.count, metavar="N", panel=_PANEL, help="How many to list [default: 10]."),
)
NAMES = tuple(field.name for field in FIELDS)
QUESTION = tuple(name for name in NAMES if name != "limit")


def every() -> list[Attempts]:
    """All runs, the fastest of each cell, by model, device and number of devices."""
    from meshwright.evidence.rows.attempts import attempts

    return sorted(attempts(), key=lambda each: _order(each.best))


def in_full(name: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """One row by its id: the id, our figures with every column that its source filled, and the source.

    Errors:  ``InputError`` for an id that no row has.
    """
    from meshwright.api.views.runs import published_view
    from meshwright.evidence.rows.attempts import attempt_key, attempts, cells_of, corpus
    from meshwright.evidence.rows.published import published

    rows = corpus()
    row = next((each for each in rows if each.id.lower() == name.lower()), None)
    if row is None:
        near = nearest(name, [cell.best.id for cell in attempts()], "meshwright catalog runs --limit 1000")
        raise fault("catalog.run", "no published run has the id {name!r}{hint}", name=name, hint=near)
    same = [each for each in rows if attempt_key(each) == attempt_key(row) and not each.flag]
    columns = {column: cell for column, cell in cells_of(row.id).items() if cell and column not in {"id", "source"}}
    failed = sum(each.status == "failed" for each in same)
    facts = {
        "name": row.id, "status": row.status,
        **{key: value for key, value in published_view(published(row)).items() if key != "id"},
        "tried": len(same), "ran": len(same) - failed, "failed": failed, "published": columns,
    }
    return row.id, facts, {"source": {"source": row.source}}


def wanted(values: Values, faults: Faults) -> Wanted:
    """What is asked about, from the options; every fault at once."""
    from meshwright.catalog import cluster_for, device, implementation
    from meshwright.catalog.recipes import precision
    from meshwright.evidence.rows.near import Wanted, on_device, wanted_model
    from meshwright.frameworks import framework

    found: dict[str, Any] = {"precision": values.get("precision", "bf16"), "task": values.get("task", "pretrain")}
    question = Wanted()
    with faults.at("near"):
        question = wanted_model(values["near"]) if "near" in values else question
    with faults.at("precision"):
        precision(found["precision"])
    with faults.at("framework"):
        if "framework" in values:
            found["family"] = implementation(framework(values["framework"]).implementation).family
    if "nodes" in values and "device" not in values:
        faults.add("catalog.nodes", "--nodes needs --device: how many devices a node has", path="--nodes")
    elif "device" in values:
        with faults.at("device"):
            question = on_device(question, device(values["device"]))
        with faults.at("device"):
            size = {"num_devices": values.get("devices"), "nodes": values.get("nodes")}
            if any(size.values()):
                found["devices"] = cluster_for(values["device"], **size).num_devices
    faults.check()
    named = {"devices": "devices", "sequence": "sequence_tokens", "global_batch": "global_batch_sequences"}
    found |= {field: values[name] for name, field in named.items() if name in values and field not in found}
    return replace(question, **found)


def _order(run: Published) -> tuple[str, str, int, str]:
    """A list stands by model, device, number of devices."""
    return run.model.lower(), run.device, run.devices or 0, run.id
