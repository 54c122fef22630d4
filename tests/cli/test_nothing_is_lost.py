"""What is a user's stays: every verb refuses to overwrite it, and changes all of its files or none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from balance_layer_files import ls1
from benchmarks.failing_disk import failing
from launch_files import configuration

from meshwright.api.verbs.export import copy_names
from meshwright.outputs import Output, write

CASE = ["llama3-8b", "--device", "h100-sxm", "--nodes", "2", "--global-batch", "64", "--sequence", "4096"]
FILE_CASE = ["--model", "llama3-8b", "--device", "h100-sxm", "--nodes", "2"]
SMALL = ("--stages", "4", "--microbatches", "8", "--memory-mb", "60000")
BOM = b"\xef\xbb\xbf"


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine"
    path.write_text("mine\n")
    return path


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(
        "meshwright_plan: 1\nrequest: {model: llama3-8b, device: h100-sxm, nodes: 2, global_batch: 64, sequence: 4096, "
        "framework: picotron, calibration: none}\nlayout: tp4 pp2 dp2 mb1 zero0 overlap=grad\n"
    )
    return str(path)


def test_a_calibration_that_is_there_is_said_before_anything_is_fitted(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "calibration.json").write_text("mine\n")
    (tmp_path / "runs.csv").write_text("id\n")
    answer = cli("calibrate", "--runs", "runs.csv")
    assert answer.status == 2
    assert answer.lines[0] == "error: calibration.json: exists; --force replaces it"
    assert (tmp_path / "calibration.json").read_text() == "mine\n"


def test_pictures_and_traces_of_a_balance(cli, tmp_path, mine):
    file = ls1(tmp_path, body={"nb_layer": 18})
    for option in ("--picture", "--trace"):
        answer = cli("balance", file, *SMALL, option, str(mine))
        assert answer.status == 2 and "exists with other content; --force overwrites it" in answer.err
    assert mine.read_text() == "mine\n"
    new = str(tmp_path / "new")
    answer = cli("balance", file, *SMALL, "--picture", new, "--trace", new)
    assert (answer.status, answer.err) == (2, f"error: {new}: is written twice: as {new} too\n")
    assert not Path(new).exists()
    assert cli("balance", file, *SMALL, "--picture", str(mine), "--save", new, "--force").status == 0
    assert "<svg" in mine.read_text() and (tmp_path / "new" / "balance.json").exists()


def test_rows_of_a_validation_are_shown_even_where_they_cannot_be_written(cli, tmp_path, mine):
    from tests.evidence.runs_csv import write_runs

    answer = cli("validate", str(write_runs(tmp_path / "runs.csv", {})), "--rows", str(mine), "--json")
    assert answer.status == 2 and "exists with other content; --force overwrites it" in answer.err
    assert answer.json and mine.read_text() == "mine\n"


def test_a_directory_where_a_file_is_to_stand_changes_nothing(cli, search, tmp_path):
    (tmp_path / "o" / "train.sh" / "x").mkdir(parents=True)
    (tmp_path / "o" / "plan.yaml").write_text("mine\n")
    answer = cli("plan", *CASE, "--save", str(tmp_path / "o"), "--force")
    assert (answer.status, answer.err) == (2, f"error: {tmp_path}/o/train.sh: is a directory, a file is wanted\n")
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == ["plan.yaml", "train.sh"]
    assert (tmp_path / "o" / "plan.yaml").read_text() == "mine\n"


@pytest.mark.parametrize(("name", "says"), [("loop", "symbolic links"), ("n" * 300, "name too long")])
def test_no_place_for_a_folder(cli, tmp_path, name, says):
    (tmp_path / "loop").symlink_to("loop")
    for words in (["plan", *CASE, "--save"], ["balance", ls1(tmp_path), *SMALL, "--save"]):
        answer = cli(*words, str(tmp_path / name))
        assert answer.status == 2 and len(answer.lines) == 1 and says in answer.err


def test_copies_of_two_files_of_one_name(cli, plan, tmp_path):
    assert cli("export", plan, "--to", "megatron", "--out", str(tmp_path / "first")).status == 0
    text = (tmp_path / "first" / "train.sh").read_text()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "t.sh").write_text(text.replace("--micro-batch-size 1", "--micro-batch-size 2"))
    two = [word for name in ("a", "b") for word in ("--onto", str(tmp_path / name / "t.sh"))]
    assert cli("export", plan, "--to", "megatron", *two, "--out", str(tmp_path / "o2")).status == 0
    assert [path.relative_to(tmp_path).as_posix() for path in (tmp_path / "o2").rglob("*.sh")] == ["o2/b/t.sh"]


def test_names_of_copies(tmp_path):
    assert copy_names(["x/a.sh", "y/b.sh"]) == {"x/a.sh": "a.sh", "y/b.sh": "b.sh"}
    assert copy_names(["x/t.sh", "./x/y/t.sh", "b.sh"]) == {"x/t.sh": "x/t.sh", "./x/y/t.sh": "x/y/t.sh", "b.sh": "b.sh"}


def test_a_copy_of_a_users_file_keeps_its_mark_and_mode(cli, plan, tmp_path):
    assert cli("export", plan, "--to", "picotron", "--out", str(tmp_path / "first")).status == 0
    path = tmp_path / "my.json"
    text = (tmp_path / "first" / "config.json").read_text().replace('"tp_size": 4', '"tp_size": 2')
    text = text.replace('"dp_size": 2', '"dp_size": 4')
    text = text.replace('"gradient_accumulation_steps": 32', '"gradient_accumulation_steps": 16')
    path.write_bytes(BOM + text.encode())
    path.chmod(0o600)
    assert cli("export", plan, "--to", "picotron", "--onto", str(path), "--out", str(tmp_path / "o")).status == 0
    copy = tmp_path / "o" / "my.json"
    assert copy.read_bytes().startswith(BOM) and b'"tp_size": 4' in copy.read_bytes()
    assert copy.stat().st_mode & 0o777 == 0o600
    answer = cli("export", plan, "--to", "picotron", "--onto", str(path), "--out", str(tmp_path), "--force")
    assert (answer.status, answer.err) == (2, f"error: {path}: is the file that is read\n")


def test_a_fix_that_cannot_be_told_is_not_made(cli, tmp_path):
    path = configuration(tmp_path, distributed__tp_size=1, distributed__dp_size=16, training__gradient_accumulation_steps=8)
    before = Path(path).read_text()
    words = ["fix", path, "--from", "picotron", *FILE_CASE, "--memory", "60GiB", "--max-edits", "2", "--apply", "--json"]
    call = [sys.executable, "-m", "meshwright", *words]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(call, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (2, "error: standard output cannot be written: No space left on device\n")
    assert Path(path).read_text() == before
    assert cli(*words).json["applied"] == [path]
    assert Path(path).read_text() != before


def test_the_next_start_says_what_it_has_put_back(cli, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text("old\n")
    for step in range(1, 99):
        with failing(step):
            write([Output(path=str(tmp_path / name), text="new\n") for name in ("a", "b")], force=True)
        if (tmp_path / "a").read_text() != (tmp_path / "b").read_text():
            break
    answer = cli("catalog", "models", f"--near={tmp_path}/x")
    assert answer.err.startswith(f"note: {tmp_path}: a write that was interrupted has been undone\n")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old\n", "b": "old\n"}
