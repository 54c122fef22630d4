"""The least that can be asked: one layer, one sequence, one token. Every verb answers, and the laws of figures hold."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.draws import draws

import meshwright as mw
from meshwright.errors import MeshwrightError

MODELS = ("llama3-8b", "gpt2-xl", "mixtral-8x7b", "deepseek-v3", "gemma2-9b")
SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
ON = (("h100-sxm", "megatron"), ("ascend-910b", "mindspeed-llm"), ("rtx-4090", "deepspeed"))
TINY = st.builds(
    lambda on, **drawn: drawn | {"device": on[0], "framework": on[1]},
    model=st.sampled_from(MODELS), layers=st.integers(1, 3), sequence=st.sampled_from((1, 2, 3, 7, 16)),
    global_batch=st.integers(1, 9), on=st.sampled_from(ON), nodes=st.sampled_from((1, 1, 2)),
    task=st.sampled_from(("pretrain", "sft", "lora")),
)


def tried(case):
    """The plan of a case; None where it is refused in words."""
    try:
        return mw.plan(mw.PlanRequest(**case, top=3, no_balance=case["global_batch"] % 2 == 0))
    except MeshwrightError as error:
        assert all(str(each) for each in error.messages)
        return None


@given(TINY)
@settings(max_examples=draws(12), **SLOW)
def test_the_smallest_cases_have_one_answer(case):
    answer = tried(case)
    if answer is None or not answer.ok:
        return
    for plan in answer.result.plans:
        own = plan.estimate
        layout = plan.layout
        assert layout.data_parallel * layout.microbatch_sequences * layout.num_microbatches == case["global_batch"]
        assert 0.0 < own.step_s < float("inf") and 0.0 < own.mfu_ratio <= own.hfu_ratio < 1.0
        assert own.memory_peak_bytes <= own.memory_reserved_bytes
        parts = own.time
        total = sum(getattr(parts, name) for name in type(parts).__dataclass_fields__)
        assert total == pytest.approx(own.step_s, rel=1e-6)
        again = mw.estimate(mw.EstimateRequest(**case, layout=plan.label)).estimate
        assert again.step_s == pytest.approx(own.step_s, rel=1e-9)
        assert again.memory_reserved_bytes == pytest.approx(own.memory_reserved_bytes, rel=1e-9)


@given(TINY)
@settings(max_examples=draws(4), **SLOW)
def test_every_verb_answers_the_smallest_cases(case):
    answer = tried(case)
    if answer is None or not answer.ok:
        return
    first = answer.result.plans[0]
    told = mw.explain(mw.ExplainRequest(**case, layout=first.label)).to_json()
    assert sum(each["points_percent"] for each in told["explanation"]["losses"]) == pytest.approx(100.0)
    fixed = mw.fix(mw.FixRequest(**case, layout=first.label)).to_json()
    assert fixed["changes"] == [], "what fits needs no change"
    compared = mw.plan(mw.PlanRequest(**case, compare=first.label)).to_json()["comparison"]
    assert compared["rank"] == 1
