"""Keys that the framework does not know, of the wrong type, of another release, given twice, or of another framework."""

from __future__ import annotations

import json

from check_cases import found, ids, judged, megatron, megatron_text, picotron, picotron_text

from meshwright.frameworks import framework


def test_files_without_fault_have_neither_errors_nor_warnings():
    for checked in (picotron(), picotron(alone=True), megatron(), megatron(alone=True)):
        assert checked.ok
        assert not ids(checked, "error") | ids(checked, "warning") - {"check.memory-tight"}  # nobody measured picotron's memory


def test_each_unknown_key_is_one_finding_in_the_frameworks_words_at_its_line():
    checked = megatron({"--gradient-accumulation-steps": 16, "--use-fused-kernels": True}, alone=True)
    findings = found(checked, "megatron.unknown-key")
    assert [str(each.message).partition(":")[0] for each in findings] == ["train.sh"] * 2
    lines = megatron_text({"--gradient-accumulation-steps": 16, "--use-fused-kernels": True}).splitlines()
    for each, flag in zip(findings, ("--gradient-accumulation-steps", "--use-fused-kernels"), strict=True):
        assert f"unrecognized arguments: {flag}" in str(each.message)
        line = int(each.message.path.partition(":")[2])
        assert flag in lines[line - 1]
    assert findings[0].value == "16"
    assert not checked.ok


def test_an_ignored_key_is_a_warning_with_a_suggestion():
    checked = picotron({"training.seq_lenght": 4096})
    (finding,) = found(checked, "picotron.unknown-key")
    assert finding.severity == "warning"
    assert "did you mean training.seq_length" in str(finding.message)
    assert checked.ok


def test_a_flag_of_another_release_says_where_it_exists():
    surface = framework("megatron").surface()
    newer = [name for name, key in surface.at("main").items() if key.kind == "switch" and not surface.find(name, "0.16")]
    older = [name for name, key in surface.at("0.11").items() if key.kind == "switch" and not surface.find(name, "0.16")]
    assert newer
    assert older
    for flag in (newer[0], older[0]):
        (finding,) = found(megatron({flag: True}, alone=True, version="0.16"), "megatron.other-release")
        assert finding.expected == surface.span(flag)
        assert surface.span(flag) in str(finding.message)
    for flag, version in ((newer[0], "main"), (older[0], "0.11")):
        assert not found(megatron({flag: True}, alone=True, version=version), "megatron.other-release")


def test_values_that_the_parser_refuses():
    checked = megatron({"--normalization": "rmsnorm", "--seed": "many"}, alone=True)
    assert {str(each.message.values["key"]) for each in checked.findings if each.message.id.startswith("setting.")} >= {
        "--normalization",
        "--seed",
    }
    assert not checked.ok


def test_a_wrong_value_is_said_once():
    checked = picotron({"distributed.tp_size": "two"})
    assert [each.message.values["key"] for each in checked.findings if each.message.id.startswith("setting.")] == [
        "distributed.tp_size"
    ]


def test_a_flag_given_twice_with_other_values():
    text = megatron_text().rstrip() + " \\\n  --seq-length 8192 --bf16\n"
    (finding,) = found(judged({"train.sh": text}, "megatron@0.16"), "check.twice")
    assert finding.value == "8192"
    assert "--seq-length" in str(finding.message)
    assert finding.severity == "warning"


def test_a_setting_of_two_files_is_said():
    checked = judged({"a.json": picotron_text(), "b.json": picotron_text({"training.seed": 2})}, "picotron")
    (finding,) = found(checked, "source.twice")
    assert finding.severity == "advice"


def test_a_file_of_another_framework_is_one_finding_and_judged_by_its_own_rules():
    deepspeed = json.dumps({"zero_optimization": {"stage": 1}, "bf16": {"enabled": True}})
    checked = judged({"train.sh": megatron_text(), "ds.json": deepspeed}, "megatron@0.16")
    (finding,) = found(checked, "check.other-framework")
    assert "DeepSpeed" in str(finding.message)
    assert not [each for each in found(checked, "megatron.unknown-key") if "ds.json" in each.message.path]
    batch = [each for each in checked.findings if "train_micro_batch_size_per_gpu" in str(each.message)]
    assert len(batch) == 1


def test_a_comment_in_json_is_an_error():
    text = picotron_text().replace('"seed": 1,', '"seed": 1, // fixed')
    checked = judged({"config.json": text}, "picotron")
    assert ids(checked, "error") == {"json.comment"}
