"""A case from flags, from a file, and from both."""

from __future__ import annotations

import json

import pytest
from cli_case import CASE

LAYOUT = ["--layout", "tp2 mb1 sp zero1", "--json"]


@pytest.fixture
def write(tmp_path):
    def call(text: str, name: str = "request.yaml") -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return call


REQUEST = "model: llama3-8b\ndevice: h100-sxm\nnodes: 1\nglobal-batch: 128\nsequence: 8k\nlayout: tp2 mb1 sp zero1\n"


def test_a_file_says_what_flags_say(cli, write):
    by_file = cli("estimate", "--request", write(REQUEST), "--json")
    assert by_file.status == 0, by_file.err
    assert by_file.json == cli("estimate", *CASE, *LAYOUT).json


def test_flags_win_over_the_file(cli, write):
    view = cli("estimate", "--request", write(REQUEST), "--global-batch", "64", "--layout", "tp4 mb1", "--json").json
    assert view["label"] == "tp4 pp1 dp2 mb1 zero0"
    assert view["request"]["global_batch"] == 64


def test_pins_of_a_file_are_a_mapping_or_a_list(cli, write, search):
    for pins in ("pin: {tp: 2, sp: true}", "pin: [tp=2, sp=on]"):
        assert cli("plan", "--request", write(f"{REQUEST}{pins}\ntop: 2\n")).status == 0
        assert search.asked[2].pins == {"tp": "2", "sp": "on"}


def test_all_faults_of_a_file_come_at_once(cli, write):
    path = write("modle: llama3-8b\nglobal_bach: 3\nnodes: 0\nsequence: [1, 2]\ndevice: h100-sxm\nmin_devices: 3\npin: tq=3\n")
    answer = cli("plan", "--request", path)
    assert answer.status == 2
    for line in (
        f"error: {path}: unknown key 'modle'; did you mean model",
        f"error: {path}: unknown key 'global_bach'; did you mean global_batch?",
        f"error: {path}: nodes: 0 must be at least 1",
        f"error: {path}: sequence: [1, 2] is a list: one value is expected",
        f"error: {path}: min_devices: 3 is neither true nor false",
        f"error: {path}: pin: unknown knob 'tq'",
    ):
        assert any(each.startswith(line) for each in answer.lines)


@pytest.mark.parametrize("text", ["- a\n", "", "a: &a [*a]\n", "a: 1\na: 2\n", "{", "\x00", "3"])
def test_what_is_no_request_is_an_input_error(cli, write, text):
    answer = cli("plan", "--request", write(text))
    assert answer.status == 2
    assert "request.yaml" in answer.lines[0]


@pytest.mark.parametrize(
    ("size", "devices"),
    [
        (["--device", "h100-sxm", "--nodes", "2"], 16),
        (["--device", "h100-sxm", "--devices", "12", "--devices-per-node", "4"], 12),
        (["--device", "h100-sxm", "--nodes", "3", "--devices-per-node", "4"], 12),
        (["--cluster", "dgx-h100", "--nodes", "4"], 32),
        (["--device", "H100", "--nodes", "1_0"], 80),
    ],
)
def test_ways_to_name_a_cluster(cli, search, size, devices):
    answer = cli("plan", "llama3-8b", *size, "--global-batch", "960", "--sequence", "8192")
    assert answer.status == 0, answer.err
    assert search.asked[0].cluster.num_devices == devices


@pytest.mark.parametrize(
    "size", [["--device", "h100-sxm"], ["--nodes", "3"], ["--device", "h100-sxm", "--nodes", "2", "--devices", "9"]]
)
def test_a_cluster_without_a_size_or_with_two(cli, search, size):
    answer = cli("plan", "llama3-8b", *size, "--global-batch", "960", "--sequence", "8192")
    assert answer.status == 2
    assert len(answer.lines) == 1


def test_a_model_of_fewer_layers(cli, search):
    assert cli("plan", *CASE, "--layers", "4").status == 0
    assert search.asked[0].model.num_layers == 4


def test_lora_freezes_the_weights(cli, search):
    assert cli("plan", *CASE, "--task", "lora").status == 0
    assert search.asked[0].training.weights_frozen


def test_the_implementation_follows_the_framework_unless_named(cli, search):
    cli("plan", *CASE, "--framework", "nanotron")
    assert search.asked[0].implementation.name == "nanotron"
    cli("plan", *CASE, "--framework", "nanotron", "--implementation", "megatron-te")
    assert search.asked[0].implementation.name == "megatron-te"


def test_gradients_follow_the_implementation_unless_named(cli, search):
    cli("plan", *CASE, "--gradient-dtype", "bf16")
    assert search.asked[0].training.precision.gradient_bytes == 2
    cli("plan", *CASE)
    assert search.asked[0].training.precision.gradient_bytes == 4


def test_lengths_of_documents_reach_the_batch(cli, search, write):
    path = write("4096\n4096\n8192\n", "lengths.txt")
    assert cli("plan", *CASE, "--lengths", path, "--max-tokens", "8192", "--packs", "96").status == 0
    batch = search.asked[0].batch
    assert (batch.global_batch_sequences, batch.sequence_tokens, batch.samples) == (96, 8192, 128)
    assert batch.mean_square_document_tokens == pytest.approx(128 / 96 * (2 * 4096**2 + 8192**2) / 3)


def test_a_path_of_a_model_is_absolute_in_the_saved_plan(cli, search, tmp_path, monkeypatch):
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024,
        "num_attention_heads": 8, "num_key_value_heads": 8, "num_hidden_layers": 4, "vocab_size": 1024,
        "hidden_act": "silu", "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.chdir(tmp_path)
    document = cli("plan", "config.json", *CASE[1:], "--json").json
    assert document["request"]["model"] == str(tmp_path / "config.json")


def test_the_default_share_of_memory_is_what_the_help_says(cli, search):
    from meshwright.api.options import CASE as FIELDS

    assert cli("plan", *CASE).status == 0
    [help_text] = [field.help for field in FIELDS if field.name == "max_memory_ratio"]
    assert f"[default: {search.asked[0].memory_ratio:g}]" in help_text


def test_the_defaults_of_the_search_are_what_the_help_says():
    from meshwright.api.options import PLAN
    from meshwright.search import SearchOptions

    defaults = SearchOptions()
    for name in ("top", "objective", "risk", "spare_nodes"):
        [help_text] = [field.help for field in PLAN if field.name == name]
        assert f"[default: {getattr(defaults, name)}]" in help_text


def test_many_unknown_keys_are_counted(cli, tmp_path):
    path = tmp_path / "request.yaml"
    path.write_text("".join(f"key{number}: 1\n" for number in range(500)))
    answer = cli("plan", "--request", str(path))
    assert answer.status == 2
    assert answer.err.count("unknown key '") == 5
    assert "480 more unknown keys" in answer.err
