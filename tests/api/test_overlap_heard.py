"""A layout's JSON names the overlap that its label names: of replicas that a model has not, neither says a word."""

from __future__ import annotations

import pytest

from meshwright.api import EstimateRequest, PlanRequest, estimate, plan
from meshwright.api.cases import setup
from meshwright.api.fields import Faults

CASE = {"device": "a100-80g-sxm", "nodes": 1, "global_batch": 360, "sequence": 4096, "framework": "picotron"}


def test_a_plan_of_one_replica_hears_what_its_label_says() -> None:
    best = plan(PlanRequest(model="llama2-13b", **CASE)).to_json()["plans"][0]
    again = estimate(EstimateRequest(model="llama2-13b", layout=best["label"], **CASE)).to_json()
    assert best["layout"] == best["estimate"]["layout"] == again["layout"]
    assert "grad" not in again["layout"]["overlap"], "one replica adds nothing up"


@pytest.mark.parametrize(("model", "words"), [("llama3-8b", "tp2 pp2 dp2 mb1 sp zero0"), ("mixtral-8x7b", "tp8 dp1 mb1 sp zero0")])
def test_replicas_of_layers_and_of_experts_are_heard(model: str, words: str) -> None:
    case = CASE | {"framework": "megatron"}
    assert "grad" in estimate(EstimateRequest(model=model, layout=f"{words} overlap=grad", **case)).to_json()["layout"]["overlap"]


@pytest.mark.parametrize("framework", ["megatron", "chatlearn", "nanotron", "torchtitan"])
@pytest.mark.parametrize("degrees", ["tp8 dp1", "tp4 pp2 dp1", "pp8 dp1"])
def test_words_of_overlap_that_nothing_hears_change_no_layout(framework, degrees):
    """One replica of a dense model gathers and reduces nothing: whatever is typed of it, or nothing, is one layout."""
    case = setup({"model": "llama3-8b", **CASE, "framework": framework}, Faults())
    words = ["p2p"] if "pp" in degrees else []
    own = case.framework.overlap(case.case, case.layout(f"{degrees} mb1"))
    heard = [word for word in words if own.point_to_point]
    typed = [[*heard, *more] for more in ([], ["grad"], ["param"], ["grad", "param"], ["ep"])]
    found = {case.layout(f"{degrees} mb1 overlap={','.join(each) or 'none'}") for each in typed}
    assert found == {case.layout(f"{degrees} mb1")}
