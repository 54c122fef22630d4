"""The framework's rules, the model's figures, contradictions, memory, waste and the environment."""

from __future__ import annotations

from dataclasses import replace

import pytest
from check_cases import case_of, found, ids, judged, megatron, megatron_text, picotron, picotron_text

from meshwright.api import check_files
from meshwright.check import Question, check, likely_models
from meshwright.check.rules import limits
from meshwright.errors import Message
from meshwright.frameworks import File, framework
from meshwright.frameworks.settings import Given


def test_a_limit_is_an_error_in_the_frameworks_words_with_the_nearest_value_that_it_takes():
    case = case_of("llama3-8b", "h100-sxm", 16, 128, 4096, "picotron")
    text = picotron_text({"distributed.tp_size": 16, "distributed.dp_size": 1, "training.gradient_accumulation_steps": 128})
    checked = judged({"config.json": text}, "picotron", case)
    (finding,) = found(checked, "picotron.key-value-heads")
    assert finding.severity == "error"
    assert str(finding.message).endswith("num_key_value_heads should be divisible by  tp world size")
    assert finding.expected == "tp 16 -> 8"
    assert "when it starts" in finding.source


def test_what_no_limit_says_the_features_of_the_framework_say():
    """A framework that has no pipelines in its features and no words of its own for them."""
    case = case_of("llama3-8b", "h100-sxm", 16, 128, 4096, "picotron")
    named = framework("picotron")
    poor = replace(named, limits=(), features=replace(named.features, pipeline_parallel=False))
    text = picotron_text({"distributed.pp_size": 2, "distributed.dp_size": 2, "training.gradient_accumulation_steps": 64})
    reading = named.read([File(path="config.json", text=text)], given=Given(num_devices=16, model=case.model))
    for judge, expected in ((named, []), (poor, ["the framework has no pipeline parallelism"])):
        checked = check(Question(framework=judge, reading=reading, case=case, model=case.model), (limits,))
        assert [each.message.values["reason"] for each in checked.findings] == expected


def test_without_a_case_limits_are_skipped_and_that_is_said():
    checked = picotron({"distributed.tp_size": 3}, alone=True)
    assert checked.ok
    assert len(checked.skipped) == 1
    assert "--model" in checked.skipped[0]


def test_figures_that_recognise_a_model_suggest_it():
    checked = megatron(alone=True)
    assert any("llama2-70b" in line for line in checked.skipped)
    other = judged({"train.sh": megatron_text({"--ffn-hidden-size": 28673})}, "megatron@0.16")
    assert not any("llama2-70b" in line for line in other.skipped)


def test_too_few_figures_recognise_nothing():
    reading = framework("picotron").read([File(path="c.json", text=picotron_text())], given=Given())
    assert likely_models(reading) == ()


@pytest.mark.parametrize(
    ("flag", "value", "figure", "expected"),
    [
        ("--num-layers", 76, "layers", 80),
        ("--hidden-size", 4096, "hidden", 8192),
        ("--num-query-groups", 16, "key_value_heads", 8),
        ("--ffn-hidden-size", 32768, "ffn", 28672),
    ],
)
def test_a_figure_that_is_not_the_models(flag, value, figure, expected):
    findings = found(megatron({flag: value}), "check.model-figure")
    assert (value, expected) in [(each.value, each.expected) for each in findings]
    assert figure in [each.message.values["name"] for each in findings]


def test_a_layout_that_does_not_fit_is_an_error_with_bytes_and_another_layout():
    checked = megatron({"--tensor-model-parallel-size": 1, "--sequence-parallel": None, "--pipeline-model-parallel-size": 2})
    (finding,) = found(checked, "check.memory")
    assert finding.severity == "error"
    assert finding.value > finding.expected > 70 * 2**30
    (better,) = found(checked, "check.better")
    assert "fits" in str(better.message)
    assert "--tensor-model-parallel-size 1 -> " in str(better.message)


def test_waste_names_the_keys_and_is_silent_for_the_best():
    slow = megatron({"--recompute-granularity": "full", "--recompute-method": "uniform", "--recompute-num-layers": 1})
    (finding,) = found(slow, "check.better")
    assert "remove --recompute-method" in str(finding.message)
    assert finding.severity == "advice"
    case = case_of("llama2-70b", "h100-sxm", 64, 256, 4096, "megatron")
    best = judged({"train.sh": _best_script(case)}, "megatron@0.16", case)
    assert not found(best, "check.better")


def _best_script(case) -> str:
    from meshwright.api import find_plans

    named = framework("megatron@0.16")
    layout = find_plans(case, framework="megatron@0.16").plans[0].layout
    return next(file.text for file in named.write(case, layout) if file.executable)


def test_a_bubble_is_named_with_its_share():
    checked = judged(
        {"train.sh": megatron_text({"--global-batch-size": 16})}, "megatron@0.16",
        case_of("llama2-70b", "h100-sxm", 64, 16, 4096, "megatron"),
    )
    (finding,) = found(checked, "check.bubble")
    assert 0.1 < finding.value < 0.6
    assert finding.message.path.startswith("train.sh:")


@pytest.mark.parametrize(
    ("variable", "value", "quiet"),
    [
        ("NCCL_DEBUG", "INFO", "WARN"),
        ("NCCL_IB_DISABLE", "1", "0"),
        ("NCCL_P2P_DISABLE", "1", "0"),
        ("CUDA_LAUNCH_BLOCKING", "1", "0"),
        ("TORCH_DISTRIBUTED_DEBUG", "DETAIL", "OFF"),
    ],
)
def test_leftovers_of_debugging(variable, value, quiet):
    def findings(setting: str) -> list[str]:
        checked = megatron(environment={variable: setting}, alone=True)
        return [each.message.words for each in checked.findings if each.message.words.startswith(f"{variable}={setting}")]

    assert len(findings(value)) == 1, "the framework's rule and the general one say the same: it is said once"
    assert not findings(quiet)


def test_an_allocator_that_is_told_two_things():
    both = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "PYTORCH_ALLOC_CONF": "max_split_size_mb:512"}
    assert found(megatron(environment=both, alone=True), "environment.allocator")
    same = dict.fromkeys(both, "expandable_segments:True")
    assert not found(megatron(environment=same, alone=True), "environment.allocator")


def test_what_was_asked_wins_over_the_files_and_is_an_error():
    named = framework("picotron")
    reading = named.read([File(path="c.json", text=picotron_text())], given=Given())
    case = case_of("llama3-8b", "h100-sxm", 16, 256, 4096, "picotron")
    checked = check(Question(framework=named, reading=reading, case=case, model=case.model, asked={"global_batch_sequences": 256}))
    (finding,) = found(checked, "check.contradiction")
    assert (finding.value, finding.expected) == (128, 256)
    assert checked.estimate is not None
    assert checked.estimate.layout.num_microbatches == 64


def test_more_devices_than_the_cluster_has():
    named = framework("picotron")
    reading = named.read([File(path="c.json", text=picotron_text())], given=Given())
    case = case_of("llama3-8b", "h100-sxm", 8, 128, 4096, "picotron")
    checked = check(Question(framework=named, reading=reading, case=case, model=case.model))
    assert "check.devices" in ids(checked, "error")
    assert checked.estimate is None


def test_files_without_a_layout_say_why_as_errors():
    checked = picotron({"training.micro_batch_size": 0})
    assert "setting.degree" in ids(checked, "error")
    assert checked.estimate is None
    assert any("no layout" in line for line in checked.skipped)


def test_what_no_case_can_be_is_an_error():
    named = framework("picotron")
    reading = named.read([File(path="c.json", text=picotron_text())], given=Given())
    message = Message("batch.positive", "sequence={value} must be at least 1", {"value": -5})
    assert ids(check(Question(framework=named, reading=reading, impossible=(message,))), "error") == {"check.impossible"}


def test_findings_come_worst_first_and_each_once():
    checked = megatron({"--use-fused-kernels": True, "--num-layers": 40}, environment={"NCCL_DEBUG": "INFO"})
    order = [("error", "warning", "advice").index(each.severity) for each in checked.findings]
    assert order == sorted(order)
    texts = [str(each.message) for each in checked.findings]
    assert len(texts) == len(set(texts))


def test_the_library_reads_and_judges_files(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(picotron_text({"distributed.dp_size": 2}))
    case = case_of("llama3-8b", "h100-sxm", 16, 128, 4096, "picotron")
    assert not check_files([path], "picotron", case=case).ok
    path.write_text(picotron_text())
    assert check_files([path], "picotron", case=case, claims={"mfu": 0.4}).ok
