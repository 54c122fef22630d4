"""The first plan of every framework and task is one that the framework runs: its files are written, and read back as it is."""

from __future__ import annotations

import pytest

from meshwright.api import PlanRequest, plan
from meshwright.api.cases import setup
from meshwright.api.fields import Faults
from meshwright.errors import MeshwrightError, NoAnswerError
from meshwright.frameworks import default_for, framework, frameworks

DEVICES = {"mindformers": "ascend-910b", "mindspeed-core-ms": "ascend-910b", "mindspeed-llm": "ascend-910b"}
ABLE = [(name, task) for name in frameworks() for task in framework(name).features.tasks if framework(name).writer is not None]
UNABLE = [(name, task) for name in frameworks() for task in ("pretrain", "sft", "lora") if (name, task) not in ABLE]


def asked(name, task, **more):
    return PlanRequest(
        **({"model": "qwen3-8b"} if name in ("torchtitan", "chatlearn") else {"model": "llama3-8b", "layers": 4}), nodes=2,
        device=DEVICES.get(name, "h100-sxm"), global_batch=32, sequence=2048, task=task, framework=name, no_balance=True, top=1,
        **more,
    )


@pytest.mark.parametrize(("name", "task"), ABLE)
def test_the_first_plan_is_written_by_its_framework(name, task, tmp_path):
    answer = plan(asked(name, task, save=tmp_path / "out"))
    best = answer.result.plans[0]
    assert answer.given.framework.check(answer.given.case, best.layout) == ()
    assert answer.saved is not None
    assert len(answer.saved) > 1, "plan.yaml alone starts nothing"
    assert best.estimate.fit_probability > 0.5


@pytest.mark.parametrize(("name", "task"), UNABLE)
def test_a_task_that_a_framework_does_not_train_is_refused_with_those_that_do(name, task):
    with pytest.raises(MeshwrightError) as caught:
        plan(asked(name, task))
    assert any(default_for(task) in str(message) for message in caught.value.messages)


@pytest.mark.parametrize("task", ["pretrain", "sft", "lora"])
def test_where_no_framework_is_named_the_first_that_trains_the_task_is_meant(task, tmp_path):
    answer = plan(asked(None, task, save=tmp_path / "out"))
    assert answer.given.request["framework"] == default_for(task)
    assert answer.saved is not None
    assert len(answer.saved) > 1
    again = setup({**answer.given.request}, Faults())
    assert (again.framework.name, again.case) == (answer.given.framework.name, answer.given.case)


def test_a_framework_that_runs_none_of_the_layouts_that_fit_is_an_answer_and_names_another():
    """DeepSpeed has no tensor parallelism with Ulysses, and both are asked for."""
    request = PlanRequest(
        model="llama3-8b", device="h100-sxm", nodes=1, global_batch=64, sequence=4096, framework="deepspeed",
        pin={"tp": 2, "cp": 2},
    )
    with pytest.raises(NoAnswerError) as caught:
        plan(request)
    (message,) = caught.value.messages
    assert "runs none of the" in str(message)
    assert "mutually exclusive" in str(message)
    assert "--framework" in str(message)


def test_the_default_that_does_not_run_on_the_device_names_one_that_does():
    request = PlanRequest(model="llama2-7b", layers=8, device="ascend-910b", nodes=1, global_batch=32, sequence=4096)
    with pytest.raises(NoAnswerError) as caught:
        plan(request)
    (message,) = caught.value.messages
    assert "does not run on ascend-910b" in str(message)
    assert "mindspeed-llm" in str(message).partition("--framework")[2]
