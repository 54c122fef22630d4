"""What a verb says of bad input names its own options: none of another verb's, unless that verb is named before it."""

from __future__ import annotations

import io
import re
import shlex
from importlib import import_module

import pytest

from meshwright.cli.app import MODULES
from meshwright.cli.overview import VERBS

OPTION = re.compile(r"(?:(?:meshwright )?(\w+)(?: [A-Z.]+)* )?(?<![\w-])(--[a-z]+(?:-[a-z]+)*)")


def options_of(verb):
    """The options of a verb, as its help has them."""
    module = import_module(f"meshwright.cli.{MODULES.get(verb, verb)}")
    return {field.option for field in module.FIELDS} | {"--help"}


ALL = {verb: options_of(verb) for verb in VERBS}
OURS = frozenset().union(*ALL.values())


def strange(verb, text):
    """Options of ours that a text names and the verb has not; frameworks have flags of their own."""
    return [
        option for before, option in OPTION.findall(text)
        if option in OURS and option not in ALL[verb] and option not in ALL.get(before, ())
    ]


def test_a_text_is_held_to_the_options_of_its_verb():
    assert strange("episode", "--global-batch: no layout; up to 3 of the 4 nodes idle: --spare-nodes 3") == [
        "--global-batch", "--spare-nodes"]
    assert strange("episode", "`meshwright plan --global-batch 3` or plan --spare-nodes, --tensor-model-parallel-size") == []


STEP = "--prompts 8 --prompt-tokens 256 --response-tokens 512"
ON = "--device h100-sxm --nodes 1"
SCRIPT = "train.sh"
COMMANDS = [
    "episode", f"episode gpt2 {ON} {STEP} --longest-response 2048", f"episode qwen3-8b --device h100-sxm --nodes 100000 {STEP}",
    f"episode qwen3-8b {ON} {STEP} --layout 'tp2 dp3 mb1'", f"episode qwen3-8b {ON} {STEP} --packs 3 --layout 'tp1 dp8 mb1'",
    f"episode qwen3-8b {ON} {STEP} --max-tokens 100", f"episode qwen3-8b {ON} {STEP} --pin tp=3",
    f"episode qwen3-8b {ON} --files slime.sh",
    f"episode qwen3-8b {ON} {STEP} --framework verl-megatron --pin zero=2", f"episode qwen3-8b --files slime.sh {STEP}",
    f"episode qwen3-8b {ON} {STEP} --framework verl-megatron --precision fp8-cs",
    f"episode qwen3-8b --device h100-sxm {STEP}",
    f"episode qwen3-8b {ON} --cluster dgx-h100 {STEP}", f"episode qwen3-8b {ON} {STEP} --files {SCRIPT}",
    "plan", f"plan gpt2 {ON} --global-batch 8 --sequence 2048", f"plan llama3-8b {ON} --global-batch 7 --sequence 2048 --pin dp=8",
    f"plan llama3-8b {ON} --global-batch 8 --sequence 2048 --max-tokens 9",
    "estimate", "estimate llama3-8b --layout tp1",
    f"estimate gpt2 {ON} --global-batch 8 --sequence 2048 --layout tp1", "explain", f"explain llama3-8b {ON} --layout tp3",
    "import", f"import {SCRIPT}", f"import {SCRIPT} --save there", "check", f"check {SCRIPT}", "fix",
    f"fix {SCRIPT} --from megatron",
    "export", "export llama3-8b --to megatron --out there", "diagnose", f"diagnose {SCRIPT}", "compare", "pack", "balance", "step",
    "dryrun", "sweep", "tune", "rehearse --model llama3-8b", "atlas", "atlas --models gpt2 --device h100-sxm --nodes-list 1",
    "calibrate --base x", f"validate {SCRIPT}", "profile --out x", "lint", "catalog nothing",
    *(f"{verb} --global-batch x --sequence y --model z --pin tp=3 --framework none --nodes 0" for verb in VERBS),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_bad_input_is_answered_in_the_verbs_own_options(cli, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    (tmp_path / SCRIPT).write_text("torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 2\n")
    (tmp_path / "slime.sh").write_text(
        "python3 train.py --actor-num-nodes 1 --actor-num-gpus-per-node 8 --colocate --rollout-batch-size 8 --num-layers 36 "
        "--rollout-max-response-len 512 --rollout-max-prompt-len 512 --global-batch-size $BATCH --micro-batch-size 1\n")
    words = shlex.split(command)
    answer = cli(*words)
    assert answer.status in {0, 1, 2}
    for line in answer.lines:
        assert not strange(words[0], re.sub(r"unknown option '[^']*'", "", line)), line
