"""``import``: files of a framework as a layout on the command line."""

from __future__ import annotations

import pytest
from launch_files import bad_files, configuration

CASE = ["--model", "llama3-8b", "--device", "h100-sxm"]


def test_the_layout_and_what_else_the_files_say(cli, tmp_path):
    answer = cli("import", configuration(tmp_path), "--from", "picotron", "--json")
    assert answer.status == 0
    view = answer.json
    assert view["label"] == "tp4 pp1 dp4 mb1 zero0"
    assert view["layout"]["num_microbatches"] == 32
    assert view["said"]["global_batch_sequences"] == 128
    assert view["said"]["figures"]["layers"] == 32
    assert view["version_source"] == "assumed"
    assert not view["messages"]
    groups = view["own_keys"]["groups"]
    assert "training.learning_rate" in groups["training"]
    assert "distributed.tp_size" not in groups.get("distributed", [])
    assert view["own_keys"]["count"] == sum(map(len, groups.values()))


def test_the_report_names_layout_release_and_keys_left_alone(cli, tmp_path):
    printed = cli("import", configuration(tmp_path), "--from", "picotron@59714b1").out
    assert "tp4 pp1 dp4 mb1" in printed
    assert "as --from says" in printed
    assert "Left alone: " in printed


def test_what_was_taken_for_granted_is_not_said_not_to_be_understood(cli, tmp_path):
    printed = cli("import", configuration(tmp_path)).out
    assert "How the files were taken" in printed
    assert "Not understood" not in printed


def test_files_without_a_layout_exit_with_1_and_say_why_at_their_line(cli, tmp_path):
    path = configuration(tmp_path, distributed__tp_size=0)
    answer = cli("import", path, "--from", "picotron")
    assert answer.status == 1
    assert "determine no layout" in answer.out
    view = cli("import", path, "--from", "picotron", "--json").json
    assert view["layout"] is None
    (message,) = view["messages"]
    assert message["place"] == f"{path}:3"
    assert "tp_size is 0" in message["message"]


def test_a_saved_plan_is_estimated_and_exported(cli, tmp_path):
    path, plan = configuration(tmp_path), str(tmp_path / "plan.yaml")
    answer = cli("import", path, "--from", "picotron", *CASE, "--save", plan)
    assert answer.status == 0
    assert answer.out.splitlines()[-1] == plan
    view = cli("estimate", "--request", plan, "--json").json
    assert view["label"] == "tp4 pp1 dp4 mb1 zero0"
    assert view["request"]["devices"] == 16
    assert cli("export", plan, "--to", "picotron", "--out", str(tmp_path / "out")).status == 0


def test_saving_overwrites_nothing_unasked_and_never_the_input(cli, tmp_path):
    path, plan = configuration(tmp_path), tmp_path / "plan.yaml"
    plan.write_text("mine")
    call = ["import", path, "--from", "picotron", *CASE, "--save"]
    assert cli(*call, str(plan)).status == 2
    assert plan.read_text() == "mine"
    assert cli(*call, str(plan), "--force").status == 0
    assert plan.read_text() != "mine"
    before = (tmp_path / "config.json").read_text()
    assert cli(*call, path, "--force").status == 2
    assert (tmp_path / "config.json").read_text() == before


def test_saving_needs_a_case(cli, tmp_path):
    answer = cli("import", configuration(tmp_path), "--from", "picotron", "--save", str(tmp_path / "plan.yaml"))
    assert answer.status == 2
    assert "--model" in answer.err
    assert "--cluster" in answer.err
    answer = cli(
        "import", configuration(tmp_path), "--from", "picotron", *CASE, "--global-batch", "256", "--save", str(tmp_path / "p")
    )
    assert answer.status == 2
    assert "128 sequences" in answer.err


def test_arguments_of_a_script(cli, tmp_path):
    script = tmp_path / "train.sh"
    script.write_text(
        "#!/bin/bash\ntorchrun --nproc_per_node 8 --nnodes $1 pretrain_gpt.py --tensor-model-parallel-size ${2:-1} \\\n"
        "  --micro-batch-size 1 --global-batch-size 64 --num-layers 32 --hidden-size 4096 --num-attention-heads 32 \\\n"
        "  --seq-length 4096\n"
    )
    view = cli("import", str(script), "--from", "megatron", "--arguments", "2 4", "--json").json
    assert view["layout"]["tensor_parallel"] == 4
    assert view["layout"]["data_parallel"] == 4
    assert cli("import", str(script), "--from", "megatron", "--arguments", "'2").status == 2


@pytest.mark.parametrize("verb", ["import", "check"])
def test_bad_files_are_one_line_each(cli, tmp_path, verb):
    for name, path in bad_files(tmp_path).items():
        answer = cli(verb, path, "--from", "picotron")
        assert answer.status == 2, name
        assert len(answer.lines) == 1, name
        assert name in answer.err
        assert "internal error" not in answer.err


@pytest.mark.parametrize("verb", ["import", "check"])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["FILE is missing"]),
        (["FILE", "--from", "picotrn"], ["did you mean picotron"]),
        (["FILE", "--from", "picotron@9"], ["is unknown; known: 59714b1"]),
        (["FILE", "--from", "nanotron"], ["holds no key of nanotron"]),
        (["FILE", "--from", "picotron", "--model", "llama9"], ["llama9"]),
        (["FILE", "--from", "picotron", "--devices", "-3"], ["--devices"]),
        (["FILE", "--from", "picotron", "--devices", "1e30"], ["--devices"]),
    ],
)
def test_faults_of_the_command_line(cli, tmp_path, verb, arguments, words):
    path = configuration(tmp_path)
    answer = cli(verb, *(path if word == "FILE" else word for word in arguments))
    assert answer.status == 2
    assert len(answer.lines) == len(words)
    assert all(word in answer.err for word in words)


@pytest.mark.parametrize("value", [10**30, -5, 0, 2.5, "x", None, [1], True])
@pytest.mark.parametrize(
    "key", ["training__seq_length", "training__micro_batch_size", "distributed__dp_size", "model__num_hidden_layers"]
)
def test_impossible_numbers_in_files_never_break_it(cli, tmp_path, key, value):
    path = configuration(tmp_path, **{key: value})
    assert cli("import", path, "--from", "picotron").status in (0, 1)
    assert cli("check", path, "--from", "picotron", *CASE).status in (0, 1)
