"""``balance`` on SAPP's layer files: answers, their JSON, what is written, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import yaml
from balance_layer_files import BODY, DRY_RUNS, HEAD, KINDS, LEAST_SQUARES, TAIL, ls1, written

import meshwright as mw
from meshwright.api.balancing.beside import beside
from meshwright.frameworks.ascend.recompute_lists import LISTS, kinds_of_lists
from meshwright.frameworks.stage_lists import KINDS as LIST_KINDS
from meshwright.readers.sapp import problem, read_layer_file
from meshwright.search.balance.climb import shifts
from meshwright.search.balance.memory import stage_memory
from meshwright.search.balance.solve import balance, place

T1 = ("--stages", "16", "--microbatches", "16", "--memory-mb", "53000")
SMALL = ("--stages", "4", "--microbatches", "8", "--memory-mb", "60000")
SMALL_BODY = {"nb_layer": 18}


def test_t1_is_at_least_as_good_as_its_golden(cli, tmp_path):
    answer = cli("balance", ls1(tmp_path), *T1, "--json")
    assert answer.status == 0
    found = answer.json
    assert (found["status"], found["gap_ratio"], found["slot_time"]) == ("optimal", 0.0, 3780.0)
    assert found["simulated_time"] <= 110_070
    assert found["simulated_bound"] <= found["simulated_time"]
    assert [sum(row) for row in found["stage_layers"]] == [96]
    assert max(found["stage_memory_mb"]) <= 53_000
    assert set(found["recompute"]) == {"full"}


def test_the_figures_of_an_answer_follow_from_its_counts(cli, tmp_path):
    path = ls1(tmp_path)
    found = cli("balance", path, *T1, "--json").json
    layers, full = found["stage_layers"][0], found["recompute"]["full"][0]
    held = [16 - stage for stage in range(16)]
    ends = [11000, *[0] * 14, 2473]
    memory = [
        end + 1583 * n + flying * (826 * (n - k) + 32 * k) for end, n, k, flying in zip(ends, layers, full, held, strict=True)
    ]
    assert found["stage_memory_mb"] == pytest.approx(memory)
    head = [90, *[0] * 14, 270]
    slots = [540 * n + 180 * k + end for n, k, end in zip(layers, full, head, strict=True)]
    assert found["slot_time"] == max(slots)
    assert [stage["slot_slack"] for stage in found["stages"]] == [max(slots) - slot for slot in slots]
    assert [stage["memory_slack_mb"] for stage in found["stages"]] == pytest.approx([53_000 - each for each in memory])
    busy = [stage["busy_ratio"] * found["simulated_time"] for stage in found["stages"]]
    assert busy == pytest.approx([16 * slot for slot in slots])


def test_every_figure_of_the_contract_and_more(cli, tmp_path):
    found = cli("balance", ls1(tmp_path, body=SMALL_BODY), *SMALL, "--virtual-stages", "2", "--json").json
    assert [len(row) for row in found["stage_layers"]] == [4, 4]
    assert [len(row) for row in found["recompute"]["full"]] == [4, 4]
    assert isinstance(found["solve_s"], float)
    assert len(found["stage_memory_mb"]) == 4
    bubble = found["bubble"]
    parts = [bubble[f"{name}_ratio"] for name in ("ideal", "imbalance", "recompute", "communication")]
    assert bubble["total_ratio"] == pytest.approx(sum(parts))
    assert bubble["ideal_ratio"] == pytest.approx(3 / (8 * 2))
    assert found["schedule"] == "interleaved"
    for other in (*found["others"], *found["compared"]):
        assert other["change_ratio"] == pytest.approx(other["simulated_time"] / found["simulated_time"] - 1)
    assert all(other["change_ratio"] >= 0 for other in found["others"])


def test_what_is_not_recomputed_is_not_slower(cli, tmp_path):
    """More memory never makes the shortest slot longer; less of it never shorter."""
    slots = [
        cli("balance", ls1(tmp_path, body=SMALL_BODY), "--stages", "4", "--microbatches", "8", "--memory-mb", bound, "--json").json
        for bound in ("20000", "30000", "60000")
    ]
    assert slots[0]["slot_time"] >= slots[1]["slot_time"] >= slots[2]["slot_time"]


def test_the_fastest_of_all_is_not_slower_than_that_of_the_shortest_slot(cli, tmp_path):
    slot = cli("balance", ls1(tmp_path), *T1, "--json").json
    fastest = cli("balance", ls1(tmp_path), *T1, "--objective", "simulated", "--json").json
    assert fastest["simulated_time"] <= slot["simulated_time"]
    assert fastest["slot_time"] >= slot["slot_time"]
    assert slot["faster"] is None or slot["faster"]["simulated_time"] < slot["simulated_time"]


def test_status_and_gap_are_those_of_the_answer(cli, tmp_path):
    """Of the fastest pipeline, whose slot is not the shortest, the proved bound is that of pipelines."""
    found = cli("balance", ls1(tmp_path), *T1, "--objective", "simulated", "--json").json
    assert found["slot_time"] > found["slot_found"]
    assert found["slot_gap_ratio"] == 0.0
    assert found["status"] == "gap"
    assert found["gap_ratio"] == pytest.approx(1 - found["simulated_bound"] / found["simulated_time"])


def test_virtual_stages_are_ranked_by_simulated_time(cli, tmp_path):
    path = ls1(tmp_path, body=SMALL_BODY)
    found = cli("balance", path, *SMALL, "--virtual-stages", "1,2,9", "--json").json
    assert sorted(row["virtual_stages"] for row in found["ranking"]) == [1, 2]
    times = [row["simulated_time"] for row in found["ranking"]]
    assert times == sorted(times)
    assert found["simulated_time"] == times[0]
    assert len(found["stage_layers"]) == found["ranking"][0]["virtual_stages"]
    assert [row["virtual_stages"] for row in found["refused"]] == [9]
    printed = cli("balance", path, *SMALL, "--virtual-stages", "auto").out
    assert "virtual stages" in printed


def test_the_report_says_what_the_answer_is(cli, tmp_path):
    printed = cli("balance", ls1(tmp_path), *T1).out
    for words in ("96 layers on 16 stages", "slot 3,780", "optimal: no slot is shorter", "imbalance", "recomputation",
                  "second best", "MindFormers", "offset: [", "num_layer_list: ["):
        assert words in printed, words
    assert "Megatron-LM  cannot: recomputing" in printed


def test_a_framework_gets_what_it_can_say(cli, tmp_path):
    found = cli("balance", ls1(tmp_path), *T1, "--framework", "megatron", "--json").json
    ((name, words),) = found["emitted"].items()
    assert name == "Megatron-LM"
    assert not words["lacks"]
    assert (
        len({min(k, n) == k or k == n for k, n in zip(found["recompute"]["full"][0], found["stage_layers"][0], strict=True)}) == 1
    )
    assert words["settings"]["--recompute-num-layers"] == max(found["recompute"]["full"][0])
    assert max(found["stage_memory_mb"]) <= 53_000


@pytest.mark.parametrize("framework", ["picotron", "torchtitan"])
def test_a_framework_without_counts_treats_all_layers_alike(cli, tmp_path, framework):
    found = cli("balance", ls1(tmp_path, body=SMALL_BODY), "--stages", "4", "--microbatches", "8", "--memory-mb", "25000",
                "--framework", framework, "--json").json
    assert found["recompute"] in ({}, {"full": found["stage_layers"]}) or not any(map(any, found["recompute"]["full"]))


def test_five_ways_of_recomputing(cli, tmp_path):
    found = cli("balance", ls1(tmp_path, body={**SMALL_BODY, **KINDS}), "--stages", "4", "--microbatches", "8",
                "--memory-mb", "21000", "--json").json
    assert set(found["recompute"]) == {"selective", "communication", "both", "full"}
    for stage, layers in enumerate(found["stage_layers"][0]):
        assert sum(grid[0][stage] for grid in found["recompute"].values()) <= layers


def test_lists_get_an_answer_that_they_can_say(tmp_path):
    """Selective beside communication in one chunk has no lists: the nearest that has stands beside the answer, or is the answer."""
    asked = problem(read_layer_file(ls1(tmp_path, body={"nb_layer": 24, **KINDS})), stages=4, microbatches=16, memory_mb=32_000)
    counts = np.zeros((1, 5, 1, 4), dtype=np.int64)
    counts[0, :, 0, :] = ((0, 3, 4, 6), (2, 2, 2, 0), (2, 1, 0, 0), (1, 0, 0, 0), (1, 0, 0, 0))
    answer = balance(asked, time_limit_s=1.0)
    crossing = beside(replace(answer, best=place(asked, counts), others=(), faster=None), None, ())
    assert crossing.rivals[0].name == "as lists can say it"
    assert crossing.rivals[0].fits
    said = {words.framework: words for words in crossing.words}
    assert not said["MindFormers graph mode"].lacks
    assert crossing.balance.best.treated(1) == ((2, 2, 2, 0),)
    alone = beside(replace(answer, best=place(asked, counts), others=(), faster=None), mw.framework("mindformers@graph"), ())
    best = alone.balance.best
    assert best.counts.tobytes() == crossing.rivals[0].placement.counts.tobytes()
    (words,) = alone.words
    settings = {key: (tuple(value),) for key, value in words.settings.items() if key in LISTS and value}
    kinds = kinds_of_lists(settings, best.layers, behind_full=False)
    for index, name in enumerate(asked.treatments[1:], start=1):
        assert kinds[LIST_KINDS[name]] == best.treated(index)


def test_strategies_made_by_hand_stand_beside_the_answer(cli, tmp_path):
    offset = [-1, 0, -1, -1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 0]
    full = [3, 3, 2, 2, 2, 2, 1, 1, *[0] * 8]
    golden = {"offset": offset, "recompute": full, "select_recompute": False, "select_comm_recompute": False}
    manual = written(tmp_path / "manual.yaml", yaml.safe_dump({"golden": golden}))
    found = cli("balance", ls1(tmp_path), *T1, "--manual", manual, "--json").json
    (golden,) = [row for row in found["compared"] if row["name"] == "golden"]
    assert golden["simulated_time"] == 111_510
    assert golden["fits"]
    assert found["simulated_time"] < golden["simulated_time"]


def test_dry_runs_are_taken_apart_and_balanced(cli, tmp_path):
    path = written(tmp_path / "dry.yaml", DRY_RUNS)
    found = cli("balance", path, "--microbatches", "16", "--memory-mb", "60000", "--json").json
    values = {each["name"]: each["value_mb"] for each in found["decomposition"]["components"]}
    expected = {"parameters": 400, "none": 743, "full": 131, "constant": 955, "head": 1459, "tail": 3329}
    assert values == {name: pytest.approx(value, abs=1.01) for name, value in expected.items()}
    assert sum(map(sum, found["stage_layers"])) == 80
    assert max(found["stage_memory_mb"]) <= 60_000
    assert "Memories from the peaks" in cli("balance", path, "--microbatches", "16", "--memory-mb", "60000").out


def test_dry_runs_without_times_are_taken_apart(cli, tmp_path):
    text = "".join(line for line in DRY_RUNS.splitlines(keepends=True) if not line.startswith("time_config"))
    path = written(tmp_path / "dry.yaml", text)
    found = cli("balance", path, "--json").json
    assert found["decomposition"]["exact"]
    assert any("time_config" in note for note in found["notes"])
    answer = cli("balance", path, "--microbatches", "16", "--memory-mb", "60000")
    assert answer.status == 2
    assert len(answer.lines) == 1


def test_peaks_with_residuals_lower_the_bound(cli, tmp_path):
    """T5: sixteen peaks for eight memories; the fit is wrong by up to 1.3 GB, which the bound gives way to."""
    path = written(tmp_path / "t5.yaml", LEAST_SQUARES)
    found = cli("balance", path, "--json").json["decomposition"]
    values = {each["name"]: each["value_mb"] for each in found["components"]}
    expected = {"parameters": 2217, "none": 1002, "both": 423, "selective": 783, "communication": 695, "head": 4614, "tail": 5885}
    assert {name: values[name] for name in expected} == {name: pytest.approx(value, abs=1.01) for name, value in expected.items()}
    assert found["max_residual_mb"] == pytest.approx(1279, abs=2)
    answer = cli("balance", path, "--microbatches", "64", "--memory-mb", "60000", "--time-limit", "2", "--json").json
    assert max(answer["stage_memory_mb"]) <= 60_000 - found["margin_mb"] + 1e-6


def test_the_guide_asks_for_dry_runs_that_are_enough(cli, tmp_path):
    found = cli("balance", "--guide", "--stages", "4", "--layers", "80", "--recompute-kinds", "full", "--json").json
    assert found["equations"] >= len(found["unknowns"])
    assert all(sum(each["layers"]) == 80 for each in found["rounds"])
    assert "offset" in cli("balance", "--guide", "--stages", "4", "--layers", "80").out
    path = written(tmp_path / "dry.yaml", DRY_RUNS)
    assert cli("balance", path, "--guide", "--json").json["rounds"] == []


def test_saved_files_hold_the_answer(cli, tmp_path):
    path, folder = ls1(tmp_path, body=SMALL_BODY), tmp_path / "out"
    found = cli("balance", path, *SMALL, "--save", str(folder), "--json").json
    saved = json.loads((folder / "balance.json").read_text())
    assert saved["stage_layers"] == found["stage_layers"]
    settings = yaml.safe_load((folder / "mindformers-graph-mode.yaml").read_text())
    assert settings["offset"] == [count - 18 // 4 for count in found["stage_layers"][0]]
    assert (folder / "pipeline.svg").read_text().startswith("<svg")
    assert json.loads((folder / "pipeline.trace.json").read_text())
    assert cli("balance", path, *SMALL, "--save", str(folder)).status == 0  # the same answer is the same file


def test_pictures_alone(cli, tmp_path):
    svg, trace = tmp_path / "pipeline.svg", tmp_path / "trace.json"
    answer = cli("balance", ls1(tmp_path, body=SMALL_BODY), *SMALL, "--picture", str(svg), "--trace", str(trace))
    assert answer.status == 0
    assert "</svg>" in svg.read_text()
    assert json.loads(trace.read_text())


def test_nothing_fits_is_an_answer_with_levers(cli, tmp_path):
    path = ls1(tmp_path, body=SMALL_BODY)
    answer = cli("balance", path, "--stages", "4", "--microbatches", "8", "--memory-mb", "11500", "--json")
    assert answer.status == 1
    verdict = answer.json
    assert not verdict["fits"]
    assert verdict["gap_mb"] == pytest.approx(verdict["demand_mb"] - verdict["bound_mb"])
    assert verdict["demand_mb"] > verdict["bound_mb"] == 11_500
    assert verdict["levers"]
    enough = verdict["levers"][0].split(":")[0].split()[1]
    assert cli("balance", path, "--stages", "4", "--microbatches", "8", "--memory-mb", enough, "--json").status == 0
    printed = cli("balance", path, "--stages", "4", "--microbatches", "8", "--memory-mb", "11500").out
    assert "Nothing fits." in printed
    assert "What would close the gap" in printed


def test_a_bound_below_the_parameters_alone(cli, tmp_path):
    answer = cli("balance", ls1(tmp_path, body=SMALL_BODY), "--stages", "4", "--microbatches", "8", "--memory-mb", "3000")
    assert answer.status == 1
    assert "demanded" in answer.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--stages", "4"), ["--microbatches is missing", "--memory-mb is missing"]),
        (("--stages", "100", *SMALL[2:]), ["100 stages are more than the 18 layers"]),
        ((*SMALL, "--virtual-stages", "5"), ["4 stages of 5 chunks are more than the 18 layers"]),
        ((*SMALL, "--schedule", "1f1bb"), ["unknown schedule '1f1bb'; did you mean 1f1b"]),
        ((*SMALL, "--schedule", "interleaved"), ["needs --virtual-stages 2 or more"]),
        (("--stages", "4", "--microbatches", "2", "--memory-mb", "60000", "--virtual-stages", "2"),
         ["2 micro-batches are fewer than the 4 stages"]),
        (("--stages", "4", "--microbatches", "8", "--memory-mb", "nan"), ["'nan' is not a number"]),
        (("--stages", "4", "--microbatches", "8", "--memory-mb", "1e300"), ["more than any device has"]),
        (("--stages", "4", "--microbatches", "8", "--memory-mb", "-5"), ["must be above zero"]),
        (("--stages", "4", "--microbatches", "8", "--memory-mb", "1,2"), ["2 bounds for 4 stages"]),
        (("--stages", "0", *SMALL[2:]), ["0 must be at least 1"]),
        (("--stages", "1000000", *SMALL[2:]), ["more than 1024"]),
        ((*SMALL, "--hop", "-1"), ["is below zero"]),
        ((*SMALL, "--less-memory"), ["--less-memory: interleaves chunks"]),
        ((*SMALL, "--training-config", "nowhere.yaml"), ["--training-config: is read for", "nowhere.yaml: no such"]),
        ((*SMALL, "--sequence-splits", "2"), ["--sequence-splits needs --training-config"]),
        ((*SMALL, "--layout", "pp4"), ["--layout: does not go with a file of layers"]),
        ((*SMALL, "--device", "h100-sxm"), ["--device: does not go with a file of layers"]),
        ((*SMALL, "--virtual-stages", "x"), ["'x' is not a number"]),
        ((*SMALL, "--time-limit", "0"), ["must be above zero"]),
        ((*SMALL, "--manual", "nowhere.yaml"), ["nowhere.yaml: no such file"]),
        ((*SMALL, "--framework", "megatrn"), ["unknown framework"]),
        ((*SMALL, "--picture", "/nowhere/x.svg"), ["its directory does not exist"]),
    ],
)
def test_bad_options_are_one_line_each(cli, tmp_path, options, words):
    answer = cli("balance", ls1(tmp_path, body=SMALL_BODY), *options)
    assert answer.status == 2
    assert not answer.out
    assert len(answer.lines) == len(words)
    assert all(any(word in line for line in answer.lines) for word in words), answer.err


@pytest.mark.parametrize(
    ("layers", "word"),
    [
        ([BODY, TAIL], "no entry of type HEAD"),
        ([HEAD, TAIL], "no entry of type BODY"),
        ([HEAD, {**BODY, "time": -180}, TAIL], "time"),
        ([HEAD, {**BODY, "nb_layer": 0}, TAIL], "nb_layer"),
        ([HEAD, {**BODY, "memory_activation": 0}, TAIL], "memory_activation"),
        ([HEAD, {key: value for key, value in BODY.items() if key != "memory_activation"}, TAIL], "memory_activation"),
        ([HEAD, {**BODY, "memory_parameter": "much"}, TAIL], "memory_parameter"),
        ([HEAD, {**BODY, "nb_layer": 10**9}, TAIL], "nb_layer"),
    ],
)
def test_bad_layer_files_are_one_line(cli, tmp_path, layers, word):
    path = written(tmp_path / "layers.json", json.dumps({"name": "bad", "layers_description": layers}))
    answer = cli("balance", path, *SMALL)
    assert answer.status == 2
    assert not answer.out
    assert len(answer.lines) == 1
    assert word in answer.err


@pytest.mark.parametrize("name", ["empty.json", "empty.yaml", "list.yaml", "folder", "train.sh", "./nowhere", "nowhere.json"])
def test_what_is_no_source_is_one_line(cli, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for path, text in (("empty.json", ""), ("empty.yaml", ""), ("list.yaml", "[1, 2]"), ("train.sh", "torchrun x.py\n")):
        written(tmp_path / path, text)
    answer = cli("balance", name, *SMALL)
    assert answer.status == 2
    assert answer.err.startswith(f"error: {name}: ")
    assert answer.err.count("\n") == 1


def test_a_schedule_with_other_chunks_is_named_once(cli, tmp_path):
    answer = cli("balance", ls1(tmp_path, body=SMALL_BODY), *SMALL, "--schedule", "dualpipev")
    assert answer.err == "error: schedule 'dualpipev' has 2 chunk(s) per stage, not 1.\n"


def test_two_bodies_in_a_chunk_are_recomputed_from_its_first_layer(cli, tmp_path):
    """Mixtures behind dense layers: lists recompute the dense ones first, and figures are those of the lists."""
    dense = {**BODY, "name": "dense", "nb_layer": 3, "memory_activation": 200}
    mixture = {**BODY, "name": "moe", "nb_layer": 9, "memory_activation": 1600, "time": 240}
    document = {"name": "two", "layers_description": [HEAD, dense, mixture, TAIL]}
    path = written(tmp_path / "two.json", json.dumps(document))
    options = ("--stages", "2", "--microbatches", "4", "--memory-mb", "30000", "--framework", "mindformers", "--json")
    found = cli("balance", path, *options).json
    full = found["recompute_by_body"]["dense"]["full"][0], found["recompute_by_body"]["moe"]["full"][0]
    lists = found["emitted"]["MindFormers graph mode"]["settings"]["recompute"]
    assert lists == [sum(each) for each in zip(*full, strict=True)] == found["recompute"]["full"][0]
    assert 0 < lists[0] < found["stage_layers"][0][0]
    assert full[0][0] == min(3, lists[0])
    held = 2 * (200 * (3 - full[0][0]) + 32 * lists[0] + 1600 * (found["stage_layers"][0][0] - 3 - full[1][0]))
    assert found["stage_memory_mb"][0] == pytest.approx(11000 + 1583 * found["stage_layers"][0][0] + held)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"layers_description": [NaN]}', '{"layers": []}', "\x00"])
def test_files_that_are_no_layers_are_one_line(cli, tmp_path, text):
    answer = cli("balance", written(tmp_path / "layers.json", text), *SMALL)
    assert answer.status == 2
    assert len(answer.lines) in {1, 2}


def test_nothing_at_all(cli, tmp_path):
    assert "FILE or MODEL is missing" in cli("balance").err
    assert "no such file" in cli("balance", str(tmp_path / "layers.json"), *SMALL).err
    assert cli("balance", "--help").status == 0


def test_an_interrupt_leaves_what_was_solved(cli, tmp_path, monkeypatch):
    from meshwright.search.balance import solve as package

    solve, calls = package.balance, []

    def interrupted(problem, **options):
        calls.append(problem)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return solve(problem, **options)

    monkeypatch.setattr(package, "balance", interrupted)
    found = cli("balance", ls1(tmp_path, body=SMALL_BODY), *SMALL, "--virtual-stages", "1,2", "--json").json
    assert [row["virtual_stages"] for row in found["ranking"]] == [1]
    assert found["refused"] == [{"virtual_stages": 2, "reason": "interrupted"}]
    monkeypatch.setattr(package, "balance", lambda problem, **_: (_ for _ in ()).throw(KeyboardInterrupt))
    answer = cli("balance", ls1(tmp_path, body=SMALL_BODY), *SMALL)
    assert (answer.status, answer.lines) == (130, ["error: interrupted"])


def test_the_memory_of_an_answer_is_that_of_the_search(cli, tmp_path):
    """The JSON repeats what the search computed, bound by bound."""
    path = ls1(tmp_path, body=SMALL_BODY)
    asked = problem(read_layer_file(path), stages=4, microbatches=8, memory_mb=[60000, 50000, 40000, 30000])
    answer = balance(asked, objective="slot")
    found = cli("balance", path, "--stages", "4", "--microbatches", "8", "--memory-mb", "60000,50000,40000,30000", "--json").json
    assert found["stage_memory_mb"] == pytest.approx(list(stage_memory(asked, answer.best.counts)))
    assert all(held <= bound for held, bound in zip(found["stage_memory_mb"], (60000, 50000, 40000, 30000), strict=True))


def test_all_numbers_of_virtual_stages_share_the_time(cli, tmp_path, monkeypatch):
    """A clock that a solver moves: the shares are what is left, and who comes too late is named."""
    now, limits = [0.0], []

    def solve(problem, *, objective, time_limit_s):
        limits.append(time_limit_s)
        now[0] += 20.0 if problem.chunks == 3 else 0.5 * time_limit_s
        return balance(problem, objective=objective, time_limit_s=0.1)

    monkeypatch.setattr("meshwright.search.balance.solve.balance", solve)
    monkeypatch.setattr("meshwright.api.verbs.balance.time.monotonic", lambda: now[0])
    asked = ("balance", ls1(tmp_path, body=SMALL_BODY), *SMALL, "--json")
    found = cli(*asked, "--virtual-stages", "1,2,3,4", "--time-limit", "12").json
    assert limits == [pytest.approx(each) for each in (3.0, 3.0, 3.0)], "what others leave is nobody's: an answer is the same alone"
    assert [each["virtual_stages"] for each in found["ranking"]] != []
    assert found["refused"] == [{"virtual_stages": 4, "reason": "no time was left: see --time-limit"}]
    limits.clear()
    cli(*asked, "--virtual-stages", "1")
    assert limits == [9.0]


def test_without_time_there_is_an_answer_all_the_same(tmp_path):
    layers = read_layer_file(ls1(tmp_path, body=SMALL_BODY))
    for chunks in (1, 2):
        asked = problem(layers, stages=4, chunks=chunks, microbatches=8, memory_mb=60_000.0)
        found = balance(asked, time_limit_s=0.0)
        assert found.status in ("gap", "optimal")
        assert max(found.best.stage_memory) <= 60_000


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (("--stages", "900", "--microbatches", "900"), "operations would be simulated"),
        (("--stages", "16", "--microbatches", "7001", "--virtual-stages", "6"), "operations would be simulated"),
        (("--stages", "1024", "--microbatches", "100000"), "1,024 chunks, 2,000,000 multiplied"),
        (("--stages", "4", "--microbatches", "1" + "0" * 9), "is more than 1,000,000"),
        (("--stages", "4", "--microbatches", "8", "--time-limit", "1e9"), "is more than 86,400"),
    ],
)
def test_a_pipeline_that_would_take_for_ever_is_refused(cli, tmp_path, more, line):
    answer = cli("balance", ls1(tmp_path, body={"nb_layer": 2000}), "--memory-mb", "60000", *more)
    assert answer.status == 2
    assert line in answer.err


def test_neighbours_of_large_pipelines_are_nearby():
    few = shifts(np.full((1, 4), 3), 1000)
    assert few.shape[-1] == 12
    many = shifts(np.full((2, 30), 3), 600)
    assert 0 < many.shape[-1] <= 600
    moved = np.argwhere(many.reshape(60, -1).T != 3)[:, 1].reshape(-1, 2)
    assert (np.abs(np.diff(moved, axis=1)) <= 5).all()
    assert (many.sum(axis=(0, 1)) == 180).all()


def test_everything_that_is_wrong_is_said_at_once(cli):
    answer = cli("balance", "no.json", "--stages", "x", "--microbatches", "y", "--memory-mb", "1,z", "--virtual-stages", "0,2,q")
    assert answer.status == 2
    for words in ("no.json: no such file", "--stages: 'x'", "--microbatches: 'y'", "--memory-mb: 'z'", "--virtual-stages: 0 must",
                  "--virtual-stages: 'q'"):
        assert words in answer.err


INIT_DEMO = """
pipeline_config: {pipeline_num: 16, num_layer: 96, offset: [-1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1]}
time_config: {head: 90, body: 90, tail: 180}
recompute_config:
  recompute: false
  select_recompute: [1, 0, 0, 0, 1, 1, 2, 0, 0, 0, 1, 1, 2, 0, 0, 1]
  select_comm_recompute: [1, 0, 0, 0, 0, 0, 0, 1, 1, 2, 1, 1, 2, 0, 0, 1]
memory_usage:
  head_memory: 77698
  tail_memory: 21822
  body_memories: {stage_id: [6, 9, 10, 11, 12, 13], memories: [49732, 50435, 32341, 41228, 23134, 30998]}
"""


def test_sapps_own_example_needs_no_force(cli, tmp_path):
    """Its constant would be -1896 MB: it is left out, and that is said."""
    path = tmp_path / "init_demo.yaml"
    path.write_text(INIT_DEMO)
    alone = cli("balance", str(path), "--json")
    assert alone.status == 0, alone.err
    assert all(each["value_mb"] >= 0 for each in alone.json["decomposition"]["components"])
    assert "it is left out" in " ".join(alone.json["notes"])
    solved = cli("balance", str(path), "--microbatches", "32", "--memory-mb", "56000", "--time-limit", "1", "--json")
    assert solved.status == 0 and sum(map(sum, solved.json["stage_layers"])) == 96, solved.err
