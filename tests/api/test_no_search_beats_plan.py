"""No search of ours names a better layout than plan's first: not with fewer or more finalists, and not with its knobs pinned."""

from __future__ import annotations

import pytest

from meshwright.api import PlanRequest
from meshwright.api.cases import setup
from meshwright.api.fields import Faults
from meshwright.search.finding import find
from meshwright.search.ranking import TIE
from meshwright.search.result import SearchOptions

pytestmark = pytest.mark.usefixtures("alone")

LEAN, PINNED = {"lean": True}, ({"pp": "1"}, {"tp": "2"}, {"zero": "3"})
CASES = {
    "other chunks of a pipeline that is best once it is filled": (
        PlanRequest(model="qwen3-30b-a3b", device="h100-sxm", nodes=16, global_batch=128, sequence="4096", task="sft"),
        [(SearchOptions(top=1), LEAN)], 1e-9,
    ),
    "modules that bring in meshes far out of memory": (
        PlanRequest(model="llama3.1-405b", device="b200", nodes=16, global_batch=128, sequence="128k", task="lora"),
        [(SearchOptions(top=1, pins={"tp": "2"}), {})], TIE,
    ),
    "modules under more sharding": (
        PlanRequest(
            model="llama2-7b", device="v100-32g", nodes=2, global_batch=256, sequence="128k", task="lora", precision="fp16",
            framework="bridge",
        ),
        [(SearchOptions(top=40), {}), *((SearchOptions(top=1, pins=pins), {}) for pins in PINNED)], TIE,
    ),
    "modules that no leader has under a pin": (
        PlanRequest(model="llama3-70b", device="h200", nodes=6, global_batch=48, sequence="128k", calibration="none"),
        [(SearchOptions(top=1, pins={"tp": "2"}), {})], TIE,
    ),
}
"""A case, other searches of it, and how much better they may be: at most what plans of one shape are not told apart by."""


@pytest.mark.parametrize("name", CASES)
def test_plans_first_is_the_best_of_what_any_search_names(name):
    request, others, margin = CASES[name]
    faults = Faults()
    given = setup(request.read(faults), faults)

    def value(options, **more):
        found = find(given.case, given.framework.features, options, given.framework, able=True, **more)
        return found.plans[0].estimate.expected_step_s if found.plans else float("inf")

    assert value(SearchOptions()) <= min(value(options, **more) for options, more in others) * (1.0 + margin)


def test_what_is_listed_is_found_under_a_pin_that_it_has():
    request, ((pinned, _),), _ = CASES["modules that no leader has under a pin"]
    given = setup(request.read(faults := Faults()), faults)
    every, under = (find(given.case, given.framework.features, each, given.framework).plans for each in (SearchOptions(), pinned))
    alike = [plan for plan in every if plan.layout.tensor_parallel == 2]
    assert alike, "a plan of the list has what is pinned"
    assert under[0].estimate.expected_step_s <= alike[0].estimate.expected_step_s * (1.0 + TIE)
