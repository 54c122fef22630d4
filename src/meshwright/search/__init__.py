"""Which layouts to look at, and which of them are best."""

from meshwright.search.compare import compare
from meshwright.search.cost import RunCost, run_cost
from meshwright.search.devices import DeviceCount, MinimumDevices, min_devices
from meshwright.search.legality import layout_refusals
from meshwright.search.linearity import linearity_of
from meshwright.search.plan import plan
from meshwright.search.result import Comparison, PlanResult, RankedPlan, SearchOptions

__all__ = [
    "Comparison",
    "DeviceCount",
    "MinimumDevices",
    "PlanResult",
    "RankedPlan",
    "RunCost",
    "SearchOptions",
    "compare",
    "layout_refusals",
    "linearity_of",
    "min_devices",
    "plan",
    "run_cost",
]
