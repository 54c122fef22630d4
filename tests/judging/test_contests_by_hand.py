"""Which side of a contest a case takes and with which words; how far a knob at a time leads; where points of a step go."""

from __future__ import annotations

from types import SimpleNamespace as Some

import numpy as np
import pytest

from meshwright.judging import climb as climbing
from meshwright.judging import contests as module
from meshwright.judging.contests import CONTESTS, contests
from meshwright.judging.finding import number, ratio, size
from meshwright.judging.losses import causes, losses
from meshwright.units import GIB
from meshwright.words import percent


def facts(*, parameters=8e9, best=None, communication=0.1, step_s=10.0, **layout):
    plain = {
        "pipeline_parallel": 1,
        "virtual_stages": 1,
        "num_microbatches": 8,
        "microbatch_sequences": 2,
        "data_parallel": 4,
        "zero_stage": 1,
        "world": 16,
    }
    return Some(
        layout=Some(**{**plain, **layout}),
        parameters=parameters,
        best=best or {},
        communication_ratio=communication,
        step_s=step_s,
        error_ratio=0.03,
        estimate=Some(bubble_ratio=0.125, expected_step_s=step_s),
    )


def found(step_s=10.0, fits=True, expected_s=None):
    return Some(
        step_s=step_s, expected_step_s=expected_s or step_s, fits=fits, label="tp2", memory_reserved_bytes=90 * GIB, chance_s=0.0,
    )


@pytest.mark.parametrize(
    ("parameters", "rule"), [(9.99e9, "playbook.small-full-recompute"), (10e9, "playbook.poor-full-recompute")]
)
def test_full_recompute_is_another_rule_from_ten_billion_on(parameters, rule):
    own = contests(facts(parameters=parameters))
    assert [each.topic for each in own] == [each.topic for each in CONTESTS]
    recompute = next(each for each in own if each.topic == "recompute")
    assert (recompute.rules[-1], len(recompute.rules)) == (rule, 3)
    assert [each for each in own if each.topic != "recompute"] == [each for each in CONTESTS if each.topic != "recompute"]


@pytest.mark.parametrize(
    ("billions", "question"),
    [(1, "tp1"), (10, "tp1"), (10.1, "tp2-4"), (50, "tp2-4"), (50.1, ""), (99.9, ""), (100, "tp8"), (500, "tp8")],
)
def test_the_class_of_a_model(billions, question):
    assert module._question(facts(parameters=billions * 1e9), "tp-by-size") == question
    assert module._question(facts(parameters=billions * 1e9), "mb1") == "mb1"


def test_a_figure_in_words():
    said = [
        module._shown(each)
        for each in (
            ratio("bubble_ratio", 0.0951),
            ratio("step_change_ratio", 0.4962),
            ratio("step_change_ratio", -0.1),
            size(2.5 * GIB, "headroom_bytes"),
            number("num_microbatches", 2),
        )
    ]
    assert said == ["bubble 9.5 %", "step change +49.6 %", "step change -10.0 %", "headroom 2.5 GiB", "num microbatches 2"]


def test_the_words_of_a_side_of_the_grid():
    micro, tensor = CONTESTS[0], next(each for each in CONTESTS if each.topic == "tensor parallelism")
    best = {"mb1": found(), "mb2": found(fits=False)}
    assert module._best(facts(best=best), micro, 0) == "micro-batch 1: 10.0 s (tp2)"
    assert module._best(facts(best=best), micro, 1) == "micro-batch 2: does not fit, 90.0 GiB at least"
    assert module._best(facts(best=best), micro, 2) == "micro-batch 16: not legal here"
    assert module._best(facts(parameters=70e9), tensor, 0) == "TP by size of the model: no class for this size"


@pytest.mark.parametrize(
    ("best", "right", "figure", "words"),
    [
        ({}, (), ("devices", 16), "nothing fits with either"),
        ({"any": found(fits=False)}, (), ("devices", 16), "nothing fits with either"),
        (
            {"any": found(9.0), "mb1": found(10.0), "mb2": found(12.0), "mb16": found(99.0, fits=False)},
            (),
            ("expected_spread_ratio", 0.2),
            "the best of all takes 9.00 s (tp2)",
        ),
        ({"any": found(9.0), "mb1": found(10.0)}, ("a",), ("expected_spread_ratio", 0.0), ""),
        ({"any": found(9.0)}, ("a", "b"), ("expected_spread_ratio", 0.0), "within 3.0 % the model cannot tell them apart"),
    ],
)
def test_how_far_sides_of_the_grid_lie_apart(best, right, figure, words):
    own, sentence = module._by_grid(facts(best=best), CONTESTS[0], right)
    assert ((own.name, pytest.approx(own.value)), sentence) == (figure, words)


def test_bubbles_stages_and_shards():
    assert module._bubble(facts()) == (ratio("bubble_ratio", 0.0), "no pipeline here, so no bubble")
    own, words = module._bubble(facts(pipeline_parallel=4, virtual_stages=2, num_microbatches=8))
    assert own.value == pytest.approx(3 / (2 * 4 + 3))
    assert words.endswith(f"from {percent(3 / 19)} to {percent(3 / 11)}")
    assert module._stages(facts()) == (number("num_microbatches", 8), "one stage; 8 micro-batches of 2 need none to fill")
    own, words = module._stages(facts(pipeline_parallel=4))
    said = "8 micro-batches of 2 fill 4 stages to a bubble of 12.5 %; the number counts, not the size"
    assert (own.value, words) == (0.125, said)
    for one in ({"pipeline_parallel": 1}, {"pipeline_parallel": 2, "data_parallel": 1}):
        assert module._zero(facts(**one))[1] == "no sharding under a pipeline in this layout"
    assert module._zero(facts(pipeline_parallel=2, zero_stage=2))[0] == number("zero_stage", 2)


@pytest.mark.parametrize(
    ("share", "best", "words"),
    [
        (0.15, None, "within both bounds"),
        (0.151, None, "only the wider bound"),
        (0.2, None, "only the wider bound"),
        (0.201, None, "and layouts that are expected to be faster exist"),
        (0.3, found(9.8), "neither bound is a law"),
        (0.3, found(9.7), "and layouts that are expected to be faster exist"),
        (0.3, found(99.0), "neither bound is a law"),
        (0.3, found(99.0, fits=False), "and layouts that are expected to be faster exist"),
    ],
)
def test_exposed_communication_between_the_bounds(share, best, words):
    own, sentence = module._communication(facts(communication=share, best={"any": best} if best else {}))
    assert own.value == share
    assert words in sentence and sentence.startswith(f"{percent(share)} exposed: ")


@pytest.mark.parametrize(
    ("verdicts", "stages", "decision", "right"),
    [
        (("holds", "fails"), 2, "taken", ("a",)),
        (("not-followed", "fails"), 2, "taken", ("a",)),
        (("holds", "not-followed"), 2, "tie", ("a", "b")),
        (("fails", "wrong"), 2, "none", ()),
        (("does-not-apply", "fails"), 2, "none", ()),
        (("does-not-apply", "does-not-apply"), 2, "no-question", ()),
        (("holds", "fails"), 1, "no-question", ()),
    ],
)
def test_who_is_right(verdicts, stages, decision, right):
    contest = module.Contest(topic="t", rules=("a", "b"), says=lambda _: (number("devices", 1), "so"), of_a_pipeline=True)
    known = {
        rule: Some(rule=rule, source="s", says=f"do {rule}", verdict=verdict, figure=number("devices", 3), sentence="not here")
        for rule, verdict in zip("ab", verdicts, strict=True)
    }
    own = module._decided(facts(pipeline_parallel=stages), contest, known)
    assert (own.decision, own.right, own.sentence) == (decision, right, "so")
    for side, verdict in zip(own.sides, verdicts, strict=True):
        assert side.sentence == f"do {side.rule}: {'not here' if verdict == 'does-not-apply' else 'devices 3'}"
    plain = module.Contest(topic="t", rules=("a", "b"), says=lambda _: (number("devices", 1), "so"))
    if stages == 1:
        assert module._decided(facts(), plain, known).decision == "taken"


def test_a_knob_at_a_time_goes_downhill_as_far_as_it_fits(monkeypatch):
    """Layouts are numbers, neighbours the next ones; what is beyond the capacity is never taken."""
    times = {0: 10.0, 1: 8.0, 2: 9.0, 3: 5.0, 4: 4.0, 5: 3.9999}
    needs = dict.fromkeys(times, 1.0)
    monkeypatch.setattr(
        climbing,
        "neighbours",
        lambda case, features, now: [Some(layout=each) for each in (now - 1, now + 1, None) if each in times],
    )
    monkeypatch.setattr(
        climbing, "price_many",
        lambda case, found, known: (None, np.array([times[each] for each in found]), np.array([needs[each] for each in found])),
    )
    monkeypatch.setattr(climbing, "expected_s", lambda case, step_s, reserved: step_s)
    case = Some(capacity_bytes=1.0)
    assert climbing.climb(case, None, 0, 10.0) == (1, 1)
    assert climbing.climb(case, None, 3, 5.0) == (4, 1), "a ten-thousandth is nothing"
    assert climbing.climb(case, None, 2, 9.0) == (4, 2)
    needs[3] = 1.1
    assert climbing.climb(case, None, 2, 9.0) == (1, 1)
    needs[1] = 1.1
    assert climbing.climb(case, None, 2, 9.0) == (2, 0)
    times.clear()
    assert climbing.climb(case, None, 2, 9.0) == (2, 0)
    times.update({place: 1000.0 - place for place in range(100)})
    needs.update(dict.fromkeys(times, 1.0))
    monkeypatch.setattr(climbing, "MOVES", 5)
    assert climbing.climb(case, None, 0, 1000.0) == (5, 5)
    monkeypatch.setattr(climbing, "expected_s", lambda case, step_s, reserved: np.where(step_s < 998.0, 2000.0, step_s))
    assert climbing.climb(case, None, 0, 1000.0) == (2, 2), "what is faster and riskier is no move"


def test_points_are_percent_of_the_step_by_term_and_by_cause():
    terms = [
        Some(name=name, value=value, formula="f")
        for name, value in (
            ("ideal", 4.0),
            ("pipeline bubble", 1.0),
            ("host", -0.5),
            ("tensor parallelism: all-reduce", 3.0),
            ("recompute", 0.5),
            ("optimizer", 2.0),
        )
    ]
    own = losses(Some(terms=terms))
    assert [(each.name, each.points_percent, each.time_s) for each in own] == [
        (each.name, 10 * each.value, each.value) for each in terms
    ]
    assert [each.cause for each in own] == ["useful work", "batch", "software", "strategy", "strategy", "batch"]
    every = [*terms] + [
        Some(name=name, value=0.0, formula="f") for name in ("matrix products below peak", "embedding, output layer and loss")
    ]
    by_cause = causes(Some(terms=every))
    assert [(each.name, each.points_percent, each.largest) for each in by_cause] == [
        ("useful work", 40.0, "ideal"),
        ("strategy", 35.0, "tensor parallelism: all-reduce"),
        ("batch", 30.0, "optimizer"),
        ("hardware", 0.0, "matrix products below peak"),
        ("architecture", 0.0, "embedding, output layer and loss"),
        ("software", -5.0, "host"),
    ]
