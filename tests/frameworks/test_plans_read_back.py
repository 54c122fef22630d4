"""A plan that a search found is written, and what is read back has the plan's name and is predicted as the plan was."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.draws import draws

from meshwright.api import find_plans, make_case
from meshwright.catalog import cluster_for
from meshwright.domain.layout import Layout
from meshwright.domain.training import Lora
from meshwright.estimate import estimate
from meshwright.estimate.naming import name_of
from meshwright.frameworks import framework, frameworks
from meshwright.search import SearchOptions
from meshwright.testing import legal_plans
from meshwright.testing.plans import is_legal
from meshwright.testing.promises import read_back

DRAWN = draws(12)
"""Plans of any kind for each framework, of models whose layers the stages do not divide among them."""


@pytest.mark.parametrize("name", frameworks())
def test_a_plan_that_was_found_is_read_back_as_it_was_predicted(name):
    device = "ascend-910b" if name.startswith("mind") else "h100-sxm"
    model = "qwen3-8b" if name in {"chatlearn", "mindspeed-llm"} else "llama3-8b"
    case = make_case(model, cluster_for(device, nodes=2), global_batch_sequences=64, sequence_tokens=4096, framework=name)
    runner = framework(name)
    plans = find_plans(case, framework=name, options=SearchOptions(top=3)).plans
    assert plans
    for plan in plans:
        read = read_back(runner, case, runner.write(case, plan.layout)).layout
        assert read is not None
        again = estimate(case, read)
        assert again.label == plan.label
        assert again.step_s == pytest.approx(plan.estimate.step_s, rel=1e-9), plan.label
        assert again.memory_reserved_bytes == pytest.approx(plan.estimate.memory_reserved_bytes, rel=1e-9)


@pytest.mark.parametrize("name", frameworks())
def test_what_is_read_back_has_the_name_of_what_was_written(name):
    """Where the plan leaves the split of layers to the framework, so does the name of what is read."""
    runner = framework(name)
    for case, layout in legal_plans(name, DRAWN, seed=21):
        own = replace(layout, overlap=runner.overlap(case, layout), stage_layers=None)
        if not is_legal(runner, case, own):
            continue
        read = read_back(runner, case, runner.write(case, own)).layout
        assert read is not None
        assert name_of(case, read) == name_of(case, replace(runner.normal(case, own), stage_layers=None))


@pytest.mark.parametrize("name", frameworks())
def test_the_files_say_what_is_trained(name):
    """A LoRA run that is checked without a word beside its files is no pretraining."""
    runner = framework(name)
    told = []
    for task in runner.features.tasks:
        for case, layout in legal_plans(name, 3, seed=31):
            training = replace(case.training, task=task, lora=Lora() if task == "lora" else None)
            tuned = replace(case, training=training)
            if is_legal(runner, tuned, layout):
                told.append((task, read_back(runner, tuned, runner.write(tuned, layout)).said.task or "pretrain"))
    assert told
    if name == "chatlearn":  # it trains a policy, whatever the plan calls it
        told = [("sft", said) for _, said in told]
    assert all(task == said for task, said in told)


@pytest.mark.parametrize(("name", "model", "words"), [
    ("nanotron", "qwen2.5-7b", "rms_norm_eps: 1.0e-06"), ("megatron", "qwen2.5-7b", "${NORM_EPSILON:-1e-6}"),
    ("megatron-deepspeed", "llama3-8b", "--layernorm-epsilon 1e-05"), ("mindspeed-llm", "qwen3-8b", "--norm-epsilon 1e-06"),
])
def test_norms_add_what_the_model_has(name, model, words):
    """Where it is known: nanotron's own default is 1e-5, Qwen's is not."""
    device = "ascend-910b" if name.startswith("mind") else "h100-sxm"
    case = make_case(model, cluster_for(device, nodes=1), global_batch_sequences=64, sequence_tokens=4096, framework=name)
    runner = framework(name)
    layout = replace(plain := Layout(data_parallel=8, num_microbatches=8), overlap=runner.overlap(case, plain))
    assert any(words in file.text for file in runner.write(case, runner.normal(case, layout)))
