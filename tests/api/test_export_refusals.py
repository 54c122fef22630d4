"""What export refuses in one line before it writes anything."""

import pytest

import meshwright as mw
from meshwright.errors import InputError


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    mw.plan(mw.PlanRequest(model="llama3.2-1b", device="h100-sxm", nodes=1, global_batch=64, sequence=1024,
                           save=str(folder / "p")))
    return folder / "p"


def test_a_release_that_is_empty_is_none(saved, tmp_path):
    with pytest.raises(InputError, match="no release of Megatron-LM stands behind the @"):
        mw.export(mw.ExportRequest(plan=saved, to="megatron@", out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_files_of_a_batch_of_nothing_are_not_changed(saved, tmp_path):
    script = tmp_path / "train.sh"
    script.write_text((saved / "train.sh").read_text().replace("--global-batch-size 64", "--global-batch-size 0"))
    with pytest.raises(InputError, match="the files say 0 sequences a step"):
        mw.export(mw.ExportRequest(plan=saved, to="megatron", onto=[str(script)], out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()
