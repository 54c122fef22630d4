"""What the launch that the files and the command line choose costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.check.context import finding
from meshwright.estimate.launching import launch_costs
from meshwright.words import percent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.check.context import Context
    from meshwright.frameworks.settings import Finding

WORTH_SAYING = 0.02
"""Cost of a setting, as a share of the step, from which it is said."""


NO_CHOICE = frozenset({"routing"})
"""Settings whose cheapest value no training run may have: how tokens are routed is the router's to learn."""


def launching(context: Context) -> Iterator[Finding]:
    """Each chosen setting of the launch that makes the step longer, dearest first; routing that is forced is for benchmarks."""
    case, layout, found = context.case, context.layout, context.estimate
    if case is None or layout is None or found is None or not case.launch.given:
        return
    given = case.launch.given - NO_CHOICE
    if "routing" in case.launch.given and case.training.balanced_routing:
        yield finding(
            "warning", "check.forced-routing",
            "tokens go to experts evenly by force, whatever the router says: for benchmarks alone, no router learns by it",
            path="launch",
        )
    chosen = [each for each in launch_costs(case, layout) if each.name in given and each.cost_ratio >= WORTH_SAYING]
    for each in sorted(chosen, key=lambda cost: -cost.cost_ratio):
        yield finding(
            "advice", f"check.launch-{each.name}", "{name}={value} makes the step {change} longer than {name}={expected}",
            value=each.value, expected=each.best, name=each.name, change=percent(each.cost_ratio, 0), path="launch",
            source=f"prediction, calibration {found.calibration}",
        )
