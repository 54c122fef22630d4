"""What the launch that the files and the command line choose costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.check.context import finding
from meshwright.estimate.launching import launch_costs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.check.context import Context
    from meshwright.frameworks.settings import Finding

WORTH_SAYING = 0.02
"""Cost of a setting, as a share of the step, from which it is said."""


def launching(context: Context) -> Iterator[Finding]:
    """Each chosen setting of the launch that makes the step longer, dearest first."""
    case, layout, found = context.case, context.layout, context.estimate
    if case is None or layout is None or found is None or not case.launch.given:
        return
    chosen = [each for each in launch_costs(case, layout) if each.name in case.launch.given and each.cost_ratio >= WORTH_SAYING]
    for each in sorted(chosen, key=lambda cost: -cost.cost_ratio):
        yield finding(
            "advice", f"check.launch-{each.name}", "{name}={value} makes the step {change} longer than {name}={expected}",
            value=each.value, expected=each.best, name=each.name, change=f"{each.cost_ratio:.0%}", path="launch",
            source=f"prediction, calibration {found.calibration}",
        )
