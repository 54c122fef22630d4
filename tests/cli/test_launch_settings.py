"""Settings of a launch on the screen: what means nothing for the case, and what files do not carry."""

from __future__ import annotations

import pytest

DENSE = "llama3-8b --device h100-sxm --nodes 2 --global-batch 64 --sequence 4096"
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
    asked = cli("plan", *DENSE.split(), "--framework", "megatron", "--launch", "deterministic optimizer=plain", "--save", saved)
    assert asked.status == 0, asked.err
    assert "optimizer=plain is in no file: Megatron-LM" in _flat(asked.out)
    assert "deterministic=on is" not in _flat(asked.out)
    exported = cli("export", saved, "--to", "deepspeed", "--nearest", "--out", out)
    assert exported.status == 0, exported.err
    assert "deterministic=on is the training program's" in _flat(exported.out)
    notes = cli("export", saved, "--to", "megatron", "--out", str(tmp_path / "again"), "--json").json["notes"]
    assert len(notes) == 1
    assert notes[0].startswith("optimizer=plain is in no file")


def test_a_user_s_own_file_keeps_its_launch_and_that_is_said(cli, tmp_path):
    saved, plain = str(tmp_path / "saved"), str(tmp_path / "plain")
    for words, folder in (("deterministic", saved), ("", plain)):
        more = ("--launch", words) if words else ()
        assert cli("plan", *DENSE.split(), "--framework", "megatron", *more, "--save", folder).status == 0
    answer = cli("export", saved, "--to", "megatron", "--onto", f"{plain}/train.sh", "--out", str(tmp_path / "own"))
    assert answer.status == 0, answer.err
    assert "deterministic=on of the plan does not change your files" in _flat(answer.out)
    itself = cli("export", saved, "--to", "megatron", "--onto", f"{saved}/train.sh", "--out", str(tmp_path / "same"))
    assert "does not change your files" not in _flat(itself.out)
