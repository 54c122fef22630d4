"""Finalists are measured by turns: a drift of the machine, however steep, does not decide between them; noise is said as such."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trials_here import conducted

from meshwright.domain.layout import Layout
from meshwright.measure.chooser import Candidate, Listed, layout_of
from meshwright.measure.conduct.finals import MOST, TOLD_APART, Finals, finalists, said, slower
from meshwright.measure.outcome import Outcome


def candidates(*labels):
    return [Candidate(label=each, layout=Layout(data_parallel=1)) for each in labels]


def held(steps, rounds, measure):
    """Run it: ``measure(label, trial number)`` -> the chooser, and what was asked for."""
    chooser, asked = Finals(Listed(candidates(*steps)), rounds), []
    while (candidate := chooser.ask()) is not None:
        step_s = measure(candidate.label, len(asked))
        asked.append(candidate.name)
        chooser.tell(candidate, Outcome(status="ok", step_s=step_s, interval_s=(0.9 * step_s, 1.1 * step_s)))
    return chooser, asked


@given(st.floats(0.005, 0.05), st.floats(-0.04, 0.04), st.integers(3, 6), st.booleans())
def test_a_steady_drift_does_not_decide(gain, drift, rounds, turned):
    true = {"a": 1.0, "b": 1.0 - gain} if turned else {"b": 1.0 - gain, "a": 1.0}
    chooser, asked = held(true, 2 * rounds, lambda label, number: true[label] * math.exp(drift * number))
    assert asked[2:6] in ([["a #1", "b #1", "b #2", "a #2"], ["b #1", "a #1", "a #2", "b #2"]])
    blocks = {label: sum(math.log(each) for each in steps) for label, steps in chooser._blocks.items()}
    if len(asked) % 4 == 2:  # as many rounds each way
        assert min(blocks, key=blocks.get) == "b" and "b is the fastest" in said(chooser._blocks)


def test_what_noise_hides_is_said_so():
    dice = random.Random(3)
    chooser, asked = held({"a": 1.0, "b": 1.0}, 4, lambda label, number: math.exp(dice.gauss(0.0, 0.05)))
    assert "cannot be told apart" in said(chooser._blocks) and len(asked) == 2 + 2 * 4
    clear, asked = held({"a": 1.0, "b": 1.05}, 9, lambda label, number: {"a": 1.0, "b": 1.05}[label] * (1 + 0.001 * (number % 3)))
    assert len(asked) == 2 + 2 * 2, "two rounds are enough where they agree"
    assert "by turns, 2 rounds: a is the fastest, b takes 4.8 % longer" in said(clear._blocks)


def test_who_is_no_rival_is_not_measured_again():
    found = [(each, Outcome(status="ok", step_s=step, interval_s=(step * 0.99, step * 1.01)))
             for each, step in zip(candidates("a", "b", "c", "d", "e"), (1.0, 1.015, 1.5, 1.005, 1.01), strict=True)]
    assert finalists(found) == ("a", "d", "e") and len(finalists(found)) == MOST
    lost = replace(found[2][0], label="z"), found[2][1]
    assert finalists([found[0], found[2], lost]) == ("a", "c"), "the second is always one"
    assert finalists(found[:1]) == finalists([]) == ()
    assert held({"a": 1.0, "b": 1.0}, 0, lambda label, _: 1.0)[1] == ["a", "b"]
    asked = held({"a": 1.0, "b": 1.5}, 3, lambda label, _: {"a": 1.0, "b": 1.5}[label])[1]
    assert asked == ["a", "b", "a #1", "b #1", "b #2", "a #2"]


def test_a_finalist_that_fails_is_one_no_more():
    chooser = Finals(Listed(candidates("a", "b", "c")), 3)
    for _ in range(3):
        chooser.tell(chooser.ask(), Outcome(status="ok", step_s=1.0, interval_s=(0.9, 1.1)))
    for status in ("ok", "oom", "ok", "ok", "ok"):
        candidate = chooser.ask()
        assert chooser.ask() is None, "blocks run one at a time"
        chooser.tell(candidate, Outcome(status=status, step_s=1.0 if status == "ok" else None))
    assert set(chooser._blocks) == {"a", "c"}


@given(st.lists(st.floats(0.5, 2.0), min_size=2, max_size=9), st.floats(0.9, 1.1), st.floats(0.5, 2.0))
def test_the_difference_is_a_ratio(steps, ratio, scale):
    middle, low, high = slower(steps, [ratio * each for each in steps])
    assert middle == pytest.approx(ratio - 1.0, abs=1e-8) and low - 1e-6 <= middle <= high + 1e-6
    again = slower([scale * each for each in steps], [scale * ratio * each for each in steps])
    assert again[0] == pytest.approx(middle, abs=1e-8)


def test_the_table_of_students_t():
    stats = pytest.importorskip("scipy.stats", reason="scipy is not installed")
    assert all(value == pytest.approx(stats.t.ppf(0.9, rounds - 1), abs=1e-3) for rounds, value in TOLD_APART.items())


def test_blocks_are_trials_of_a_store_that_are_not_run_twice(tmp_path):
    for _ in range(2):
        _, found = conducted(tmp_path / "s.db", chooser=Finals(Listed(candidates("ok 50", "ok 51")), 2))
    assert sorted(found) == ["ok 50", "ok 50 #1", "ok 50 #2", "ok 51", "ok 51 #1", "ok 51 #2"]
    assert all(len(each) == 1 and each[0].status == "ok" for each in found.values())
    assert layout_of("ok 51 #2") == ("ok 51", 2) and layout_of("odd #label") == ("odd #label", 0)
