"""``balance --guide``: which dry runs determine the memories of layers; ``balance DRY_RUNS`` alone: what they come to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.api.fields import Faults, Values
    from meshwright.readers.sapp import InitFile

DEFAULT_KINDS = ("full",)


def guide(values: Values, faults: Faults) -> int:
    """Print the dry runs to make; peaks of a file count, and say stages and layers."""
    from meshwright.api.views.decomposition import guide_view
    from meshwright.cli.output import print_json, print_report
    from meshwright.report.decomposition import guide_report
    from meshwright.search.balance.probes import questions

    known = _known(values, faults)
    stages: int | None = values.get("stages", known.stages if known else None)
    layers: int | None = values.get("layers", known.layers if known else None)
    for name, value in (("stages", stages), ("layers", layers)):
        if value is None and name not in faults.failed:
            faults.add("balance.missing", "--{name} is missing", name=name)
    faults.check()
    assert stages is not None and layers is not None, "faults.check() raises where one is missing"
    occurring = tuple(name for name in known.runs.treatments if name != "none") if known else DEFAULT_KINDS
    proposal = questions(
        stages=stages, layers=layers, treatments=values.get("recompute_kinds", occurring), known=known.runs if known else None,
        microbatches=values.get("microbatches"),
    )
    if values["json"]:
        print_json(guide_view(proposal))
    else:
        print_report(guide_report(proposal))
    return 0


def memories(values: Values, faults: Faults) -> int:
    """Print what the peaks of dry runs say of the memories of layers."""
    from meshwright.api.views.decomposition import decomposition_view
    from meshwright.cli.output import print_json, print_report
    from meshwright.report.balance import notes_report
    from meshwright.report.decomposition import decomposition_report
    from meshwright.search.balance.decompose import decompose

    faults.check()
    runs = _known(values, faults)
    faults.check()
    assert runs is not None, "faults.check() raises where it could not be read"
    found = decompose(runs.runs, force=values["force"])
    notes = [str(each) for each in (*runs.remarks, *found.warnings)]
    if values["json"]:
        print_json({"decomposition": decomposition_view(found), "notes": notes})
    else:
        print_report(notes_report(notes))
        print_report(decomposition_report(found))
    return 0


def _known(values: Values, faults: Faults) -> InitFile | None:
    """Dry runs that were made already."""
    from meshwright.readers.sapp import read_init_file

    if "model" not in values:
        return None
    with faults:
        return read_init_file(values["model"])
    return None
