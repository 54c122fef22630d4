"""Settings of a launch on the screen: what means nothing for the case, and what files do not carry."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("alone")

DENSE = "llama3-8b --device h100-sxm --nodes 2 --global-batch 64 --sequence 4096"
FEW = ("--pin", "tp=2", "--pin", "pp=1", "--top", "1", "--no-balance")
"""Some plan is wanted, which need not be searched for among all."""
LAYOUT = "dp16 mb1 zero1"


def _flat(text):
    return " ".join(text.split())


@pytest.mark.parametrize("verb", ["plan", "estimate"])
def test_a_dense_model_with_routing_says_so(cli, verb):
    layout = ("--layout", LAYOUT) if verb == "estimate" else ()
    answer = cli(verb, *DENSE.split(), "--launch", "routing=natural", *layout)
    assert answer.status == 0, answer.err
    assert "routing=natural changes nothing here: llama3-8b has no experts" in _flat(answer.out)


def test_what_the_files_do_not_carry_is_said_where_they_are_written(cli, tmp_path):
    saved, out = str(tmp_path / "saved"), str(tmp_path / "out")
    launch = ("--framework", "megatron", "--launch", "deterministic optimizer=plain")
    asked = cli("plan", *DENSE.split(), *FEW, *launch, "--save", saved)
    assert asked.status == 0, asked.err
    assert "optimizer=plain is in no file: Megatron-LM" in _flat(asked.out)
    assert "deterministic=on is" not in _flat(asked.out)
    exported = cli("export", saved, "--to", "deepspeed", "--nearest", "--out", out)
    assert exported.status == 0, exported.err
    assert "deterministic=on is the training program's" in _flat(exported.out)
    notes = cli("export", saved, "--to", "megatron", "--out", str(tmp_path / "again"), "--json").json["notes"]
    assert len(notes) == 1
    assert notes[0].startswith("optimizer=plain is in no file")


def _plans(cli, tmp_path, framework, words, case=DENSE):
    """Folders of a plan under settings of a launch, and of one without."""
    saved, plain = str(tmp_path / "saved"), str(tmp_path / "plain")
    for said, folder in ((words, saved), ("", plain)):
        more = ("--launch", said) if said else ()
        answer = cli("plan", *case.split(), *FEW, "--framework", framework, *more, "--save", folder)
        assert answer.status == 0, answer.err
    return saved, plain


CARRIED = [
    ("megatron", "deterministic", "train.sh", ("--deterministic-mode", "NCCL_ALGO=Ring"), ("--cross-entropy-loss-fusion",)),
    ("megatron", "graphs=partial", "train.sh", ("--te-rng-tracker", "NCCL_GRAPH_REGISTER=0"), ()),
    ("megatron", "host=plain", "train.sh", (), ("--manual-gc",)),
    ("torchtitan", "deterministic optimizer=plain", "launch.sh", ("debug.deterministic", "foreach"), ()),
    ("nanotron", "optimizer=plain", "config.yaml", ("torch_adam_is_fused: false",), ()),
]


@pytest.mark.parametrize(("framework", "words", "name", "there", "gone"), CARRIED)
def test_settings_that_have_a_key_are_carried_into_a_user_s_own_file(cli, tmp_path, framework, words, name, there, gone):
    """They were named and left as they were; what is written anew and what is edited say one launch."""
    saved, plain = _plans(cli, tmp_path, framework, words)
    mine = Path(plain) / name
    answer = cli("export", saved, "--to", framework, "--onto", str(mine), "--out", str(tmp_path / "own"))
    assert answer.status == 0, answer.err
    assert "does not change your files" not in _flat(answer.out)
    text = next((tmp_path / "own").iterdir()).read_text()
    assert all(word in text for word in there), text
    assert not any(f"{word}\n" in text or f"{word} " in text for word in gone)
    again = cli("export", saved, "--to", framework, "--onto", str(tmp_path / "own" / mine.name), "--json").json
    assert again["edits"] == [], "what is there is not changed again"


def test_a_setting_that_a_file_has_and_the_plan_turns_off_is_taken_out(cli, tmp_path):
    saved, _ = _plans(cli, tmp_path, "megatron", "deterministic")
    other = str(tmp_path / "other")
    off = ("--framework", "megatron", "--launch", "deterministic=off", "--save", other)
    assert cli("plan", *DENSE.split(), *FEW, *off).status == 0
    answer = cli("export", other, "--to", "megatron", "--onto", f"{saved}/train.sh", "--out", str(tmp_path / "own"))
    assert answer.status == 0, answer.err
    for path, there in ((f"{saved}/train.sh", True), (str(tmp_path / "own" / "train.sh"), False)):
        read = cli("import", path, "--from", "megatron", "--model", "llama3-8b", "--json").json
        assert ("deterministic=on" in read["said"]["launch"]) is there


def test_what_has_no_key_stays_in_a_user_s_own_file_and_that_is_said(cli, tmp_path):
    saved, plain = _plans(cli, tmp_path, "megatron", "deterministic optimizer=plain")
    answer = cli("export", saved, "--to", "megatron", "--onto", f"{plain}/train.sh", "--out", str(tmp_path / "own"))
    assert answer.status == 0, answer.err
    assert "optimizer=plain is in no file" in _flat(answer.out)
    itself = cli("export", saved, "--to", "megatron", "--onto", f"{saved}/train.sh", "--json").json
    assert itself["edits"] == []
