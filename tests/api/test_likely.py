"""Whose files they are, where nobody says it: what a framework's writer wrote is read as its own."""

from __future__ import annotations

import pytest
from tests.draws import draws

from meshwright.api.beside import of_the_run
from meshwright.api.cases import setup
from meshwright.api.fields import Faults
from meshwright.api.likely import likely_framework
from meshwright.domain.label import parse_layout
from meshwright.errors import InputError
from meshwright.frameworks import File, framework, frameworks
from meshwright.testing import legal_plans

MINDSPORE = ("mindformers", "mindspeed-core-ms", "mindspeed-llm")
"""Frameworks that take each other's files, by release: one of them is taken, and the remark names the right one."""


@pytest.mark.parametrize("name", frameworks())
def test_what_a_writer_wrote_is_known_as_its_own(name):
    runner = framework(name)
    for release in {runner.releases[0], runner.releases[-1]} if runner.releases else {None}:
        for case, layout in legal_plans(f"{name}@{release}" if release else name, draws(4), seed=5):
            files = runner.at(release).for_case(case).write(case, layout)
            of_it = of_the_run([file.path for file in files])[0]
            found, told = likely_framework([file for file in files if file.path in of_it])
            assert found.name == name or {found.name, name} <= {*MINDSPORE}, (release, str(told))
            assert runner.title in str(told)


def test_flags_that_a_fork_shares_are_those_of_what_it_comes_from():
    flags = "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --micro-batch-size 1 --num-layers 4\n"
    found, told = likely_framework([File(path="train.sh", text=flags)])
    assert found.name == "megatron"
    assert "MindSpeed" not in str(told)
    found, _ = likely_framework([File(path="train.sh", text="export ASCEND_SLOG_PRINT_TO_STDOUT=0\n" + flags)])
    assert found.facts.fork_of == "megatron"


@pytest.mark.parametrize("text", ["a: 1\nb: {c: 2}\n", "tensor_model_parallel: 1\nlr: 2\nbatch: 3\n"])
def test_files_of_nobody_are_asked_about(text):
    with pytest.raises(InputError, match="--from is missing"):
        likely_framework([File(path="x.yaml", text=text)])


def test_a_long_description_of_a_model_hides_nobody():
    """Fewer than half of the keys were MindFormers' own, and no other framework had more than one in two of those."""
    given = setup({
        "model": "deepseek-v3", "device": "ascend-910b", "nodes": 2, "global_batch": 64, "sequence": 6144, "task": "sft",
        "precision": "fp16", "framework": "mindformers@2.1",
    }, Faults())
    words = "tp1 pp4 vp3 dp4 mb1 zero0 recompute=selective:layernorm layers=[4,5,5,5;6,6,5,5;5,5,5,5]"
    layout = parse_layout(words, num_devices=16, global_batch_sequences=64, model=given.case.model)
    files = [each for each in given.framework.write(given.case, layout) if each.path in ("config.yaml", "launch.sh")]
    assert likely_framework(files)[0].name == "mindformers"
