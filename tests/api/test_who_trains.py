"""Who trains a case at all, named with its release, and what is said of a model that only later releases build."""

from __future__ import annotations

import pytest

from meshwright import EstimateRequest, ExplainRequest, InputError, PlanRequest, estimate, explain, plan
from meshwright.errors import NoAnswerError

pytestmark = pytest.mark.usefixtures("alone")

NANO = {"model": "nemotron-3-nano-30b-a3b", "device": "h100", "nodes": 16, "global_batch": 1024, "sequence": 8192}


@pytest.mark.parametrize(("model", "said"), [
    ("deepseek-v3.2", "--framework megatron@0.19 or accelerate or deepspeed or llama-factory-hf or bridge@main can"),
    ("nemotron-3-super-120b-a12b", "--framework accelerate or bridge@main or deepspeed or llama-factory-hf or megatron@0.17 can"),
    ("kimi-linear-48b-a3b", "--framework accelerate or deepspeed or llama-factory-hf can"),
])
def test_who_can_is_said_once_with_its_release(model: str, said: str) -> None:
    with pytest.raises((InputError, NoAnswerError)) as raised:
        plan(PlanRequest(model=model, framework="megatron", device="h100", nodes=32, global_batch=1024, sequence=4096))
    assert str(raised.value).endswith(said)
    assert str(raised.value).count("; --framework") == 1


@pytest.mark.parametrize(("model", "nodes", "release"), [
    ("deepseek-v3.2", 32, "megatron@0.19"), ("llama3-8b", 1, "megatron"), ("nemotron-3-super-120b-a12b", 8, "megatron@0.17"),
])
def test_where_no_framework_is_named_the_first_release_that_trains_is_meant(model: str, nodes: int, release: str) -> None:
    """It ended with the release that can: every verb means that one now, and the plan says so."""
    case = {"model": model, "device": "h100", "nodes": nodes, "global_batch": 32 * nodes, "sequence": 4096}
    answer = plan(PlanRequest(**case, top=1, no_balance=True))
    document = answer.to_json()
    assert document["request"]["framework"] == release
    assert [each.id for each in answer.result.notes].count("plan.release") == ("@" in release)
    first = document["plans"][0]
    assert estimate(EstimateRequest(**case, layout=first["label"])).to_json()["step_s"] == first["estimate"]["step_s"]
    named = plan(PlanRequest(**case, framework=release, top=1, no_balance=True))
    assert named.to_json()["plans"][0]["label"] == first["label"]
    assert "plan.release" not in [each.id for each in named.result.notes]


def test_who_has_a_knob_is_said_for_the_case() -> None:
    others = r"accelerate or bridge@main or deepspeed or llama-factory-hf or megatron@0\.18"
    with pytest.raises(InputError, match=f"--framework {others} has it"):
        plan(PlanRequest(**NANO, pin=["recompute=full"]))


def test_explain_asks_no_layout_that_the_release_refuses_for_every_hybrid() -> None:
    """Winners of all questions had virtual stages or recomputed all: 'no layout fits without recompute' was said where one fits."""
    layout = "tp1 pp2 ep8 dp64 mb1 zero1 recompute=selective:layernorm layers=[27,25]"
    told = explain(ExplainRequest(**NANO, layout=layout)).to_json()
    assert "some layout fits without recompute" in str(told)
    assert "no layout fits without recompute" not in str(told)


def test_a_step_of_context_parallelism_is_of_a_kind_that_the_model_has() -> None:
    request = ExplainRequest(model="deepseek-v3.2", device="h100", nodes=128, global_batch=2048, sequence=4096,
                             framework="megatron@0.19", layout="tp2 pp16 vp2 ep8 dp32 mb1 sp zero1 recompute=full")
    assert "no context parallelism for this model" not in str(explain(request).to_json())


def test_a_framework_s_own_sentence_ends_once():
    """Who could instead stands in one sentence with the reason, also where the framework's own text ends with a full stop."""
    with pytest.raises(InputError) as caught:
        plan(PlanRequest(model="llama3-70b", device="h100-sxm", nodes=4, global_batch=64, sequence=1 << 23, framework="torchtitan"))
    assert "131072; --framework" in str(caught.value)
