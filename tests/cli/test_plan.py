"""``plan``: what the search is asked, what is printed, what is written."""

from __future__ import annotations

import pytest
import yaml
from cli_case import CASE, instead


def test_the_search_gets_the_case_and_the_options(cli, search):
    options = "--top 3 --pin tp=2 --pin sp=true --risk exact --spare-nodes 0 --objective memory --precision fp8-cs"
    answer = cli("plan", *CASE, *options.split(), "--max-memory-ratio", "90%")
    assert answer.status == 0
    case, features, options = search.asked
    assert case.model.name == "llama3-8b"
    assert case.cluster.num_devices == 8
    assert case.batch.tokens == 128 * 8192
    assert case.training.precision.name == "fp8-cs"
    assert case.memory_ratio == 0.9
    assert features.name == "megatron"
    assert (options.top, options.objective, options.risk) == (3, "memory", "exact")
    assert options.pins == {"tp": "2", "sp": "on"}


def test_the_report_shows_the_winner_and_the_ranking(cli, search):
    printed = cli("plan", *CASE).out
    for words in ("llama3-8b", "8 x h100-sxm", "calibration shipped@", "Ranked plans", "Memory by stage", "Time of one step",
                  "10 legal layouts", "because"):
        assert words in printed
    assert "UNCALIBRATED" not in printed
    assert "UNCALIBRATED" in cli("plan", *CASE, "--calibration", "none").out


def test_json_is_one_document_with_the_request(cli, search):
    document = cli("plan", *CASE, "--pin", "tp=2", "--json").json
    assert document["request"]["model"] == "llama3-8b"
    assert document["request"]["precision"] == "bf16"
    assert document["legal"] == document["evaluated"] + document["bounded"]
    assert [plan["rank"] for plan in document["plans"]] == [1, 2]
    estimate = document["plans"][0]["estimate"]
    assert (estimate["calibrated"], estimate["calibration"].partition("@")[0]) == (True, "shipped")
    low, high = estimate["interval"]["step_s"]
    assert low < estimate["step_s"] < high
    assert 0.0 <= estimate["memory_fit_probability"] <= 1.0
    assert set(estimate["grades"]) >= {"step_s"}
    alone = cli("plan", *CASE, "--calibration", "none", "--json").json["plans"][0]["estimate"]
    assert (alone["calibrated"], alone["interval"]) == (False, None)


def test_nothing_fits_is_status_1_and_writes_nothing(cli, search, tmp_path):
    search.fits = False
    answer = cli("plan", *CASE, "--save", str(tmp_path / "out"))
    assert answer.status == 1
    assert "Nothing fits" in answer.out
    assert "buy more" in answer.out
    assert not (tmp_path / "out").exists()
    document = cli("plan", *CASE, "--json").json
    assert document["plans"] == []
    assert document["verdict"]["unmet"][0]["gap"] == 1e10


def test_comparison_with_a_layout_of_the_user(cli, search):
    printed = cli("plan", *CASE, "--compare", "tp8 mb1 zero1").out
    assert "Why not tp8 pp1 dp1 mb1" in printed
    assert "luck" in printed
    assert cli("plan", *CASE, "--compare", "tp8 mb1", "--json").json["comparison"]["rank"] == 2


def test_a_wrong_label_is_found_before_the_search(cli, search):
    answer = cli("plan", *CASE, "--compare", "tp3 mb1")
    assert answer.status == 2
    assert "3 does not divide" in answer.err
    assert search.asked is None


def test_faults_of_all_options_come_at_once(cli, search):
    where = "llama3-8 --device h100-sxm --nodes 0 --global-batch -4 --sequence 1e-5"
    options = "--pin tq=3 --precision bf17 --deadline-days 3 --risk none"
    answer = cli("plan", *where.split(), *options.split())
    assert answer.status == 2
    assert not answer.out
    for words in ("--nodes: 0 must", "--global-batch: -4 must", "--sequence: 1e-5 is not a whole number",
                  "unknown knob 'tq'", "unknown model 'llama3-8'; did you mean", "unknown precision 'bf17'",
                  "--deadline-days needs --tokens", "--risk: 'none' is none of"):
        assert sum(words in line for line in answer.lines) == 1, words
    assert len(answer.lines) == 8


def test_what_is_missing_is_said_at_once(cli):
    answer = cli("plan")
    assert answer.status == 2
    assert [line.split(":")[1].strip() for line in answer.lines] == [
        "MODEL is missing", "the cluster is missing", "--global-batch is missing", "--sequence is missing",
    ]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--pin", "tp=8", "--pin", "tp=4"], "tp is pinned to both 8 and 4"),
        (["--pin", "zero=0", "--pin", "shard=4"], "zero=0 and shard=4 contradict each other"),
        (["--pin", "vp=1", "--pin", "schedule=interleaved"], "schedule=interleaved and vp=1 contradict"),
        (["--pin", "tp=3"], "tp3 does not divide the 8 devices"),
        (["--pin", "tp=4", "--pin", "pp=4"], "tp4 x pp4 = 16 does not divide the 8 devices"),
        (["--pin", "tp=x"], "tp=x is wrong: a number from 1"),
        (["--pin", "zero=4"], "zero=4 is wrong: 0 to 3"),
        (["--pin", "recompute=ful"], "did you mean full?"),
        (["--pin", "tp"], "'tp' has no value: write tp=VALUE"),
        (["--device", "h100-sxm,a100-80g-sxm"], "mixed devices are not supported"),
        (["--cluster", "dgx-h100"], "leave out --device"),
        (["--max-memory-ratio", "1.2"], "must be above 0 and at most 1"),
        (["--reserve-memory-ratio", "100%"], "must be at least 0 and below 1"),
        (["--framework", "megatorn"], "did you mean megatron"),
        (["--lengths", "/nope.txt"], "/nope.txt: no such file"),
        (["--request", "/nope.yaml"], "/nope.yaml: no such file"),
        (["--save", "/etc/passwd"], "/etc/passwd: is a file"),
        (["--tokens", "0"], "0 must be at least 1"),
        (["--price-per-device-hour", "free"], "'free' is not a number"),
        (["--compare", ""], "--compare: an empty value"),
    ],
)
def test_bad_input_is_one_clear_line(cli, search, options, line):
    answer = cli("plan", *instead(CASE, options))
    assert answer.status == 2
    assert any(line in each for each in answer.lines), answer.err
    assert all(each.startswith("error: ") for each in answer.lines)
    assert search.asked is None


def test_save_writes_the_plan_and_the_launch_files(cli, search, tmp_path):
    out = tmp_path / "runs" / "first"
    answer = cli("plan", *CASE, "--pin", "tp=2", "--save", str(out))
    assert answer.status == 0, answer.err
    assert str(out / "plan.yaml") in answer.out
    document = yaml.safe_load((out / "plan.yaml").read_text())
    assert document["layout"] == "tp2 pp1 dp4 mb1 sp zero1"
    assert document["request"]["pin"] == {"tp": "2"}
    assert len(list(out.iterdir())) > 1, "the launch files are missing"
    assert [path.name for path in tmp_path.joinpath("runs").iterdir()] == ["first"], "left-overs"


def test_the_saved_plan_is_a_request_too(cli, search, tmp_path):
    assert cli("plan", *CASE, "--save", str(tmp_path)).status == 0
    saved = str(tmp_path / "plan.yaml")
    again = cli("estimate", "--request", saved, "--json")
    assert again.status == 0, again.err
    assert again.json["label"] == "tp2 pp1 dp4 mb1 sp zero1"
    assert cli("plan", "--request", saved, "--json").json["request"]["model"] == "llama3-8b"


def test_saving_twice_is_the_same_but_edits_are_kept(cli, search, tmp_path):
    assert cli("plan", *CASE, "--save", str(tmp_path)).status == 0
    assert cli("plan", *CASE, "--save", str(tmp_path)).status == 0
    (tmp_path / "plan.yaml").write_text("mine")
    answer = cli("plan", *CASE, "--save", str(tmp_path))
    assert answer.status == 2
    assert "plan.yaml: exists with other content; --force overwrites it" in answer.err
    assert (tmp_path / "plan.yaml").read_text() == "mine"
    assert cli("plan", *CASE, "--save", str(tmp_path), "--force").status == 0
    assert "tp2" in (tmp_path / "plan.yaml").read_text()


def test_export_writes_what_save_wrote(cli, search, tmp_path):
    saved, out = tmp_path / "saved", tmp_path / "out"
    assert cli("plan", *CASE, "--save", str(saved)).status == 0
    answer = cli("export", str(saved / "plan.yaml"), "--to", "megatron", "--out", str(out))
    assert answer.status == 0, answer.err
    paths = answer.out.split()
    assert paths
    for path in paths:
        name = path.removeprefix(f"{out}/")
        assert (out / name).read_text() == (saved / name).read_text()
    assert cli("export", str(saved), "--to", "megatron", "--out", str(out), "--json").json == {"files": paths}


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "PLAN is missing"),
        (["/nope", "--to", "megatron", "--out", "x"], "/nope: no such file"),
        (["{plan}", "--to", "megatorn", "--out", "x"], "did you mean megatron"),
        (["{other}", "--to", "megatron", "--out", "x"], "no 'layout'"),
        (["{bad}", "--to", "megatron", "--out", "x"], "unknown key 'reqest' of a plan; did you mean request?"),
    ],
)
def test_export_of_what_is_no_plan(cli, tmp_path, arguments, line):
    request = {"model": "llama3-8b", "device": "h100-sxm", "nodes": 1, "global_batch": 128, "sequence": 8192}
    files = {
        "plan": {"meshwright_plan": 1, "request": request, "layout": "tp2 zero1"},
        "other": request,
        "bad": {"meshwright_plan": 1, "reqest": request, "layout": "tp2"},
    }
    for name, document in files.items():
        (tmp_path / name).write_text(yaml.safe_dump(document))
    names = {name: str(tmp_path / name) for name in files}
    answer = cli("export", *(argument.format(**names) for argument in arguments))
    assert answer.status == 2
    assert line in answer.err


SMALL = ["llama3-8b", "--device", "h100-sxm", "--nodes", "2", "--global-batch", "64", "--sequence", "8192"]


@pytest.mark.parametrize("risk", ["exact", "equivalent", "approximate"])
def test_a_label_of_the_real_search_reads_back_as_its_layout(cli, risk):
    document = cli("plan", *SMALL, "--risk", risk, "--top", "3", "--json").json
    assert document["plans"]
    for plan in document["plans"]:
        again = cli("estimate", *SMALL, "--layout", plan["label"], "--json").json
        assert again["layout"] == plan["layout"]
        assert again["label"] == plan["label"]
        assert again["memory_reserved_bytes"] == plan["estimate"]["memory_reserved_bytes"]


def test_the_real_search_with_everything_that_can_be_asked(cli, tmp_path):
    asked = "--tokens 1T --deadline-days 9 --price-per-device-hour 2.5 --power-w 700 --min-devices"
    out = str(tmp_path / "out")
    answer = cli("plan", *SMALL, "--pin", "tp=2", "--compare", "tp4 mb1 sp zero1", *asked.split(), "--save", out)
    assert answer.status == 0, answer.err
    for words in ("Best plan  tp2", "Why not tp4 pp1 dp4 mb1 sp zero1?", "Training on 1T tokens", "Smallest number of devices",
                  "Written", "plan.yaml"):
        assert words in answer.out
    exported = cli("export", str(tmp_path / "out"), "--to", "megatron", "--out", str(tmp_path / "again"))
    assert exported.status == 0, exported.err
    written = [path for path in (tmp_path / "again").rglob("*") if path.is_file()]
    assert len(written) > 1
    for path in written:  # the framework stands at another place of the plan where --to has said it
        saved = (tmp_path / "out" / path.relative_to(tmp_path / "again")).read_text()
        assert sorted(path.read_text().splitlines()) == sorted(saved.splitlines())


def test_the_guides_way_stands_beside_the_best_plan(cli):
    asked = ["--guided", "--top", "1", "--no-balance"]
    document = cli("plan", *SMALL, *asked, "--tokens", "1T", "--price-per-device-hour", "2", "--json").json
    best, steps = document["plans"][0], document["guided"]
    assert {tuple(step) for step in steps} == {("step", "rule", "source", "choice", "estimate", "searched", "loss_ratio")}
    assert steps[0]["rule"] == "chatlearn.four-billion-start"
    assert "001:29" in steps[0]["source"]
    assert all(step["searched"]["label"] == best["label"] for step in steps)
    for step in steps:
        assert (step["loss_ratio"] is None) == (not step["estimate"]["fits"])
        effective = step["estimate"]["tokens_per_s_per_device"] * step["estimate"]["step_s"]
        busy = step["estimate"]["time"]["compute_s"] + step["estimate"]["time"]["optimizer_s"]
        assert step["estimate"]["effective_tokens_per_s_per_device"] == pytest.approx(effective / busy)
    assert steps[-1]["loss_ratio"] >= 0
    run, (low, high) = document["run"], best["estimate"]["interval"]["step_s"]
    for name in ("days", "device_hours", "cost", "energy_kwh"):
        step_s = best["estimate"]["step_s"]
        assert run["intervals"][name] == pytest.approx([run[name] * low / step_s, run[name] * high / step_s])
    printed = cli("plan", *SMALL, *asked).out
    assert "As the ChatLearn guide goes" in printed
    assert f"the guide ends at {steps[-1]['estimate']['label']}" in " ".join(printed.split())


def test_the_guides_way_takes_no_pins(cli):
    answer = cli("plan", *SMALL, "--guided", "--pin", "tp=2")
    assert (answer.status, answer.out) == (2, "")
    assert "leave out --pin and --objective" in answer.err


def test_the_real_search_says_why_nothing_fits(cli):
    where = "llama2-7b --device rtx-4090 --devices 1 --global-batch 8 --sequence 4096"
    answer = cli("plan", *where.split())
    assert answer.status == 1, answer.err
    assert "short of" in answer.out
    assert cli("plan", *where.split(), "--json").json["verdict"]["unmet"][0]["gap"] > 0


def test_a_batch_that_nothing_divides_is_bad_input(cli):
    answer = cli("plan", "llama3-70b", "--device", "h100-sxm", "--nodes", "64", "--global-batch", "7", "--sequence", "8191")
    assert answer.status == 2
    assert answer.lines
    assert not answer.out
