"""Records of the reference step, written by hand: what is read of them, whole, torn and of a rank that waits for ever."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from meshwright.domain.observed import Hanging, RankTrace, RunLog
from meshwright.readers.formats import observe

if TYPE_CHECKING:
    from pathlib import Path

HEADER = {
    "format": "meshwright step record 1", "rank": 1, "world": 2, "layout": "tp2 mb1", "warmup_steps": 1, "asked_threads": 2,
    "sequence_tokens": 32, "global_batch_sequences": 8, "clock": {"offset_s": 100.0, "spread_s": 0.0, "how": "meetings"},
}
GROUP = {"group": "7", "dimension": "tp", "ranks": [0, 1]}


def called(number: int, start: float) -> dict[str, Any]:
    return {"called": "all-reduce", "of": "7", "sequence": number, "payload_bytes": 4096, "start_s": start}


def step(number: int, start: float) -> dict[str, Any]:
    return {
        "step": number, "start_s": start, "duration_s": 1.0,
        "parts": {"data": 0.1, "forward": 0.2, "backward": 0.3, "optimizer": 0.1, "communication": 0.15, "other": 0.05},
        "host": {"gc": [2, 0.04], "synchronise": [1, 0.06]}, "memory": {"peak_bytes": 300, "live_bytes": 200}, "threads": 1,
        "tokens": 128, "padded_tokens": 32, "loss": 5.5,
    }


WHOLE = [
    HEADER, {"begun": 0, "start_s": 109.0}, step(0, 109.0), {"begun": 1, "start_s": 110.0}, GROUP, called(1, 110.4),
    {"done": 1, "of": "7", "end_s": 110.6, "blocked_s": 0.15}, step(1, 110.0), {"end": "done", "at_s": 111.1},
]
WAITING = [*WHOLE[:-1], {"begun": 2, "start_s": 111.0}, called(2, 111.2), *({"at_s": 112.0 + each} for each in range(5))]


def read(path: Path, lines: list[dict[str, Any]], torn: str = "") -> dict[type, Any]:
    file = path / "what.ever"
    file.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines) + torn)
    return {type(each): each for each in observe([file]).observations}


def test_a_whole_record(tmp_path: Path) -> None:
    """Steps that warm up are left out; the clock is rank 0's; the window is compute, communication and what is neither."""
    found = read(tmp_path, WHOLE)
    assert set(found) == {RunLog, RankTrace}
    log, trace = found[RunLog], found[RankTrace]
    (only_step,) = log.steps
    assert (only_step.number, only_step.step_s, only_step.line) == (1, 1.0, 8)
    assert (only_step.rank_tokens, only_step.padded_tokens) == (128, 32)
    assert (log.settings["asked_threads"], log.settings["threads"], log.world) == ("2", "1", 2)
    assert (log.memory[0].rank, log.memory[0].allocated_bytes, log.memory[0].max_allocated_bytes) == (1, 200.0, 300.0)
    split = trace.split
    assert (split.window_s, split.compute_s, split.exposed_communication_s) == pytest.approx((1.0, 0.6, 0.15))
    assert split.idle_s == pytest.approx(sum(trace.idle.values()))
    assert trace.idle == pytest.approx({"data": 0.1, "sync": 0.06, "gc": 0.04, "compile": 0.0, "other": 0.05})
    (only,) = trace.collectives
    assert (only.start_s, only.end_s, only.group, only.sequence) == pytest.approx((10.4, 10.6, "tp_group 7", 1))
    assert trace.groups == {"tp_group 7": (0, 1)}


def test_a_rank_that_waits_for_ever(tmp_path: Path) -> None:
    """Four seconds without a line of its own, after steps of one: it has come to a stop, in collective 2."""
    (progress,) = read(tmp_path, WAITING)[Hanging].progress
    assert (progress.rank, progress.last_enqueued, progress.last_completed) == (1, 2, 1)


@pytest.mark.parametrize("lines", [WHOLE[:-1], WAITING[:-4]])
def test_a_run_that_was_ended_in_the_middle_hangs_nowhere(lines: list[dict[str, Any]], tmp_path: Path) -> None:
    """A scheduler may end a run at any time: an exchange that was under way is no hang."""
    found = read(tmp_path, lines)
    assert Hanging not in found
    assert "breaks off" in " ".join(found[RunLog].notes)


@pytest.mark.parametrize(
    "torn", ['{"step":2,"start', "\x00\x01", "[" * 5000, '{"step":"NaN","start_s":{}}\n', '{"called":1e999}\n[3]\n']
)
def test_what_is_none_of_a_record_is_counted_and_left(torn: str, tmp_path: Path) -> None:
    """The steps before it stand."""
    log = read(tmp_path, WHOLE, torn)[RunLog]
    assert len(log.steps) == 1
    assert "none of a record's" in log.notes[0]
