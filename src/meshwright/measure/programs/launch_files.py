"""A trial of a framework's own launch files, as ``export`` writes them, with few steps and nothing kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.errors import fault
from meshwright.frameworks.base import Options
from meshwright.measure.trial import Limits, Trial

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Framework
    from meshwright.measure.chooser import Candidate

SCRIPTS = ("train.sh", "launch.sh")
"""What the launch script of a framework is called."""


def framework_trial(framework: Framework, case: Case, candidate: Candidate, *, steps: int, limits: Limits) -> Trial:
    """The files of a layout and the script that starts them on each node.

    Errors:  InputError with every reason where the framework cannot run the layout.
    """
    layout, cluster = candidate.layout, case.cluster
    files = framework.write(case, layout, options=Options(label=candidate.label, train_iters=steps, is_probe=True))
    script = next((name for name in SCRIPTS if any(file.path == name for file in files)), None)
    if script is None:
        raise fault("program.script", "{title} writes no launch script: give one of your own with --template", path="--framework",
                    title=framework.title)
    per_node = min(layout.world, cluster.devices_per_node)
    return Trial(
        label=candidate.label, command=("bash", script), files=files, devices=layout.world, nodes=-(-layout.world // per_node),
        devices_per_node=per_node, accelerators=cluster.device.family != "cpu", limits=limits, steps=steps,
        environment={"TRAIN_ITERS": str(steps)},
    )
