"""A plan that a search found is written, and what is read back has the plan's name and is predicted as the plan was."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.api import find_plans, make_case
from meshwright.catalog import cluster_for
from meshwright.estimate import estimate
from meshwright.estimate.naming import name_of
from meshwright.frameworks import framework, frameworks
from meshwright.search import SearchOptions
from meshwright.testing import legal_plans
from meshwright.testing.plans import is_legal
from meshwright.testing.promises import read_back

DRAWN = 12
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
