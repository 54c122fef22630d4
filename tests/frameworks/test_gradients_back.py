"""The type that gradients are summed in comes back from the files of every framework that has a key for it."""

import pytest

from meshwright.api import make_case
from meshwright.catalog import cluster_for, precision
from meshwright.domain.layout import Layout
from meshwright.frameworks import framework, frameworks
from meshwright.testing.promises import read_back

RELEASES = [f"{name}@{release}" for name in frameworks() for release in framework(name).releases]
PROGRAMS = {"accelerate", "llama-factory-hf"}
"""Beside DeepSpeed's JSON they have no key for it: what sums gradients is a program's."""
LAYOUTS = [
    Layout(data_parallel=8, num_microbatches=8, optimizer_shards=shards[0], gradient_shards=shards[1], parameter_shards=shards[2])
    for shards in ((1, 1, 1), (8, 1, 1), (8, 8, 1), (8, 8, 8))
]


def planned(words, name, gradients, model):
    device = "ascend-910b" if words.startswith("mind") else "h100-sxm"
    case = make_case(model, cluster_for(device, num_devices=8), global_batch_sequences=64, sequence_tokens=4096, framework=words,
                     precision=name, gradient_dtype=gradients, task=framework(words).features.tasks[0])
    runner = framework(words).for_case(case)
    return runner, case, [layout for layout in LAYOUTS if not runner.check(case, layout)]


@pytest.mark.parametrize("name", ["bf16", "fp16"])
@pytest.mark.parametrize("words", [words for words in RELEASES if words.partition("@")[0] not in PROGRAMS])
def test_two_bytes_come_back_as_two_bytes(words, name):
    for model in ("llama2-7b", "llama3-8b"):
        runner, case, layouts = planned(words, name, "bf16", model)
        for layout in layouts:
            said = read_back(runner, case, runner.write(case, layout)).said
            back = precision(said.precision or name, said.gradient_dtype or case.implementation.gradient_dtype)
            assert back.gradient_bytes == 2, layout


@pytest.mark.parametrize(("words", "name", "gradients"), [
    ("mindspeed-core-ms@r0.1.0", "fp16", "bf16"), ("mindformers@experimental", "fp16", "bf16"), ("mindspeed-llm", "fp16", "bf16"),
    ("slime", "fp16", "bf16"), ("megatron@0.16", "fp16", "fp32"), ("deepspeed", "fp16", "bf16"),
    ("llama-factory-megatron", "fp16", "bf16"), ("llama-factory-megatron", "bf16", "fp32"),
])
def test_what_a_framework_can_do_is_a_plan(words, name, gradients):
    assert planned(words, name, gradients, "llama2-7b")[2]


@pytest.mark.parametrize(("words", "name", "gradients"), [
    ("mindspeed-core-ms@r0.1.0", "bf16", "bf16"), ("llama-factory-megatron", "fp16", "fp32"),
    ("llama-factory-megatron", "bf16", "bf16"),
])
def test_what_it_cannot_is_refused(words, name, gradients):
    assert not planned(words, name, gradients, "llama2-7b")[2]
