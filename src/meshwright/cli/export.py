"""``meshwright export``: a plan as the files of a framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.cli.fields import Faults, Field, Values
from meshwright.cli.options import JSON
from meshwright.cli.request import Setup, setup

if TYPE_CHECKING:
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout

EPILOG = "Example: meshwright export run/plan.yaml --to megatron --out run"
FIELDS = (
    Field(name="plan", kind="argument", metavar="PLAN", help="A plan.yaml that `plan --save` wrote, or its directory."),
    Field(name="to", metavar="NAME[@VERSION]", panel="Output", help="The framework to write for."),
    Field(name="out", metavar="DIR", panel="Output", help="Where to write the files."),
    Field(name="force", kind="flag", panel="Output", help="Overwrite files that were changed."),
    JSON,
)


def run(values: Values, faults: Faults) -> int:
    """Write the files and print their paths."""
    from meshwright import plan
    from meshwright.cli.files import write_files
    from meshwright.cli.output import print_json
    from meshwright.cli.saved import load_plan

    for name, what in (("plan", "PLAN"), ("to", "--to"), ("out", "--out")):
        if name not in values and name not in faults.failed:
            faults.add("export.missing", "{what} is missing", what=what)
    faults.check()
    name, _, version = values["to"].partition("@")
    saved = {**load_plan(values["plan"], faults), "framework": name}
    given = setup(saved, faults)
    layout = given.layout(saved["layout"])
    estimate = plan.estimate(given.case, layout)
    files = launch_files(given, layout, estimate, version or None)
    paths = write_files(values["out"], files, force=values["force"])
    if values["json"]:
        print_json({"files": paths})
    else:
        print("\n".join(paths))
    return 0


def launch_files(given: Setup, layout: Layout, estimate: Estimate, version: str | None) -> list[Any]:
    """The framework's files for a layout, with the predicted figures quoted in them."""
    from meshwright.frameworks import Options

    options = Options(estimate=estimate, label=estimate.label)
    return list(given.framework.write(given.case, layout, version=version, options=options))
