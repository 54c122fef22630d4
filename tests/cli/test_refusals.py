"""Cases that would be planned for another cluster, or could not run, are refused or said."""

import pytest

CASE = ("plan", "llama3-8b", "--global-batch", "128", "--sequence", "4096", "--top", "2")


@pytest.mark.parametrize("place", [("--device", "h100-sxm"), ("--cluster", "p5")])
def test_devices_that_are_no_whole_nodes_are_refused(cli, place):
    answer = cli(*CASE, *place, "--devices", "13")
    assert answer.status == 2
    assert len(answer.lines) == 1
    assert "devices=13 are no whole nodes of 8: 8 or 16" in answer.err


def test_a_recipe_that_needs_newer_hardware_is_refused(cli):
    assert cli(*CASE, "--device", "h100-sxm", "--nodes", "4", "--precision", "fp8-mx").status == 2
    assert cli(*CASE, "--device", "b200", "--nodes", "4", "--precision", "fp8-mx").status == 0


def test_a_device_without_the_data_type_says_what_it_runs(cli):
    answer = cli(*CASE, "--device", "v100-32g", "--nodes", "4")
    assert answer.status == 2
    assert answer.lines == ["error: --precision: v100-32g does not run bf16; it runs fp16"]


@pytest.mark.parametrize(("model", "most", "sequence"), [("gpt2", "1,024", "2048"), ("gpt3-175b", "2,048", "4096")])
def test_a_sequence_beyond_the_learned_positions_is_refused_with_both_figures(cli, model, most, sequence):
    answer = cli("plan", model, "--device", "h100-sxm", "--nodes", "1", "--global-batch", "64", "--sequence", sequence)
    assert answer.status == 2
    assert answer.lines == [
        f"error: --sequence: {model} has learned {most} positions: a sequence of {int(sequence):,} tokens has none beyond"
    ]


def test_plans_of_the_asked_framework_are_ones_that_it_runs(cli):
    answer = cli(*CASE, "--device", "h100-sxm", "--nodes", "4", "--optimizer", "muon", "--json")
    assert answer.status == 0
    for plan in answer.json["plans"]:
        assert 0.5 <= plan["estimate"]["memory_fit_probability"] <= 1.0
        assert 0.0 < plan["estimate"]["fit_probability"] <= plan["estimate"]["memory_fit_probability"]
    assert not [note for note in answer.json["notes"] if "cannot run" in note]


def test_what_the_default_framework_cannot_run_is_planned_for_one_that_does(cli, tmp_path):
    answer = cli(*CASE, "--device", "a100-80g-sxm", "--nodes", "1", "--task", "lora", "--json", "--save", str(tmp_path / "run"))
    assert answer.status == 0
    assert all(plan["estimate"]["fit_probability"] > 0.0 for plan in answer.json["plans"])
    assert {"plan.yaml", "launch.sh"} <= {path.name for path in (tmp_path / "run").iterdir()}
    assert "framework: bridge" in (tmp_path / "run" / "plan.yaml").read_text(encoding="utf-8")
    assert cli(*CASE, "--device", "a100-80g-sxm", "--nodes", "1", "--task", "lora", "--framework", "megatron").status == 2


def test_sequence_parallelism_that_is_pinned_on_needs_tensor_parallelism(cli):
    answer = cli(*CASE, "--device", "h100-sxm", "--nodes", "1", "--pin", "sp=on", "--json")
    assert all(plan["layout"]["tensor_parallel"] > 1 for plan in answer.json["plans"])


def test_the_smallest_number_of_devices_may_be_part_of_a_node(cli):
    answer = cli("plan", "llama3-8b", "--device", "h100-sxm", "--nodes", "1", "--global-batch", "128", "--sequence", "8192",
                 "--min-devices", "--json")
    assert answer.json["min_devices"]["fits"]["devices"] < 8


def test_an_estimate_has_the_linearity_of_the_plan(cli):
    case = ("llama3-8b", "--device", "h100-sxm", "--nodes", "2", "--global-batch", "128", "--sequence", "8192", "--json")
    best = cli("plan", *case).json["plans"][0]
    alone = cli("estimate", *case, "--layout", best["label"]).json
    assert abs(alone["linearity_ratio"] - best["estimate"]["linearity_ratio"]) < 1e-6
    assert alone["step_s"] == best["estimate"]["step_s"]


def test_a_case_that_the_default_never_trains_is_a_no_also_where_nothing_fits(cli):
    """What would bring it in is not asked of a framework that does not run on the device."""
    case = ("deepseek-v3", "--device", "ascend-910c", "--nodes", "1", "--global-batch", "64", "--sequence", "4096")
    answer = cli("plan", *case)
    assert answer.status == 1
    assert "Megatron-LM does not run on ascend-910c" in answer.err
    assert "mindspeed-llm" in answer.err
