"""What a plan leaves off at its level of risk is said beside it, with what it would save."""

import pytest

import meshwright as mw
from meshwright.words import seconds

pytestmark = pytest.mark.usefixtures("alone")

CASES = [
    {"model": "llama3-70b", "device": "h100-sxm", "nodes": 4, "global_batch": 128, "sequence": 8192},
    {"model": "llama3-70b", "device": "h100-sxm", "nodes": 4, "global_batch": 128, "sequence": 4096, "framework": "nanotron"},
    {"model": "llama3-8b", "device": "b200", "nodes": 2, "global_batch": 128, "sequence": 8192, "framework": "megatron-bridge"},
]


def said(answer):
    return [each for each in answer.result.notes if each.id == "plan.left-off"]


@pytest.mark.parametrize("case", CASES)
def test_what_is_left_off_is_what_estimate_says_of_it_and_the_riskier_search_is_no_worse(case):
    answer = mw.plan(mw.PlanRequest(**case, top=3))
    wider = mw.plan(mw.PlanRequest(**case, top=1, risk="equivalent")).result.plans[0].estimate
    first = answer.result.plans[0].estimate
    for note in said(answer):
        plan = answer.result.plans[note.values["rank"] - 1]
        kept = " ".join(word for word in plan.label.split() if not word.startswith("overlap="))
        own = mw.estimate(mw.EstimateRequest(**case, layout=f"{kept} {note.values['words']}")).estimate
        assert note.values["step"] == seconds(own.step_s) and own.expected_step_s < first.expected_step_s
        assert "-" not in note.values["than"], "nothing that is no saving is called one"
        assert wider.expected_step_s <= own.expected_step_s * (1 + 1e-9)
    if wider.layout.overlap != first.layout.overlap and case is CASES[0]:
        assert said(answer)


def test_nothing_is_said_where_the_user_has_chosen():
    case = {**CASES[0], "top": 1}
    assert said(mw.plan(mw.PlanRequest(**{**case, "top": 3})))
    assert not said(mw.plan(mw.PlanRequest(**case, risk="equivalent")))
    assert not said(mw.plan(mw.PlanRequest(**case, pin=["overlap=none"])))
    assert not said(mw.plan(mw.PlanRequest(**CASES[2] | {"framework": "picotron"}, top=1))), "it overlaps no such collectives"


@pytest.mark.parametrize(("model", "nodes", "batch", "sequence"), [
    ("qwen3-30b-a3b", 1, 64, 8192), ("mixtral-8x22b", 4, 128, 8192),
    pytest.param("glm-4.5-air", 4, 128, 8192, marks=pytest.mark.matrix),
    pytest.param("deepseek-v2", 4, 128, 8192, marks=pytest.mark.matrix),
])
def test_who_may_overlap_more_finds_no_worse_plan(model, nodes, batch, sequence):
    """Frameworks overlap the exchanges of experts under some recomputations alone; the others are run without, not left out."""
    case = {"model": model, "device": "h100-sxm", "nodes": nodes, "global_batch": batch, "sequence": sequence,
            "framework": "bridge"}
    plain, freer = (mw.plan(mw.PlanRequest(**case, top=1, risk=risk)).result.plans[0].estimate for risk in ("exact", "equivalent"))
    assert freer.expected_step_s <= plain.expected_step_s * (1 + 1e-9)


def test_the_dispatcher_of_experts_that_is_not_searched_is_named_where_it_may_matter():
    case = {"model": "qwen3-30b-a3b", "device": "h100-sxm", "nodes": 2, "global_batch": 128, "sequence": 4096, "top": 1}

    def named(**more):
        notes = mw.plan(mw.PlanRequest(**{**case, "framework": "bridge", **more})).result.notes
        return [each.id for each in notes if "dispatcher=flex" in str(each) and each.id in {"plan.left-off", "plan.unsearched"}]

    assert named() and named(risk="equivalent") == ["plan.unsearched"]
    assert not named(launch="dispatcher=flex") and not named(launch="dispatcher=alltoall")
    assert not named(nodes=1) and not named(framework="torchtitan")
    assert not named(model="llama3-8b")
