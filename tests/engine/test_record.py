"""What a run notes of itself: nothing of the run changes, every exchange is there, and a run that is ended leaves what it had."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.parity import case

from meshwright.engine.launch import Task, launch
from meshwright.engine.record.spent import Spent
from meshwright.engine.run import run_request
from meshwright.errors import NoAnswerError
from meshwright.readers.formats import observe

pytest.importorskip("torch")
LEFT_OUT = "tests.engine.test_record:leaves_one_out"


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def leaves_one_out(request: Any) -> None:
    """Rank 1 does not take part in the mean of the loss of the second step."""
    import torch.distributed as dist

    from meshwright.engine import measure, step

    mean, calls = step.mean_over_ranks, []

    def some(trainer: Any, loss: Any) -> float:
        calls.append(loss)
        return 0.0 if dist.get_rank() == 1 and len(calls) == 2 else mean(trainer, loss)

    step.mean_over_ranks = some
    measure.measure(request)


@pytest.mark.parametrize("text", ["dense dp2 zero1 mb2", "dense tp2 sp mb4", "dense pp2 layers=[1,3] schedule=1f1b"])
def test_a_record_changes_no_loss_and_holds_every_exchange(text: str, tmp_path: Path) -> None:
    """Losses are the same bits; what one rank calls in a group the others call, in the same order; parts add up to the step."""
    _, request = case(text, 2)
    options = replace(request.options, steps=2, warmup_steps=1, saved=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        plain = run_request(replace(request, options=options))
        noted = run_request(replace(request, options=replace(options, record=str(tmp_path))))
    assert noted.losses == plain.losses
    ranks = [lines_of(tmp_path / f"rank-{rank}.jsonl") for rank in range(2)]
    for lines in ranks:
        assert lines[0]["format"] == "meshwright step record 1"
        assert lines[-1]["end"] == "done"
        steps = [line for line in lines if "step" in line]
        assert [step["step"] for step in steps] == [0, 1, 2]
        for step in steps:
            assert sum(step["parts"].values()) + sum(spent for _, spent in step["host"].values()) <= step["duration_s"] * 1.0001
            assert step["parts"]["forward"] > 0.0
            assert step["parts"]["backward"] > 0.0
            assert step["tokens"] == 256 // (2 if "dp2" in text else 1)
        called = [(line["of"], line["sequence"]) for line in lines if "called" in line]
        assert sorted(called) == sorted((line["of"], line["done"]) for line in lines if "done" in line)
    calls = [[(line["of"], line["sequence"], line["payload_bytes"], line["called"]) for line in lines if "called" in line]
             for lines in ranks]
    if "pp2" in text:
        assert {each[3] for each in calls[0]} == {"send", "receive", "all-reduce"}
        assert [each[:3] for each in sorted(calls[0])] == [each[:3] for each in sorted(calls[1])]
    else:
        assert calls[0] == calls[1]
    groups = {line["dimension"]: line["ranks"] for line in ranks[0] if "group" in line}
    assert groups == {text.split()[1][:2]: [0, 1]}


def test_a_collective_that_one_rank_leaves_out_is_found_in_what_is_left(tmp_path: Path) -> None:
    """Rank 0 waits in the world's all-reduce and rank 1 goes on into one that rank 0 never comes to; both are ended."""
    _, request = case("dense pp2 layers=[1,3] schedule=1f1b", 2)
    options = replace(request.options, steps=3, warmup_steps=0, saved=False, record=str(tmp_path))
    hangings: dict[int, Any] = {}
    for limit_s in (6.0, 60.0):  # a busy machine has not come to the collective in the first of them
        with warnings.catch_warnings(), pytest.raises(NoAnswerError):
            warnings.simplefilter("ignore", UserWarning)
            launch(Task(target=LEFT_OUT, payload=replace(request, options=options)), 2, limit_s=limit_s)
        observed = observe([tmp_path])
        hangings = {each.progress[0].rank: each for each in observed.observations if type(each).__name__ == "Hanging"}
        if hangings:
            break
    assert set(hangings) == {0, 1}
    waiting, gone = (hangings[rank].progress[0] for rank in (0, 1))
    assert (waiting.last_enqueued or 0) - (waiting.last_completed or 0) == 1
    assert gone.last_enqueued == waiting.last_completed


def test_each_second_is_counted_once_for_the_innermost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A span of 10 s holds one of 4 s that holds one of 1 s: 6, 3 and 1, and 2 s around them."""
    now = iter([0.0, 1.0, 4.0, 5.0, 6.0, 8.0, 11.0, 12.0])
    monkeypatch.setattr("meshwright.engine.record.spent.perf_counter", lambda: next(now))
    spent = Spent()
    with spent.within("forward"), spent.within("communication"), spent.within("gc"):
        pass
    spent.settle()
    assert spent.seconds == {"other": 2.0, "forward": 6.0, "communication": 3.0, "gc": 1.0}
    assert spent.times == {"forward": 1, "communication": 1, "gc": 1}
