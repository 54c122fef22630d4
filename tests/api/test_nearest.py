"""The nearest plan of another framework: knobs are counted, not keys, and what is far faster is said."""

from __future__ import annotations

import pytest

import meshwright as mw
from meshwright.api.cases import setup
from meshwright.api.fields import Faults
from meshwright.api.nearest import FAR, nearest_plan
from meshwright.report.edits import nearest_report

CASES = {
    "llama3-70b": ({"nodes": 8, "global_batch": 256, "sequence": 8192}, "tp4 cp2 pp8 dp1 mb1 sp zero1"),
    "llama2-13b": ({"nodes": 2, "global_batch": 512, "sequence": 4096, "task": "sft"}, "tp1 pp4 dp4 mb1 zero1"),
}


@pytest.mark.parametrize("to", ["deepspeed", "accelerate"])
@pytest.mark.parametrize("model", CASES)
def test_the_nearest_is_the_fastest_of_as_few_knobs_and_what_is_far_faster_is_said(model, to):
    """A ZeRO stage moves three keys of the layout: by keys, tp64 of DeepSpeed at 261 s was nearer than ZeRO-3 at 46 s."""
    options, label = CASES[model]
    case = {"model": model, "device": "h100-sxm", **options}
    saved = setup({**case, "framework": "megatron"}, Faults()).layout(label)
    found = nearest_plan(setup({**case, "framework": to}, Faults()), saved)
    best = mw.plan(mw.PlanRequest(**case, framework=to)).result.plans[0].estimate
    assert found.estimate.fits and found.knobs > 0
    assert found.estimate.step_s <= FAR * best.step_s or found.faster is not None
    if found.faster is not None:
        assert found.faster.fits and found.faster_knobs > found.knobs
        assert found.faster.step_s * FAR <= found.estimate.step_s
        assert any(found.faster.label in str(block) for block in nearest_report(found))


def test_a_stage_of_sharding_is_one_knob_and_what_follows_is_none():
    options, label = CASES["llama2-13b"]
    given = setup({"model": "llama2-13b", "device": "h100-sxm", **options, "framework": "deepspeed"}, Faults())
    found = nearest_plan(given, setup({"model": "llama2-13b", "device": "h100-sxm", **options}, Faults()).layout(label))
    moved = {each.field for each in found.changes}
    assert {"pipeline_parallel", "data_parallel", "optimizer_shards", "gradient_shards", "parameter_shards"} <= moved
    assert found.knobs == 2, "the stages and the sharding"
