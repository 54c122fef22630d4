"""A plan that a search found is written, and what is read back is predicted as the plan was."""

from __future__ import annotations

import pytest

from meshwright.api import find_plans, make_case
from meshwright.catalog import cluster_for
from meshwright.domain.label import label
from meshwright.estimate import estimate
from meshwright.frameworks import framework, frameworks
from meshwright.search import SearchOptions
from meshwright.testing.promises import read_back


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
        assert again.step_s == pytest.approx(plan.estimate.step_s, rel=1e-9), (plan.label, label(read))
        assert again.memory_reserved_bytes == pytest.approx(plan.estimate.memory_reserved_bytes, rel=1e-9)
