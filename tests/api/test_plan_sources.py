"""A saved plan stands wherever a model is named: it is the request that it was saved with."""

import pytest

import meshwright as mw
from meshwright.api.request_file import saved_plan
from meshwright.api.saved import plan_file
from meshwright.outputs import in_folder, write

REQUEST = {"model": "llama3-8b", "device": "h100-sxm", "nodes": 1, "global_batch": 8, "sequence": 1024, "layers": 4}
LAYOUT = "dp4 pp2 mb1 zero1"


@pytest.mark.parametrize("text", ["stages: 4\n", "- 1\n- 2\n", "", "meshwright_plan: ["])
def test_a_yaml_of_something_else_is_no_plan(tmp_path, text):
    path = tmp_path / "layers.yaml"
    path.write_text(text)
    assert saved_plan(str(path)) is None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    answer = mw.estimate(mw.EstimateRequest(**REQUEST, layout=LAYOUT))
    path = tmp_path_factory.mktemp("plans") / "out"
    write(in_folder(path, [plan_file(answer.given.request, answer.estimate)]), force=False)
    return path


def test_a_saved_plan_and_its_folder_are_plans(folder):
    assert saved_plan(str(folder)) == saved_plan(str(folder / "plan.yaml")) == folder / "plan.yaml"
    assert saved_plan(str(folder.parent)) is None


def test_a_plan_in_the_place_of_the_model_is_its_request(folder):
    by_request = mw.estimate(mw.EstimateRequest(request=str(folder / "plan.yaml"))).to_json()
    for model in (str(folder), str(folder / "plan.yaml")):
        assert mw.estimate(mw.EstimateRequest(model=model)).to_json() == by_request
        assert mw.balance(mw.BalanceRequest(model=model)).to_json()["simulated_time"] > 0
    other = mw.estimate(mw.EstimateRequest(model=str(folder), layout="dp8 mb1 zero3"))
    assert other.estimate.label == "tp1 pp1 dp8 mb1 zero3"
    with pytest.raises(mw.InputError, match="is a saved plan, which is a request of its own"):
        mw.estimate(mw.EstimateRequest(model=str(folder), request=str(folder / "plan.yaml")))


def test_the_name_of_a_model_is_a_model_whatever_a_folder_is_called(folder, monkeypatch):
    folder.rename(folder.parent / "llama3-70b")
    monkeypatch.chdir(folder.parent)
    assert saved_plan("llama3-70b") is not None
    estimate = mw.estimate(mw.EstimateRequest(**{**REQUEST, "model": "llama3-70b"}, layout=LAYOUT))
    assert estimate.given.case.model.name == "llama3-70b-4l"
