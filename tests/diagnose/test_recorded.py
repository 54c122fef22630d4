"""Records of several ranks beside each other, made by hand: who waits, what transfers take, and which cause comes first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.diagnose.diagnosis import diagnose
from meshwright.diagnose.recorded import FORMAT, recorded
from meshwright.diagnose.run import Run
from meshwright.domain.observed import Collective, RankMemory, RankSplit, RankTrace, RunLog, Step, TraceStep

STEPS, STEP_S, CALLS = 9, 1.0, 4
GROUP = "dp_group 0"


def trace(rank: int, *, work: tuple[float, ...] = (0.24,) * CALLS, arrive: tuple[float, ...] | None = None, link_s: float = 0.002,
          idle: dict[str, float] | None = None) -> RankTrace:
    """A rank that works before each exchange of a step, waits for the last (``arrive``: its work), and transfers."""
    steps, calls = [], []
    for number in range(STEPS):
        now = start = number * STEP_S * 2
        meet = start
        for place, (own, last) in enumerate(zip(work, arrive or work, strict=True)):
            meet += max(own, last)
            begin, end = now + own, meet + link_s
            calls.append(Collective(
                operation="all-reduce", start_s=begin, end_s=end, exposed_s=end - begin, group=GROUP, ranks=(0, 1),
                sequence=number * CALLS + place + 1,
            ))
            now = meet = end
        steps.append(TraceStep(number=number, start_s=start, end_s=now))
    window = sum(each.end_s - each.start_s for each in steps)
    talk = sum(each.exposed_s for each in calls)
    split = RankSplit(rank=rank, window_s=window, compute_s=window - talk, communication_s=talk, exposed_communication_s=talk)
    one = replace(split, window_s=window / STEPS, compute_s=(window - talk) / STEPS)
    return RankTrace(
        file=f"rank-{rank}.jsonl", format=FORMAT, split=split, rank=rank, world=2, steps=tuple(steps), by_step=(one,) * STEPS,
        idle={name: spent * STEPS for name, spent in (idle or {}).items()}, collectives=tuple(calls), groups={GROUP: (0, 1)},
    )


def log(rank: int, *, padded: int = 0, grows_bytes: float = 0.0, **settings: str) -> RunLog:
    said = {"rank": str(rank), "threads": "1", "asked_threads": "1", "cores": "2", "ranks_here": "2"} | settings
    return RunLog(
        file=f"rank-{rank}.jsonl", format=FORMAT, world=2, settings=said,
        steps=tuple(Step(number=each, step_s=STEP_S, line=each, rank_tokens=100, padded_tokens=padded) for each in range(STEPS)),
        memory=tuple(
            RankMemory(rank=rank, step=each, line=each, allocated_bytes=3e8 + grows_bytes * each) for each in range(STEPS)
        ),
    )


def first(*observations: RankTrace | RunLog) -> str:
    """The first finding above advice, and whom it names."""
    found = next((each for each in diagnose(Run(observations=observations)).findings if each.severity != "advice"), None)
    return "" if found is None else f"{found.id} {found.message.values.get('rank', '')}".strip()


EVEN = (0.24,) * CALLS
SLOW = tuple(each + 0.05 for each in EVEN)
LATE = (0.24, 0.44, 0.24, 0.24)


def test_waiting_is_told_from_transfer() -> None:
    """0.2 s of each step rank 0 waits for rank 1 before the second of four exchanges of 2 ms."""
    found = recorded([trace(0, arrive=LATE), trace(1, work=LATE)], {GROUP: "dp"})
    assert found is not None
    assert found.waiting["dp"] == pytest.approx(0.1, abs=1e-9)
    assert found.transfer["dp"] == pytest.approx(0.008, abs=1e-9)
    worst = found.excess[0]
    assert (worst.rank, worst.where) == (1, "all-reduce 2 of a step")
    assert (worst.seconds, worst.most) == pytest.approx((0.2, 0.2))


@pytest.mark.parametrize(
    ("wanted", "seen"),
    [
        ("", (trace(0), trace(1), log(0), log(1))),
        ("ranks.late 1", (trace(0, arrive=LATE), trace(1, work=LATE), log(0), log(1))),
        ("ranks.uneven 1", (trace(0, arrive=SLOW), trace(1, work=SLOW), log(0), log(1))),
        ("host.threads 1", (trace(0, arrive=SLOW), trace(1, work=SLOW), log(0), log(1, threads="8"))),
        ("host.threads", (trace(0), trace(1), log(0, threads="8"), log(1, threads="8"))),
        ("communication.dp", (trace(0, link_s=0.05), trace(1, link_s=0.05), log(0), log(1))),
        ("host.gc", (trace(0, idle={"gc": 0.1}), trace(1, idle={"gc": 0.1}), log(0), log(1))),
        ("host.sync", (trace(0, idle={"sync": 0.1}), trace(1, idle={"sync": 0.1}), log(0), log(1))),
        ("compile.recompiled", (trace(0, idle={"compile": 0.1}), trace(1, idle={"compile": 0.1}), log(0), log(1))),
        ("data.loading", (trace(0, idle={"data": 0.1}), trace(1, idle={"data": 0.1}), log(0), log(1))),
        ("data.padding", (trace(0), trace(1), log(0, padded=10), log(1, padded=10))),
        ("memory.leak 0", (trace(0), trace(1), log(0, grows_bytes=2e6), log(1))),
    ],
)
def test_each_cause_comes_first(wanted: str, seen: tuple[RankTrace | RunLog, ...]) -> None:
    """A tenth of the step each, nothing else in the run."""
    assert first(*seen) == wanted


@pytest.mark.parametrize("seen", [
    (trace(0, link_s=0.008), trace(1, link_s=0.008), log(0), log(1)),
    (trace(0, idle={"gc": 0.01}), trace(1), log(0), log(1)),
    (trace(0), trace(1), log(0, padded=1), log(1, padded=1)),
    (trace(0), trace(1), log(0, grows_bytes=2e5), log(1)),
    (trace(0), trace(1), log(0, threads="2"), log(1, threads="2")),
])
def test_what_is_usual_is_no_cause(seen: tuple[RankTrace | RunLog, ...]) -> None:
    """Little of each is in every run."""
    assert first(*seen) == ""


@pytest.mark.parametrize(("seen", "bound"), [
    ((trace(0, idle={"data": 0.1}), trace(1, idle={"data": 0.05})), 0.15 / 0.968),
    ((trace(0, idle={"data": 0.9}), trace(1, idle={"data": 0.9})), 1.0),
    ((trace(0, idle={"data": 0.1}),), None),
    ((replace(trace(0, idle={"data": 0.1}), world=1),), 0.1 / 0.968),
])
def test_what_a_part_gives_back_is_at_most_what_all_ranks_lost_to_it(seen: tuple[RankTrace, ...], bound: float | None) -> None:
    """Steps of 0.968 s; of a rank that nobody saw nothing is known, so that there is no bound."""
    found = next(each for each in diagnose(Run(observations=seen)).findings if each.id == "data.loading")
    assert found.at_most == (bound is not None)
    assert found.predicted_gain_ratio == (None if bound is None else pytest.approx(bound))
