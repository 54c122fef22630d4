"""A whole folder as the files of a run: what stands beside them is left out, and said."""

import pytest

import meshwright as mw
from meshwright.api.launch_files import launch_files
from meshwright.api.saved import plan_file
from meshwright.errors import InputError
from meshwright.outputs import in_folder, write

CASE = {"model": "llama3-8b", "device": "h100-sxm", "nodes": 1, "sequence": 2048, "global_batch": 64}


@pytest.fixture(scope="module", params=["megatron", "nanotron"])
def folder(request, tmp_path_factory):
    """A launch folder as ``plan --save`` leaves it, of a framework with ``probe.sh`` and of one with ``probe/``."""
    out = tmp_path_factory.mktemp("run") / request.param
    answer = mw.estimate(mw.EstimateRequest(**CASE, framework=request.param, layout="tp2 dp4 mb1 sp zero1"))
    saved = plan_file(answer.given.request, answer.estimate)
    files = launch_files(answer.given, answer.estimate.layout, answer.estimate)
    write(in_folder(out, [*files, type(files[0])(path=saved.path, text=saved.text)]), force=False)
    (out / "probe").mkdir(exist_ok=True)
    return out


def checked(folder, *paths):
    answer = mw.check(mw.CheckRequest(files=[str(path) for path in paths], from_=folder.name))
    return {finding["id"]: finding for finding in answer.to_json()["findings"]}


def test_what_stands_beside_the_run_is_left_out_and_said(folder):
    run = [path for path in folder.iterdir() if path.name in {"train.sh", "launch.sh", "config.yaml"}]
    alone, whole, named = checked(folder, *run), checked(folder, *folder.iterdir()), checked(folder, folder)
    assert "README.md" in whole["import.beside"]["message"] and "plan.yaml" in whole["import.beside"]["message"]
    assert "probe" in whole["import.beside"]["message"] and whole["import.beside"]["severity"] == "advice"
    assert set(whole) == set(named) == {"import.beside", *alone} and "import.beside" not in alone


def test_what_is_alone_is_read_for_what_it_is(folder, tmp_path):
    with pytest.raises(InputError, match="is for people to read"):
        checked(folder, folder / "README.md")
    with pytest.raises(InputError, match="not a regular file"):
        checked(folder, tmp_path)

