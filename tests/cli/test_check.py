"""``check``: files judged on the command line."""

from __future__ import annotations

import pytest
from launch_files import configuration

from meshwright.cli.app import MODULES, VERBS

CASE = ["--model", "llama3-8b", "--device", "h100-sxm", "--devices", "16"]
KEYS = {"id", "severity", "message", "value", "expected", "source"}


def test_good_files_are_ok(cli, tmp_path):
    answer = cli("check", configuration(tmp_path), "--from", "picotron", *CASE, "--json")
    assert answer.status == 0
    assert answer.json["ok"] is True
    assert answer.json["skipped"] == []
    assert answer.json["label"] == "tp4 pp1 dp4 mb1 zero0"


def test_findings_have_the_keys_of_the_contract_and_errors_exit_with_1(cli, tmp_path):
    path = configuration(tmp_path, distributed__tp_size=16, distributed__dp_size=1, model__dtype="bf16")
    answer = cli("check", path, "--from", "picotron", *CASE, "--json")
    assert answer.status == 1
    view = answer.json
    assert view["ok"] is False
    assert all(set(each) >= KEYS for each in view["findings"])
    assert all(each["severity"] in ("error", "warning", "advice") for each in view["findings"])
    assert "picotron.key-value-heads" in {each["id"] for each in view["findings"]}


def test_warnings_alone_are_ok(cli, tmp_path):
    path = configuration(tmp_path, training__gradclip=1.0)
    view = cli("check", path, "--from", "picotron", "--json")
    assert view.status == 0
    assert {each["severity"] for each in view.json["findings"]} == {"warning"}


def test_the_report_sums_up_and_shows_value_and_expected(cli, tmp_path):
    path = configuration(tmp_path, distributed__tp_size=1, distributed__dp_size=16, training__gradient_accumulation_steps=8)
    answer = cli("check", path, "--from", "picotron", *CASE)
    assert answer.status == 1
    lines = answer.out.splitlines()
    assert lines[-1].startswith("not ok: 1 error")
    assert "check.memory" in answer.out
    assert "predicted  tp1" in answer.out
    assert "\x1b" not in answer.out


def test_what_could_not_be_checked_is_said(cli, tmp_path):
    answer = cli("check", configuration(tmp_path), "--from", "picotron")
    assert answer.status == 0
    assert "not checked: " in answer.out
    assert "--model" in answer.out


@pytest.mark.parametrize(("said", "wanted", "known"), [
    (CASE[:2], "give --cluster (or --device with --nodes or --devices), --sequence", ("--model", "--global-batch")),
    (CASE, "give --sequence", ("--model", "--cluster", "--global-batch")),
])
def test_of_what_is_missing_only_what_nobody_said_is_asked_for(cli, tmp_path, said, wanted, known):
    (tmp_path / "ds.json").write_text('{"train_batch_size": 16, "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}}')
    for verb in ("check", "fix", "import") if "--devices" in said else ("check",):
        save = ["--save", str(tmp_path / "plan.yaml")] if verb == "import" else []
        answer = cli(verb, str(tmp_path / "ds.json"), "--from", "deepspeed", *said, *save)
        printed = " ".join(f"{answer.out} {answer.err}".split())
        assert wanted.removeprefix("give ") in printed, printed
        assert verb != "check" or wanted in printed
        assert not any(f"{option}," in printed or printed.endswith(option) for option in known), printed


def test_flags_win_over_files_and_the_contradiction_is_an_error(cli, tmp_path):
    answer = cli("check", configuration(tmp_path), "--from", "picotron", *CASE, "--global-batch", "256", "--json")
    (finding,) = [each for each in answer.json["findings"] if each["id"] == "check.contradiction"]
    assert (finding["value"], finding["expected"]) == (128, 256)
    assert answer.status == 1


def test_the_size_comes_from_the_files_where_nobody_says_it(cli, tmp_path):
    answer = cli("check", configuration(tmp_path), "--from", "picotron", "--model", "llama3-8b", "--device", "h100-sxm", "--json")
    assert answer.json["label"]


def test_claims(cli, tmp_path):
    call = ["check", configuration(tmp_path), "--from", "picotron", *CASE, "--json"]
    answer = cli(*call, "--claim", "tokens_per_s=1000", "--claim", "tflops_per_device=400")
    assert {"check.claims-disagree", "check.claim-unlikely"} <= {each["id"] for each in answer.json["findings"]}
    assert answer.status == 1


@pytest.mark.parametrize("claim", ["speed=3", "mfu", "mfu=", "mfu=x", "mfu=-1", "step_s=0", "mfu=1e999", "=3"])
def test_claims_that_are_none(cli, tmp_path, claim):
    answer = cli("check", configuration(tmp_path), "--from", "picotron", "--claim", claim)
    assert answer.status == 2
    assert len(answer.lines) == 1
    assert "--claim" in answer.err


def test_verbs_that_are_words_of_python_have_a_module_of_another_name():
    import keyword

    assert all(verb in MODULES for verb in VERBS if keyword.iskeyword(verb))
