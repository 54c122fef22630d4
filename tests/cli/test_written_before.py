"""Files that version 0.1.0 (commit e4c6b15) wrote open as before: plans, and a calibration (of its constants three)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

BEFORE = Path(__file__).parent / "written_before"
PLANS = {"dense": "megatron", "mixture": "chatlearn"}
REPRICED = {"mixture"}
"""Of ChatLearn's back end fsdp, which was predicted as if it were Megatron-LM."""


@pytest.fixture(params=PLANS)
def plan(request, tmp_path):
    """A folder with a plan as it was written."""
    shutil.copy(BEFORE / f"{request.param}.yaml", tmp_path / "plan.yaml")
    return request.param, tmp_path / "plan.yaml"


def test_a_plan_is_estimated_as_it_was_predicted(cli, plan):
    name, path = plan
    saved = yaml.safe_load(path.read_text())
    found = cli("estimate", "--request", str(path), "--json").json
    assert found["label"].split() == [*saved["layout"].split()]
    if name in REPRICED:
        return
    assert found["fits"]
    for key in ("step_s", "memory_reserved_bytes"):
        assert found[key] == pytest.approx(saved["predicted"][key], rel=0.1), (name, key)


def test_a_plan_is_exported_explained_and_balanced(cli, plan):
    name, path = plan
    found = cli("export", str(path), "--to", PLANS[name], "--nearest", "--out", str(path.parent / "files"), "--json").json
    assert found["files"] and not found["nearest"]
    label = yaml.safe_load(path.read_text())["layout"]
    if "pp4" in label:
        assert cli("balance", str(path.parent), "--time-limit", "1", "--json").json["given"]["label"] == label


def test_a_plan_is_searched_again_with_the_pins_of_its_request(cli, plan, search):
    _, path = plan
    assert cli("plan", "--request", str(path), "--json").status == 0
    case, _, options = search.asked
    saved = yaml.safe_load(path.read_text())["request"]
    assert dict(options.pins) == {knob: str(value) for knob, value in saved.get("pin", {}).items()}
    assert (case.batch.global_batch_sequences, options.top) == (saved["global_batch"], saved["top"])


def test_a_calibration_opens(cli):
    case = ("llama3-8b", "--device", "h100-sxm", "--nodes", "2", "--global-batch", "64", "--sequence", "4096")
    asked = ("estimate", *case, "--layout", "tp2 mb1 sp zero1", "--framework", "nanotron", "--json")
    found = cli(*asked, "--calibration", str(BEFORE / "calibration.json")).json
    assert found["calibration"] == "mine@2026-11-22" and found["calibrated"]
    low, high = found["interval"]["step_s"]
    assert low < found["step_s"] < high
    assert 0.5 < found["memory_fit_probability"] < 1.0
    assert found["step_s"] != cli(*asked, "--calibration", "none").json["step_s"]
