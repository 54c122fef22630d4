"""``catalog runs``, the closest run beside a prediction, and the numbers of ``catalog --json``."""

import pytest

CASE = ["llama3-8b", "--device", "h100-sxm", "--nodes", "1", "--global-batch", "128", "--sequence", "8192"]
PLAYBOOK = ["catalog", "runs", "--near", "8B", "--device", "h100-sxm", "--nodes", "1"]


def test_the_playbooks_8b_on_one_node(cli):
    answer = cli(*PLAYBOOK)
    assert answer.status == 0, answer.err
    first = " ".join(answer.out.split("\n\n")[1].split())
    for words in ("63.1 GiB allocated peak", "tp1 pp4 dp2 mb1 zero1", "128 accumulation steps", "playbook-1128", "48 more failed"):
        assert words in first
    run = cli(*PLAYBOOK, "--limit", "1", "--json").json["entries"][0]
    layout = run["layout"]
    assert (layout["data_parallel"], layout["tensor_parallel"], layout["pipeline_parallel"]) == (2, 1, 4)
    assert (layout["num_microbatches"], layout["zero_stage"]) == (128, 1)
    assert run["tokens_per_s_per_device"] == pytest.approx(7503, rel=1e-3)
    assert run["source"].startswith("Ultra-Scale Playbook")


def test_differences_are_named(cli):
    document = cli("catalog", "runs", "--near", "llama3-8b", "--device", "h100-sxm", "--devices", "8", "--json").json
    assert len(document["entries"]) == 10
    assert document["near"]["devices"] == 8
    distances = [entry["distance"] for entry in document["entries"]]
    assert distances == sorted(distances)
    other = next(entry for entry in document["entries"] if entry["id"] == "playbook-1128")
    assert {part["what"] for part in other["differs"]} == {"model", "parameters"}


def test_a_cell_in_which_nothing_ran(cli):
    words = ["catalog", "runs", "--near", "nanotron-llama-80b", "--device", "h100-sxm", "--nodes", "2"]
    assert "none of 87 tried ran" in cli(*words).out
    assert cli(*words, "--json").json["entries"][0]["layout"] is None


def test_one_row_in_full(cli):
    answer = cli("catalog", "runs", "Playbook-1128")
    assert answer.status == 0, answer.err
    printed = " ".join(answer.out.split())
    assert all(words in printed for words in ("published.flops_convention", "full non-causal", "mfu_ratio", "0.403"))
    facts = cli("catalog", "runs", "playbook-1128", "--json").json["facts"]
    assert facts["published"]["mfu"] == "0.452"
    assert (facts["tried"], facts["failed"]) == (61, 48)


def test_a_flagged_row_shows_its_flag(cli):
    assert "published.flag" in cli("catalog", "runs", "bloom-0043").out


def test_all_runs_are_listed_and_the_screen_is_not_flooded(cli):
    document = cli("catalog", "runs", "--json").json
    assert len(document["entries"]) == document["total"] > 700
    printed = cli("catalog", "runs").out
    assert "more: --near MODEL" in printed
    assert len(cli("catalog", "runs", "--limit", "3", "--json").json["entries"]) == 3


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["runs", "playbook-112"], "no published run has the id 'playbook-112'; did you mean"),
        (["runs", "--near", "lama3-8b"], "--near: unknown model 'lama3-8b'"),
        (["runs", "--near", "8B", "--nodes", "2"], "--nodes needs --device"),
        (["runs", "--device", "h100-smx"], "did you mean h100-sxm"),
        (["runs", "--near", "8B", "--precision", "fp9"], "fp9"),
        (["runs", "--limit", "0"], "--limit"),
        (["devices", "--near", "8B"], "--near belongs to `catalog runs`"),
        (["runs", "playbook-1128", "--limit", "2"], "--limit belongs to `catalog runs` without a NAME"),
    ],
)
def test_wrong_questions_get_one_line(cli, arguments, line):
    answer = cli("catalog", *arguments)
    assert answer.status == 2
    assert len(answer.lines) == 1
    assert line in answer.lines[0]


def test_estimate_names_the_closest_published_run(cli):
    words = ["estimate", *CASE, "--layout", "tp2 mb1 sp zero1"]
    printed = cli(*words).out
    assert "closest published run tp1 cp2 pp1 dp4 mb1 zero1" in printed
    assert "nv0561: nemo" in printed
    run = cli(*words, "--json").json["closest_run"]
    assert (run["id"], run["distance"]) == ("nv0561", 0)


def test_plan_names_the_closest_published_run(cli, search):
    assert "closest published run" in cli("plan", *CASE).out
    assert cli("plan", *CASE, "--json").json["closest_run"]["id"] == "nv0561"


def test_where_nothing_is_near_there_is_no_line(cli):
    words = ["estimate", *CASE[:2], "mi300x", *CASE[3:], "--layout", "tp2 mb1 sp zero1"]
    assert "closest published" not in cli(*words).out
    assert cli(*words, "--json").json["closest_run"] is None


def test_json_of_the_catalogue_carries_numbers(cli):
    devices = {entry["name"]: entry for entry in cli("catalog", "devices", "--json").json["entries"]}
    assert devices["h100-sxm"]["memory_bytes_per_s"] == pytest.approx(3.35e12, rel=0.01)
    assert devices["h100-sxm"]["peak_flops_per_s"]["bf16"] == pytest.approx(989e12, rel=0.01)
    models = {entry["name"]: entry for entry in cli("catalog", "models", "--json").json["entries"]}
    assert models["mixtral-8x7b"]["num_experts"] == 8
    assert models["llama3-8b"]["parameters"] == 8030261248
    clusters = cli("catalog", "clusters", "--json").json["entries"]
    assert all(isinstance(entry["network_bytes_per_s"], (int, float)) for entry in clusters)
    frameworks = cli("catalog", "frameworks", "--json").json["entries"]
    assert {entry["exports"] for entry in frameworks} == {True}
