"""Rounds: A B C A B C, nothing twice, and what is done stays done."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from run_cases import job

from meshwright.errors import Message, NoAnswerError
from meshwright.measure.rehearse.rounds import Ran, failure, medians, peak_bytes, run_rounds
from meshwright.measure.rehearse.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from meshwright.measure.rehearse.rounds import Job, Runner

JOBS = [job(0), job(7), job(20)]


def counting(seen: list[int], *, fails: int | None = None, stops_at: int | None = None) -> Runner:
    """A runner whose steps take as many seconds as runs there were before it."""

    def once(each: Job) -> Ran:
        place = JOBS.index(each)
        if stops_at is not None and len(seen) == stops_at:
            raise KeyboardInterrupt
        seen.append(place)
        if place == fails:
            raise NoAnswerError(Message("engine.out-of-memory", "rank {rank}: out of\nmemory", {"rank": 1}))
        return Ran([float(len(seen)), float(len(seen)) + 2.0, float(len(seen)) + 1.0], 100 + len(seen))

    return once


def test_every_round_runs_every_layout_once() -> None:
    seen: list[int] = []
    store = Store(None, "here")
    assert run_rounds(JOBS, 2, store, counting(seen))
    assert seen == [0, 1, 2, 0, 1, 2]
    assert medians(JOBS[1], store) == (3.0, 6.0)
    assert peak_bytes(JOBS[1], store) == 105
    assert peak_bytes(job(1), store) is None


def test_what_fails_is_not_run_again_until_it_is_asked_for_again() -> None:
    seen: list[int] = []
    store = Store(None, "here")
    assert run_rounds(JOBS, 3, store, counting(seen, fails=1))
    assert seen == [0, 1, 2, 0, 2, 0, 2]
    assert failure(JOBS[1], store) == "rank 1: out of memory"
    assert (medians(JOBS[1], store), failure(JOBS[0], store)) == ((), "")
    again: list[int] = []
    assert run_rounds(JOBS, 3, store, counting(again))
    assert again == [1, 1, 1]
    assert failure(JOBS[1], store) == ""


@pytest.mark.parametrize("stop", range(7))
def test_an_interrupted_loop_goes_on_where_it_stopped(tmp_path: Path, stop: int) -> None:
    first: list[int] = []
    assert run_rounds(JOBS, 2, Store(tmp_path / "runs.jsonl", "here"), counting(first, stops_at=stop)) is (stop == 6)
    second: list[int] = []
    store = Store(tmp_path / "runs.jsonl", "here")
    assert run_rounds(JOBS, 2, store, counting(second))
    assert first + second == [0, 1, 2, 0, 1, 2]
    assert all(len(medians(each, store)) == 2 for each in JOBS)


def test_runs_of_another_model_or_batch_are_others() -> None:
    other = replace(JOBS[0], case=replace(JOBS[0].case, batch=replace(JOBS[0].case.batch, sequence_tokens=64)))
    faster = replace(JOBS[0], case=replace(JOBS[0].case, cluster=replace(JOBS[0].case.cluster, name="measured")))
    store = Store(None, "here")
    assert run_rounds(JOBS[:1], 1, store, counting([]))
    assert medians(other, store) == ()
    assert medians(faster, store) == medians(JOBS[0], store) != (), "what is predicted of it changes nothing that was run"


def test_progress_counts_runs() -> None:
    ticks: list[tuple[str, float, float]] = []
    run_rounds(JOBS, 2, Store(None, "here"), counting([]), tick=lambda *tick: ticks.append(tick))
    assert ticks == [("runs", float(place), 6.0) for place in range(6)]
