"""What is no request is refused in one line, by every verb and by every name that is looked up."""

import pytest

import meshwright as mw
from meshwright.api import VERBS

NOTHING = (None, 3, {}, "llama3-8b", object())


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_takes_its_own_request(verb):
    foreign = mw.CheckRequest() if verb == "plan" else mw.PlanRequest()
    for given in (*NOTHING, foreign):
        with pytest.raises(mw.InputError) as caught:
            getattr(mw, verb)(given)
        assert [each.id for each in caught.value.messages] == ["request.kind"]
        assert f"{verb.rstrip('_').capitalize()}Request" in str(caught.value)


@pytest.mark.parametrize("name", ["load_model", "load_cluster", "device", "framework", "implementation", "optimizer", "precision"])
@pytest.mark.parametrize("given", [None, 3])
def test_a_name_is_a_text(name, given):
    with pytest.raises(mw.InputError, match="named by a text"):
        getattr(mw, name)(given)


def test_a_case_needs_a_layout_beside_it():
    case = mw.make_case("llama3-8b", "dgx-h100", global_batch_sequences=8, sequence_tokens=128)
    with pytest.raises(mw.InputError, match="layout beside a case"):
        mw.estimate(case)
    with pytest.raises(mw.InputError, match="beside a case"):
        mw.compare(case)


def test_what_the_framework_says_in_its_own_words_is_said_once():
    """MindFormers with zero1 said that it has no such stage twice."""
    with pytest.raises(mw.InputError) as caught:
        mw.estimate(mw.EstimateRequest(
            model="llama3-8b", device="ascend-910b", nodes=2, global_batch=64, sequence=4096, framework="mindformers",
            layout="tp2 pp2 dp4 mb1 zero1",
        ))
    said = [str(each) for each in caught.value.messages]
    assert sum("ZeRO" in each for each in said) == 1
    assert sum("sequence" in each for each in said) == 1


def test_a_guide_of_dry_runs_takes_no_model():
    with pytest.raises(mw.InputError) as caught:
        mw.balance(mw.BalanceRequest(model="llama3-8b", guide=True))
    assert [each.id for each in caught.value.messages] == ["balance.guide"]


def test_who_never_trains_a_model_names_who_does():
    with pytest.raises(mw.InputError, match=r"--framework .*deepspeed.* can"):
        mw.plan(mw.PlanRequest(model="minimax-m2", device="h100", nodes=8, global_batch=256, sequence=4096, framework="megatron"))
