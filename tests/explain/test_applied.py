"""What an explanation proposes is legal for the framework and costs what it says, for frameworks that overlap in their own way."""

from __future__ import annotations

import pytest
from benchmarks.coherence.explained import explained
from benchmarks.coherence.trial import Trial

CASES = {
    "deepspeed": {"model": "llama3-8b", "device": "a100-80g-sxm", "nodes": 2, "global_batch": 64, "sequence": 4096},
    "picotron": {"model": "llama2-7b", "device": "h100-sxm", "nodes": 1, "global_batch": 32, "sequence": 4096},
    "mindspeed-llm": {"model": "qwen3-8b", "device": "ascend-910b", "nodes": 1, "global_batch": 48, "sequence": 8192},
    "bridge": {"model": "qwen3-30b-a3b", "device": "b200", "nodes": 2, "global_batch": 128, "sequence": 4096},
}


@pytest.mark.parametrize("framework", CASES)
def test_steps_of_an_explanation_are_layouts_that_run_and_cost_what_they_say(framework):
    asked = [*explained(Trial.of({**CASES[framework], "framework": framework}))]
    assert [f"{each.law}: {each.broken}" for each in asked if each.broken] == []
    assert len(asked) > 30
