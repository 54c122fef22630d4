"""Parts beside their predictions: an interval only where something was measured that gives one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.strategies import EVERYTHING, small_case

from meshwright.diagnose import diagnose
from meshwright.diagnose.expected import expected, longer
from meshwright.diagnose.intervals import ENOUGH, part_interval
from meshwright.diagnose.run import Run
from meshwright.domain.estimate import Interval
from meshwright.domain.label import parse_layout
from meshwright.domain.measured import Measured, TimedCollective
from meshwright.domain.observed import RankSplit, RankTrace, RunLog, Step, TraceStep
from meshwright.judging.facts import Facts

CASE = small_case("llama3-8b", "h800", layers=4)


def timed(*ratios: float) -> tuple[TimedCollective, ...]:
    """All-reduces of one group at growing payloads, each so many times its formula."""
    return tuple(TimedCollective(operation="all-reduce", ranks=2, payload_bytes=2**at, seconds=1e-3 * each, formula_s=1e-3)
                 for at, each in enumerate(ratios, start=10))


def cluster(*ratios: float):
    return replace(CASE.cluster, measured=Measured(name="own", version="2026-01-01", scale_up=timed(*ratios)))


def layout(words: str):
    return parse_layout(words, num_devices=8, global_batch_sequences=16)


def test_collectives_that_alternate_give_their_scatter():
    """Ratios 1 and 1.21 in turn: each lies 1.21 from what its neighbours make of it."""
    low, high = part_interval("tp", 2.0, cluster(*[1.0, 1.21] * 6), layout("tp2 mb1"))
    assert (low, high) == pytest.approx((2.0 / 1.21, 2.0 * 1.21))


def test_what_collectives_do_not_tell_has_no_interval():
    many = cluster(*[1.0, 1.1] * 6)
    assert part_interval("tp", 1.0, CASE.cluster, layout("tp2 mb1")) is None, "nothing was measured"
    assert part_interval("tp", 1.0, cluster(*[1.0] * (ENOUGH - 1)), layout("tp2 mb1")) is None, "too few"
    assert part_interval("tp", 1.0, many, layout("tp2 mb1 overlap=tp")) is None, "hidden"
    assert part_interval("tp", 1.0, many, layout("tp1 mb1")) is None, "there is none"
    assert part_interval("cp", 1.0, many, layout("tp1 cp2 mb1")) is None, "a ring hides"
    assert part_interval("cp", 1.0, many, layout("tp1 cp2 mb1 context=ulysses")) is not None
    assert [part_interval(name, 1.0, many, layout("tp2 mb1")) for name in ("dp", "pp", "ep", "compute", "bubble")] == [None] * 5


def run(tp_ratio: float, case) -> Run:
    """A trace in which TP takes so many times its prediction, and the rest is compute."""
    facts = Facts(case, layout("tp8 mb1 overlap=none"), EVERYTHING)
    step = facts.estimate.step_s
    spent = tp_ratio * facts.estimate.time.tensor_parallel_s
    split = RankSplit(window_s=step, compute_s=step - spent, communication_s=spent, exposed_communication_s=spent)
    trace = RankTrace(file="t", format="kineto", split=split, exposed_by_group={"tp_group": spent},
                      steps=(TraceStep(number=1, start_s=0.0, end_s=step),))
    return Run(observations=(trace,), facts=facts)


def test_a_part_is_told_from_the_end_of_its_interval_on():
    """1.4 times the prediction is within our judgement for parts, and far outside what exact collectives leave."""
    rough, exact = CASE, replace(CASE, cluster=cluster(*[1.0, 1.02] * 6))
    assert [each.id for each in longer(run(1.4, rough))] == []
    assert [each.id for each in longer(run(1.4, exact))] == ["expected.tp"]
    assert [each.id for each in longer(run(1.01, exact))] == []
    told = {each.part: each.interval for each in expected(run(1.0, exact))}
    assert told["tp"] is not None
    assert told["dp"] is None


@pytest.mark.parametrize(("longer_by", "tokens_ratio", "steps", "verdict"), [
    (1.0, 1.0, 4, "normal"), (3.0, 1.0, 4, "slow"), (3.0, 1.0, None, "unknown"), (3.0, 0.5, 4, "unknown"),
    (3.0, None, 4, "unknown"),
])
def test_of_reinforcement_learning_an_optimizer_step_is_compared_and_never_the_whole_step(longer_by, tokens_ratio, steps, verdict):
    """Four optimizer steps beside as much generation: only where their number and their tokens are known and are the case's."""
    bare = Facts(CASE, layout("tp8 mb1"), EVERYTHING)
    step_s = bare.step_s
    ends = (0.9 * step_s, 1.1 * step_s)
    interval = Interval(level=0.9, step_s=ends, memory_peak_bytes=(0.0, 1.0), memory_reserved_bytes=(0.0, 1.0))
    facts = Facts(CASE, layout("tp8 mb1"), EVERYTHING, replace(bare.estimate, interval=interval))
    update = 4 * longer_by * step_s
    tokens = None if tokens_ratio is None else round(4 * tokens_ratio * CASE.batch.tokens)
    parts = {"gen": update, "update_actor": update}
    step = Step(number=1, step_s=2.0 * update, line=1, parts=parts, optimizer_steps=steps, tokens=tokens)
    found = diagnose(Run(observations=(RunLog(file="a.log", format="verl_log", steps=(step,)),), facts=facts))
    assert found.verdict == verdict
    assert found.run.mfu_ratio is None
    rows = {each.part: each for each in found.expected}
    if verdict == "unknown":
        assert not rows
        assert any("not compared" in note for note in found.notes)
        return
    assert list(rows) == ["training"]
    assert rows["training"].observed_s == pytest.approx(longer_by * step_s)
    assert ("expected.training" in {each.id for each in found.findings}) is (verdict == "slow")
