"""``meshwright catalog runs``: what others got."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.api import numbers
from meshwright.api.fields import Faults, Field, Values, one_of
from meshwright.errors import did_you_mean, fault

if TYPE_CHECKING:
    from meshwright.evidence.rows.near import Wanted
    from meshwright.evidence.rows.published import Published

LIMIT = 10
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


def listing(values: Values, faults: Faults) -> int:
    """The runs nearest to what was asked, or all of them."""
    from meshwright.api.views.estimates import plain
    from meshwright.api.views.runs import attempts_view, run_view
    from meshwright.cli.output import print_json, print_report
    from meshwright.evidence.rows.attempts import attempts
    from meshwright.evidence.rows.near import nearest
    from meshwright.report.runs import attempts_list, nearest_list

    limit = values.get("limit")
    if not any(name in values for name in QUESTION):
        faults.check()
        found = sorted(attempts(), key=lambda each: _order(each.best))
        if values["json"]:
            print_json({"kind": "runs", "total": len(found), "entries": [attempts_view(cell) for cell in found[:limit]]})
        else:
            print_report(attempts_list(found, limit))
        return 0
    wanted = _wanted(values, faults)
    near = nearest(wanted, limit or LIMIT)
    if values["json"]:
        entries = [run_view(each) for each in near]
        print_json({"kind": "runs", "near": plain(wanted), "total": len(attempts()), "entries": entries})
    else:
        print_report(nearest_list(near, len(attempts())))
    return 0


def single(values: Values, faults: Faults) -> int:
    """One row in full, by its id: our figures, then every column that its source filled."""
    from meshwright.api.views.runs import published_view
    from meshwright.cli.output import print_json, print_report
    from meshwright.evidence.rows.attempts import attempt_key, attempts, cells_of, corpus
    from meshwright.evidence.rows.published import published
    from meshwright.report.facts import entry

    faults.check()
    name = values["name"]
    rows = corpus()
    row = next((each for each in rows if each.id.lower() == name.lower()), None)
    if row is None:
        near = did_you_mean(name, (cell.best.id for cell in attempts())) or "; the corpus has ids such as playbook-1128"
        raise fault("catalog.run", "no published run has the id {name!r}{hint}", name=name, hint=near)
    same = [each for each in rows if attempt_key(each) == attempt_key(row) and not each.flag]
    columns = {column: cell for column, cell in cells_of(row.id).items() if cell and column not in {"id", "source"}}
    failed = sum(each.status == "failed" for each in same)
    facts = {
        "name": row.id, "status": row.status,
        **{key: value for key, value in published_view(published(row)).items() if key != "id"},
        "tried": len(same), "ran": len(same) - failed, "failed": failed, "published": columns,
    }
    if values["json"]:
        print_json({"kind": "runs", "name": row.id, "facts": facts, "sources": {"source": {"source": row.source}}})
    else:
        print_report(entry("run", row.id, {key: value for key, value in facts.items() if value is not None}, {}))
    return 0


def _wanted(values: Values, faults: Faults) -> Wanted:
    """What is asked about, from the options; every fault at once."""
    from meshwright import catalog
    from meshwright.catalog.recipes import precision
    from meshwright.evidence.rows.near import Wanted, on_device, wanted_model
    from meshwright.frameworks import framework

    found: dict[str, Any] = {"precision": values.get("precision", "bf16"), "task": values.get("task", "pretrain")}
    wanted = Wanted()
    with faults:
        wanted = wanted_model(values["near"]) if "near" in values else wanted
    with faults:
        precision(found["precision"])
    with faults:
        if "framework" in values:
            found["family"] = catalog.implementation(framework(values["framework"]).implementation).family
    if "nodes" in values and "device" not in values:
        faults.add("catalog.nodes", "--nodes needs --device: how many devices a node has", path="--nodes")
    elif "device" in values:
        with faults:
            wanted = on_device(wanted, catalog.device(values["device"]))
        with faults:
            size = {"num_devices": values.get("devices"), "nodes": values.get("nodes")}
            if any(size.values()):
                found["devices"] = catalog.cluster_for(values["device"], **size).num_devices
    faults.check()
    named = {"devices": "devices", "sequence": "sequence_tokens", "global_batch": "global_batch_sequences"}
    found |= {field: values[name] for name, field in named.items() if name in values and field not in found}
    return replace(wanted, **found)


def _order(run: Published) -> tuple[str, str, int, str]:
    """A list stands by model, device, number of devices."""
    return run.model.lower(), run.device, run.devices or 0, run.id
