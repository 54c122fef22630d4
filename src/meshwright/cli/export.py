"""``meshwright export``: a plan as the files of a framework, new ones or the user's own with another layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.api.cases import setup
from meshwright.api.fields import Faults, Field, Values
from meshwright.api.options import JSON

if TYPE_CHECKING:
    pass

EPILOG = "Example: meshwright export run/plan.yaml --to megatron@0.16 --out run"
FIELDS = (
    Field(name="plan", kind="argument", metavar="PLAN", help="A plan.yaml that `plan --save` wrote, or its directory."),
    Field(name="to", metavar="NAME[@VERSION]", panel="Output", help="The framework to write for."),
    Field(name="out", metavar="DIR", panel="Output", help="Where to write the files."),
    Field(name="onto", kind="many", metavar="FILE", panel="Output",
          help="Change this file of yours instead, repeatable: only what the plan decides; the copy goes to DIR."),
    Field(name="force", kind="flag", panel="Output", help="Overwrite files that were changed."),
    JSON,
)


def run(values: Values, faults: Faults) -> int:
    """Write the files and print their paths; with ``--onto`` also what was changed."""
    from meshwright.api.files import write_files
    from meshwright.api.launch_files import launch_files
    from meshwright.api.saved import load_plan
    from meshwright.cli.output import print_json
    from meshwright.estimate import estimate as predict

    for name, what in (("plan", "PLAN"), ("to", "--to"), *([] if values["onto"] else [("out", "--out")])):
        if name not in values and name not in faults.failed:
            faults.add("export.missing", "{what} is missing", what=what)
    faults.check()
    saved = {**load_plan(values["plan"], faults), "framework": values["to"]}
    given = setup(saved, faults)
    layout = given.layout(saved["layout"])
    if values["onto"]:
        from meshwright.cli.onto import change

        return change(given, layout, values)
    estimate = predict(given.case, layout)
    paths = write_files(values["out"], launch_files(given, layout, estimate), force=values["force"])
    if values["json"]:
        print_json({"files": paths})
    else:
        print("\n".join(paths))
    return 0
