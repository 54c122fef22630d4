"""Plans as files: new ones, a probe beside them, and the user's own with another layout."""

from __future__ import annotations

import json

import pytest

from meshwright.cli import main
from meshwright.frameworks import editing

CASE = "llama3-8b --device h100-sxm --nodes 2 --global-batch 64 --sequence 4096"
LABEL = "tp4 pp2 dp2 mb1 zero0 overlap=grad"


@pytest.fixture
def plan(tmp_path):
    """A saved plan, as ``plan --save`` writes it."""
    path = tmp_path / "plan.yaml"
    path.write_text(
        "meshwright_plan: 1\nrequest: {model: llama3-8b, device: h100-sxm, nodes: 2, global_batch: 64, sequence: 4096, "
        f"framework: picotron, calibration: none}}\nlayout: {LABEL}\n"
    )
    return str(path)


def test_files_are_written_with_a_probe_beside_them(cli, plan, tmp_path):
    out = tmp_path / "out"
    answer = cli("export", plan, "--to", "picotron", "--out", str(out))
    assert answer.status == 0, answer.err
    names = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    assert {"config.json", "launch.sh", "README.md", "probe/config.json", "probe/plan.yaml"} <= names
    config = json.loads((out / "config.json").read_text())["distributed"]
    assert (config["tp_size"], config["pp_size"], config["dp_size"]) == (4, 2, 2)
    small = json.loads((out / "probe" / "config.json").read_text())
    assert small["distributed"]["pp_size"] == 1 and small["model"]["num_hidden_layers"] < 32


def test_the_probe_anchors_the_estimate(cli, plan, tmp_path):
    out = tmp_path / "out"
    assert cli("export", plan, "--to", "picotron", "--out", str(out)).status == 0
    probe = str(out / "probe" / "plan.yaml")
    seen = cli("estimate", "--request", probe, "--json").json["memory_peak_bytes"]
    plain = cli("estimate", "--request", plan, "--json").json["memory_peak_bytes"]
    same = cli("estimate", "--request", plan, "--anchor-memory", f"{probe}={seen}", "--json").json
    assert same["memory_peak_bytes"] == pytest.approx(plain)
    more = cli("estimate", "--request", plan, "--anchor-memory", f"{probe}={1.2 * seen:.0f}", "--json").json
    assert more["memory_peak_bytes"] > plain
    assert more["grades"]["memory_peak_bytes"] == "interpolated"


def test_an_anchor_that_makes_no_sense_is_one_line(cli, plan):
    for word, says in (
        ("0", "write STAGE=BYTES"),
        ("0=lots", "no size in bytes"),
        ("9=60GiB", "no stage 9"),
        ("0=1MiB", "not above"),
    ):
        answer = cli("estimate", "--request", plan, "--anchor-memory", word)
        assert answer.status == 2
        assert says in answer.err and len(answer.lines) == 1


@pytest.mark.parametrize("layout", ["tp8 pp5", "tp8 pp1 mb3", "tp8 pp1 zzz"])
def test_what_is_wrong_with_anchors_is_said_beside_a_wrong_layout(cli, layout):
    case = ("llama3-70b", "--device", "h100-sxm", "--nodes", "4", "--global-batch", "256", "--sequence", "4096")
    answer = cli("estimate", *case, "--layout", layout, "--anchor-memory", "9=5GiB", "--anchor-memory", "nowhere.yaml=6GiB")
    assert answer.status == 2
    wrong, *anchors = answer.err.splitlines()
    assert "--layout" in wrong
    assert ["no stage 9" in anchors[0], "nowhere.yaml" in anchors[1], len(anchors)] == [True, True, 2]


def test_a_users_own_file_changes_only_where_the_plan_decides(cli, plan, tmp_path):
    out = tmp_path / "first"
    assert cli("export", plan, "--to", "picotron", "--out", str(out)).status == 0
    mine = tmp_path / "mine.json"
    text = (out / "config.json").read_text().replace('"learning_rate": 0.0003', '"learning_rate": 0.007')
    mine.write_text(text.replace('"tp_size": 4', '"tp_size": 2').replace('"dp_size": 2', '"dp_size": 4')
                    .replace('"gradient_accumulation_steps": 32', '"gradient_accumulation_steps": 16'))
    answer = cli("export", plan, "--to", "picotron", "--onto", str(mine), "--out", str(tmp_path / "second"))
    assert answer.status == 0, answer.err
    assert (tmp_path / "second" / "mine.json").read_text() == text
    for word in ('-        "tp_size": 2', '+        "tp_size": 4', "distributed.dp_size", "convert"):
        assert word in answer.out
    document = cli("export", plan, "--to", "picotron", "--onto", str(mine), "--json").json
    assert {(edit["field"], edit["from"], edit["to"]) for edit in document["edits"]} == {
        ("distributed.tp_size", 2, 4), ("distributed.dp_size", 4, 2), ("training.gradient_accumulation_steps", 16, 32),
    }
    assert document["resume"] == "convert" and document["files"] == []


def test_nothing_is_overwritten_unasked(cli, plan, tmp_path):
    out = tmp_path / "out"
    assert cli("export", plan, "--to", "picotron", "--out", str(out)).status == 0
    (out / "config.json").write_text("{}")
    answer = cli("export", plan, "--to", "picotron", "--out", str(out))
    assert answer.status == 2 and "--force" in answer.err
    assert (out / "config.json").read_text() == "{}"
    assert cli("export", plan, "--to", "picotron", "--out", str(out), "--force").status == 0


def test_a_plan_that_the_framework_cannot_express_is_a_no_with_every_reason(cli, plan, tmp_path):
    text = (tmp_path / "plan.yaml").read_text().replace(LABEL, "tp4 pp2 vp2 dp2 mb1 sp zero1 recompute=full")
    (tmp_path / "plan.yaml").write_text(text)
    answer = cli("export", plan, "--to", "picotron", "--out", str(tmp_path / "out"))
    assert answer.status == 1
    for word in ("virtual stages", "ZeRO", "sequence parallelism", "recomputation"):
        assert word in answer.err
    assert "--nearest exports the nearest plan that picotron can run" in answer.err
    assert not (tmp_path / "out").exists()


OTHERS = ("picotron", "nanotron", "torchtitan", "megatron-deepspeed", "accelerate")


@pytest.mark.parametrize("to", OTHERS)
def test_the_nearest_plan_runs_fits_and_says_what_it_loses(cli, plan, tmp_path, to):
    text = (tmp_path / "plan.yaml").read_text().replace(LABEL, "tp2 cp2 pp2 vp2 dp2 mb1 sp zero1")
    (tmp_path / "plan.yaml").write_text(text)
    assert cli("export", plan, "--to", to, "--out", str(tmp_path / "no")).status == 1
    answer = cli("export", plan, "--to", to, "--nearest", "--out", str(tmp_path / "out"), "--json")
    assert answer.status == 0, answer.err
    found = answer.json
    assert found["nearest"] and found["files"] and all((tmp_path / "out" / path).exists() for path in found["files"])
    asked = (*CASE.split(), "--framework", to, "--calibration", "none", "--json")
    now = cli("estimate", *asked, "--layout", found["label"])
    assert now.status == 0 and now.json["fits"], now.err
    moved = {change["field"]: change for change in found["changes"]}
    assert all(change["why"] and change["from"] != change["to"] for change in found["changes"])
    layout, before = now.json["layout"], {"tensor_parallel": 2, "context_parallel": 2, "pipeline_parallel": 2, "virtual_stages": 2}
    for name, value in before.items():
        assert layout[name] == (moved[name]["to"] if name in moved else value)
    assert any(change["why"] != "follows from the other changes" for change in found["changes"])
    assert found["memory_change_bytes"] != 0 and found["step_change_ratio"] != 0


def test_what_the_framework_can_run_is_its_own_nearest(cli, plan, tmp_path):
    found = cli("export", plan, "--to", "picotron", "--nearest", "--out", str(tmp_path / "out"), "--json").json
    assert (found["nearest"], found["changes"], found["step_change_ratio"], found["memory_change_bytes"]) == (False, [], 0, 0)
    again = cli("export", plan, "--to", "picotron", "--nearest", "--out", str(tmp_path / "out"))
    assert "nothing had to change" in again.out


def test_a_model_that_a_framework_lacks_has_no_nearest_plan(cli, plan, tmp_path):
    text = (tmp_path / "plan.yaml").read_text().replace("llama3-8b", "deepseek-v3")
    (tmp_path / "plan.yaml").write_text(text)
    for option in ((), ("--nearest",)):
        answer = cli("export", plan, "--to", "picotron", *option, "--out", str(tmp_path / "out"))
        assert answer.status == 1 and "--nearest exports" not in answer.err
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("to", "says"), [("picotorn", "did you mean picotron"), ("picotron@9", "is unknown; known: 59714b1")])
def test_an_unknown_framework_or_release_is_one_line(cli, plan, tmp_path, to, says):
    answer = cli("export", plan, "--to", to, "--out", str(tmp_path / "out"))
    assert answer.status == 2 and says in answer.err and len(answer.lines) == 1


def test_the_changes_of_the_nearest_plan_read_well(cli, plan, tmp_path):
    text = (tmp_path / "plan.yaml").read_text().replace(LABEL, "tp4 pp2 vp2 dp2 mb1 sp zero1")
    (tmp_path / "plan.yaml").write_text(text)
    shown = cli("export", plan, "--to", "picotron", "--nearest", "--out", str(tmp_path / "out")).out
    shown = " ".join(shown.split())  # however wide the screen
    assert "sequence_parallel on -> off " in shown and "than the saved plan, both by the cost model" in shown
    assert not {"True", "False", "None", "[]"} & set(shown.split())


def test_a_script_instead_of_a_plan_is_told_how_to_get_one(tmp_path, capsys):
    """``not YAML: did not find expected <document start>`` was all."""
    script = tmp_path / "train.sh"
    script.write_text("torchrun pretrain_gpt.py\n")
    assert main(["export", str(script), "--to", "megatron", "--out", str(tmp_path / "o")]) == 2
    assert "import" in (said := " ".join(capsys.readouterr().err.split()))
    assert "--save DIR" in said


def test_a_script_of_another_model_or_batch_is_told_apart(cli, plan, tmp_path):
    """A layout of 80 layers was put into a script of 40 without a word."""
    out = tmp_path / "megatron"
    assert cli("export", plan, "--to", "megatron", "--out", str(out), "--nearest").status == 0
    own = cli("export", str(out / "plan.yaml"), "--to", "megatron", "--onto", str(out / "train.sh"))
    assert "than the plan is for" not in own.out
    other = tmp_path / "other.sh"
    text = (out / "train.sh").read_text()
    assert "--num-layers 32" in text and "--global-batch-size 64" in text
    text = text.replace("--num-layers 32", "--num-layers 16").replace("--global-batch-size 64", "--global-batch-size 128")
    other.write_text(text)
    answer = cli("export", str(out / "plan.yaml"), "--to", "megatron", "--onto", str(other))
    assert (answer.status, answer.out.strip()) == (1, "")
    told = " ".join(answer.err.split())
    assert "the files keep another model than the plan is for: layers 16, not 32" in told
    assert "the files keep another batch than the plan is for: sequences a step 128, not 64" in told


def test_files_that_would_read_as_another_layout_are_not_written(cli, plan, tmp_path, monkeypatch):
    """What import reads of the changed files is another layout: a refusal, and no copy."""
    out, copies = tmp_path / "megatron", tmp_path / "copies"
    assert cli("export", plan, "--to", "megatron", "--out", str(out), "--nearest").status == 0
    monkeypatch.setattr(editing, "_same", lambda *_: False)
    told = cli("export", str(out / "plan.yaml"), "--to", "megatron", "--onto", str(out / "train.sh"), "--out", str(copies))
    assert told.status == 1
    assert "do not read as the wanted layout" in told.err
    assert not told.out.strip()
    assert not copies.exists()
