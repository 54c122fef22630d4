"""What a source of ``balance`` is."""

import pytest

import meshwright as mw
from meshwright.api.balancing.questions import is_plan
from meshwright.api.saved import plan_file
from meshwright.outputs import in_folder, write


@pytest.mark.parametrize(("text", "found"), [("stages: 4\n", False), ("- 1\n- 2\n", False), ("", False)])
def test_a_yaml_of_something_else_is_no_plan(tmp_path, text, found):
    path = tmp_path / "layers.yaml"
    path.write_text(text)
    assert is_plan(str(path)) == found


def test_a_saved_plan_and_its_folder_are_plans(tmp_path):
    request = {"model": "llama3-8b", "device": "h100-sxm", "nodes": 1, "global_batch": 8, "sequence": 1024, "layers": 4}
    answer = mw.estimate(mw.EstimateRequest(**request, layout="dp8 mb1 zero1"))
    write(in_folder(tmp_path / "out", [plan_file(answer.given.request, answer.estimate)]), force=False)
    assert is_plan(str(tmp_path / "out")) and is_plan(str(tmp_path / "out" / "plan.yaml"))
    assert not is_plan(str(tmp_path))
