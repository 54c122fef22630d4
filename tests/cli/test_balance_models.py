"""``balance`` on a model with a layout: seconds and bytes of the cost model, a layout as the answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from cli_case import CASE

import meshwright as mw

pytestmark = pytest.mark.usefixtures("alone")

PIPELINE = (*CASE, "--layout", "tp2 pp4 mb1 sp zero1", "--time-limit", "3")
TIGHT = ("llama3-8b", "--device", "h100-sxm", "--nodes", "1", "--global-batch", "64", "--sequence", "32768", "--time-limit", "3")


def test_the_answer_is_a_layout_in_seconds_and_bytes(cli):
    found = cli("balance", *PIPELINE, "--json").json
    assert found["units"] == {"time": "s", "memory": "bytes"}
    assert found["slot_time_s"] == found["slot_time"]
    assert found["simulated_time_s"] == found["simulated_time"]
    assert all(isinstance(size, int) for size in found["stage_memory_bytes"])
    assert sum(map(sum, found["stage_layers"])) == 32
    assert found["layout"]["stage_layers"] in (None, found["stage_layers"])
    assert found["given"]["label"].startswith("tp2 pp4")
    assert found["step_s"] <= found["given"]["step_s"] * (1 + 1e-9)
    assert found["fits"]


def test_the_label_estimates_to_the_step_that_is_said(cli):
    found = cli("balance", *PIPELINE, "--json").json
    estimate = cli("estimate", *CASE, "--layout", found["label"], "--json").json
    assert estimate["step_s"] == pytest.approx(found["step_s"])
    assert max(found["stage_memory_bytes"]) == pytest.approx(estimate["memory_reserved_bytes"], rel=1e-6)


def test_the_given_layout_stands_beside_the_answer(cli):
    (given,) = cli("balance", *PIPELINE, "--json").json["compared"]
    assert given["name"] == "the layout as given"
    assert given["stage_layers"] == [[8, 8, 8, 8]]
    assert given["change_ratio"] >= -1e-9


def test_what_does_not_fit_as_given_is_made_to_fit(cli):
    found = cli("balance", *TIGHT, "--layout", "tp2 pp4 mb1 sp zero1", "--json").json
    assert not found["given"]["fits"]
    assert found["fits"]
    assert any(map(any, found["recompute"]["full"]))
    assert max(found["stage_memory_bytes"]) <= found["stages"][0]["memory_bytes"] + found["stages"][0]["memory_slack_bytes"]


def test_what_is_counted_on_is_what_the_layout_says(cli):
    """Dense layers come first and are recomputed first; a search that recomputes mixtures alone counts on memory that is held."""
    place = ("--device", "ascend-910b", "--devices", "1024", "--global-batch", "2048", "--sequence", "4096")
    options = ("--framework", "mindformers", "--time-limit", "3", "--json")
    found = cli("balance", "deepseek-v3", *place, "--layout", "tp2 pp16 ep32 mb1 sp zero2 recompute=full", *options).json
    estimate = cli("estimate", "deepseek-v3", *place, "--layout", found["label"], *options[:2], "--json").json
    assert found["fits"]
    assert max(found["stage_memory_bytes"]) == pytest.approx(estimate["memory_reserved_bytes"], rel=1e-6)


@pytest.mark.parametrize(
    ("framework", "device", "sequence"),
    [("mindformers", "ascend-910b", 16384), ("megatron", "h100-sxm", 32768), ("torchtitan", "h100-sxm", 8192)],
)
def test_the_settings_are_those_of_the_adapter(cli, framework, device, sequence):
    place = ("--device", device, "--nodes", "1", "--global-batch", "64", "--sequence", str(sequence), "--framework", framework)
    found = cli("balance", "llama3-8b", *place, "--layout", "tp2 pp4 mb1 sp zero1", "--time-limit", "3", "--json")
    assert found.status == 0, found.err
    runner = mw.framework(framework)
    ((title, words),) = found.json["emitted"].items()
    assert title.startswith(runner.title)
    assert not words["lacks"]
    cluster = mw.cluster_for(device, nodes=1)
    case = mw.make_case("llama3-8b", cluster, global_batch_sequences=64, sequence_tokens=sequence, framework=framework)
    layout = mw.parse_layout(found.json["label"], num_devices=8, global_batch_sequences=64, model=case.model)
    decided = runner.decide(case, layout, runner.version)
    for key, value in words["settings"].items():
        assert json.loads(json.dumps(value)) == json.loads(json.dumps(decided[key]))
    assert not runner.check(case, layout)


def test_one_treatment_is_left_where_the_framework_has_no_counts(cli):
    found = cli("balance", *TIGHT, "--layout", "tp2 pp4 mb1 sp zero1 recompute=full", "--framework", "picotron", "--json")
    assert found.status in {0, 2}
    if found.status == 0:
        assert found.json["layout"]["recompute"] in {"none", "full"}


def test_virtual_stages_of_a_model_are_ranked(cli):
    found = cli("balance", *PIPELINE, "--virtual-stages", "1,2,3", "--json").json
    times = [row["simulated_time"] for row in found["ranking"]]
    assert times == sorted(times)
    assert {row["virtual_stages"] for row in found["ranking"]} | {row["virtual_stages"] for row in found["refused"]} == {1, 2, 3}


def test_a_saved_plan_is_balanced_and_saved_again(cli, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    answer = cli("balance", *PIPELINE, "--save", str(first), "--json")
    assert answer.status == 0, answer.err
    names = {Path(path).name for path in answer.json["saved"]}
    assert {"plan.yaml", "balance.json", "pipeline.svg", "pipeline.trace.json"} < names
    plan = yaml.safe_load((first / "plan.yaml").read_text())
    assert plan["layout"] == answer.json["label"]
    again = cli("balance", str(first), "--time-limit", "3", "--save", str(second), "--json")
    assert again.status == 0, again.err
    assert again.json["simulated_time"] == pytest.approx(answer.json["simulated_time"], rel=0.01)
    assert cli("balance", "--request", str(first / "plan.yaml"), "--time-limit", "3", "--json").status == 0


def test_a_run_corrects_the_model(cli, tmp_path):
    """A last stage that took longer than the model says loses layers; one that held more recomputes or loses them."""
    found = cli("balance", *PIPELINE, "--json").json
    question = (*CASE, "--layout", found["label"], "--time-limit", "3", "--measured", str(tmp_path / "measured.yaml"), "--json")

    def corrected(measured):
        (tmp_path / "measured.yaml").write_text(yaml.safe_dump(measured))
        return cli("balance", *question).json

    times = [stage["slot_time"] for stage in found["stages"]]
    assert corrected({"stage_time_s": times})["simulated_time"] == pytest.approx(found["simulated_time"], rel=0.01)
    slow = corrected({"stage_time_s": [*times[:3], 2 * times[3]]})
    assert slow["stage_layers"][0][3] < found["stage_layers"][0][3]
    held = [78_000_000_000, 40_000_000_000, 40_000_000_000, 40_000_000_000]
    full = corrected({"stage_memory_bytes": held})
    assert full["compared"][0]["stage_memory_bytes"] == held
    assert not full["compared"][0]["fits"]
    assert full["stage_memory_bytes"][0] < held[0]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("stage_time_s: [1, 2]", "no list of 4 numbers"),
        ("stage_time_s: [1, 2, 3, -1]", "is not above 0"),
        ("stage_time_s: [1, 2, 3, .nan]", "stage_time_s"),
        ("stage_times: [1, 2, 3, 4]", "stage_times"),
        ("{}", "neither this nor"),
        ("[]", "keys with values"),
    ],
)
def test_bad_measurements_are_one_line(cli, tmp_path, text, word):
    path = tmp_path / "measured.yaml"
    path.write_text(text)
    answer = cli("balance", *PIPELINE, "--measured", str(path))
    assert answer.status == 2
    assert len(answer.lines) == 1
    assert word in answer.err


def test_nothing_fits_has_levers(cli):
    answer = cli("balance", "llama3-70b", *CASE[1:], "--layout", "tp2 pp4 mb1 sp", "--json")
    assert answer.status == 1
    verdict = answer.json
    assert verdict["gap_bytes"] == pytest.approx(verdict["demand_bytes"] - verdict["bound_bytes"], abs=1)
    assert "--min-devices" in verdict["levers"][0]
    more = ("llama3-70b", "--device", "h100-sxm", "--nodes", "4", "--global-batch", "32", "--sequence", "8192")
    _, behind, levers = cli("balance", *more, "--layout", "tp2 pp4 mb1 sp").out.partition("What would close the gap")
    assert behind and "tp 2 -> 8: fits" in levers


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (CASE, "--layout is missing"),
        ((*CASE, "--layout", "tp2"), "pp1 has one stage"),
        ((*PIPELINE, "--stages", "4"), "--stages: goes with a file of layers"),
        ((*PIPELINE, "--memory-mb", "4"), "--memory-mb: goes with a file of layers"),
        ((*CASE, "--layout", "tp2 pp3"), "does not divide"),
        (("no-such-model", *CASE[1:], "--layout", "pp4"), "no-such-model"),
        ((*PIPELINE, "--virtual-stages", "40"), "do not split"),
    ],
)
def test_bad_input_is_one_line(cli, options, word):
    answer = cli("balance", *options)
    assert answer.status == 2
    assert not answer.out
    assert len(answer.lines) == 1
    assert word in answer.err


def test_the_calls_of_the_library_are_those_of_the_verb(cli, tmp_path):
    from balance_layer_files import ls1

    cluster = mw.cluster_for("h100-sxm", nodes=1)
    case = mw.make_case("llama3-8b", cluster, global_batch_sequences=128, sequence_tokens=8192)
    layout = mw.parse_layout("tp2 pp4 mb1 sp zero1", num_devices=8, global_batch_sequences=128, model=case.model)
    balanced, found = mw.balance_layout(case, layout, time_limit_s=3.0)
    said = cli("balance", *PIPELINE, "--json").json
    assert found.best.simulated_time == pytest.approx(said["simulated_time"], rel=0.01)
    assert balanced.stage_layers == found.best.layers
    answer = mw.balance_layers(ls1(tmp_path), stages=16, microbatches=16, memory_mb=53_000)
    assert answer.best.slot_time == 3780
    assert isinstance(mw.balance_layers(ls1(tmp_path), stages=4, microbatches=16, memory_mb=5_000), mw.Overfull)


ASCEND = ("llama2-13b", "--layers", "16", "--device", "ascend-910b", "--nodes", "2", "--global-batch", "128", "--sequence", "4096")
PROPOSED = {
    "core-ms": (*ASCEND, "--framework", "mindspeed-core-ms", "--layout", "tp2 pp4 vp2 mb8 sp zero1"),
    "core-ms-flat": (*ASCEND, "--framework", "mindspeed-core-ms", "--layout", "tp2 pp4 mb8 sp zero1"),
    "mindspeed-llm": (*ASCEND, "--framework", "mindspeed-llm", "--layout", "tp2 pp4 vp2 mb8 sp zero1"),
    "megatron": (*TIGHT[:-2], "--framework", "megatron", "--layout", "tp2 pp4 vp2 mb1 sp zero1"),
}


@pytest.mark.parametrize("name", PROPOSED)
def test_what_is_proposed_fits_and_the_framework_can_say_it(cli, name):
    """Of 54.9 GiB 66.3 were proposed, modules that a dense model has not, and what the framework "cannot"."""
    asked = (*PROPOSED[name], "--time-limit", "2")
    found = cli("balance", *asked, "--json").json
    assert found["fits"] and not found["given"]["fits"]
    assert found["memory_fit_probability"] >= 0.5 and found["fit_probability"] > 0.0
    (words,) = found["emitted"].values()
    assert words["settings"] and not words["lacks"]
    case = [word for word in asked[: asked.index("--layout")] if word]
    estimate = cli("estimate", *case, "--layout", found["label"], "--json").json
    assert estimate["fits"] and estimate["step_s"] == pytest.approx(found["step_s"])
    assert estimate["memory_reserved_bytes"] <= estimate["memory_capacity_bytes"]
    assert "moe" not in found["label"] and "mla" not in found["label"]
    if name == "core-ms-flat":
        shown = cli("balance", *asked).out
        assert "fits with " in shown and " probability" in shown and "cannot" not in shown

