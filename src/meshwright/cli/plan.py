"""``meshwright plan``: its options and its report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from meshwright.api.options import JSON
from meshwright.api.verbs.plan import PlanAnswer, PlanRequest, plan

if TYPE_CHECKING:
    from collections.abc import Iterator

EPILOG = "Example: meshwright plan llama3-70b --device h100-sxm --nodes 64 --global-batch 1024 --sequence 8192"
FIELDS = (*PlanRequest.FIELDS, JSON)
REQUEST, ASK = PlanRequest, plan


def report(answer: PlanAnswer, _options: object) -> Iterator[Any]:
    """Plans, then what was asked about the first."""
    from meshwright.report.compare import comparison_report
    from meshwright.report.cost import minimum_lines, run_cost_lines, saved_lines
    from meshwright.report.guided import guided_report
    from meshwright.report.packing import packing_lines
    from meshwright.report.plan import plan_report

    yield from plan_report(answer.given.case, answer.result, answer.closest)
    if answer.given.samples is not None:
        best = answer.result.plans[0].estimate if answer.ok else None
        yield from packing_lines(answer.given.samples.figures(), answer.given.case.batch, best, answer.tried)
    if answer.comparison is not None:
        yield from comparison_report(answer.comparison)
    if answer.guided is not None:
        yield from guided_report(answer.guided, answer.result.plans[0].estimate)
    if answer.run is not None:
        yield from run_cost_lines(answer.run, answer.result.plans[0].estimate)
    if answer.min_devices is not None:
        yield from minimum_lines(answer.min_devices)
    if answer.saved is not None:
        yield from saved_lines(answer.saved)
