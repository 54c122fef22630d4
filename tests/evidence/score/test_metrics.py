"""Metrics against their definitions written out, and against what must hold for any rows."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.evidence.score.scipy_free import spearman_by_hand
from tests.evidence.scored_rows import scored, scored_rows, seconds, steady

from meshwright.evidence.score.metrics import reliability, scores, spearman


@steady
@given(scored_rows(), st.randoms(use_true_random=False))
def test_no_order_of_rows_matters(rows, random):
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert scores(shuffled) == scores(rows)
    assert reliability(shuffled) == reliability(rows)


@steady
@given(scored_rows())
def test_errors_are_those_of_the_contract(rows):
    ran = [each for each in rows if each.status == "ok"]
    found = scores(rows, skipped=4)
    assert found.n == len(rows)
    assert found.skipped == 4
    assert found.step_n == len(ran)
    if not ran:
        assert found.step_mape_ratio is None
        return
    ratios = [each.predicted_step_s / each.measured_step_s for each in ran]
    assert found.step_mape_ratio == pytest.approx(fmean(abs(each - 1) for each in ratios))
    assert found.step_median_ape_ratio == pytest.approx(median(abs(each - 1) for each in ratios))
    assert found.step_bias_ratio == pytest.approx(fmean(ratios) - 1)
    assert found.step_median_factor == pytest.approx(median(max(each, 1 / each) for each in ratios))
    memory = [each.predicted_memory_bytes / each.measured_memory_bytes for each in ran]
    assert found.memory_mape_ratio == pytest.approx(fmean(abs(each - 1) for each in memory))
    right = [(each.fit_probability >= 0.5) == (each.status == "ok") for each in rows]
    assert found.fit_accuracy_ratio == pytest.approx(fmean(right))


@steady
@given(scored_rows())
def test_a_perfect_prediction_has_no_error(rows):
    perfect = [
        replace(
            each, predicted_step_s=each.measured_step_s, predicted_memory_bytes=each.measured_memory_bytes,
            fit_probability=float(each.status == "ok"),
        )
        for each in rows
    ]
    found = scores(perfect)
    assert found.fit_accuracy_ratio == 1.0
    if found.step_n:
        assert found.step_mape_ratio == found.step_bias_ratio == found.memory_mape_ratio == 0.0
        assert found.step_median_factor == found.step_within_factor_1_25_ratio == 1.0
    assert found.spearman in (None, pytest.approx(1.0))


@steady
@given(st.lists(st.tuples(st.sampled_from([1.0, 2.0, 3.0]) | seconds, seconds), min_size=3, max_size=20))
def test_rank_correlation_against_its_definition(pairs):
    a, b = [each[0] for each in pairs], [each[1] for each in pairs]
    by_hand = spearman_by_hand(a, b)
    assert spearman(a, b) == (None if by_hand is None else pytest.approx(by_hand, abs=1e-9))


def test_rank_correlation_needs_three_rows_that_differ():
    assert spearman([1.0, 2.0], [1.0, 2.0]) is None
    assert spearman([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None
    assert spearman([1.0, 2.0, 9.0], [3.0, 4.0, 5.0]) == pytest.approx(1.0)


def test_illegal_rows_are_said_not_to_fit_and_leave_the_memory_only_figure():
    rows = [scored("a-1"), scored("a-2", refused=("tp",)), scored("a-3", None, None, status="failed", refused=("tp",))]
    found = scores(rows)
    assert found.fit_accuracy_ratio == pytest.approx(2 / 3)
    assert found.fit_accuracy_memory_only_ratio == 1.0


def test_coverage_and_width_of_intervals():
    rows = [
        scored("a-1", 1.0, 2.0, step_interval_s=(0.9, 1.1)), scored("a-2", 1.0, 1.0, step_interval_s=(1.1, 1.3)),
        scored("a-3", 1.0, 1.0), scored("a-4", 1.0, 1.0, measured_memory_bytes=5.0, predicted_memory_bytes=5.0,
                                        memory_interval_bytes=(1.0, 4.0)),
    ]
    found = scores(rows)
    assert found.interval_n == 2
    assert found.interval_coverage_ratio == 0.5
    assert found.interval_width_median_ratio == pytest.approx((0.1 + 0.2) / 2)
    assert found.memory_interval_coverage_ratio == 0.0


def test_rows_without_results_count_in_nothing():
    blank = scored("a-1", None, 1.0, status="")
    found = scores([blank])
    assert found.n == found.step_n == found.fit_n == 0
    assert reliability([blank]) == ()


def test_reliability_counts_those_given_about_the_same_probability():
    rows = [scored(f"a-{index}", fit_probability=0.9, status="ok" if index else "failed") for index in range(10)]
    (only,) = reliability(rows)
    assert (only.low, only.high, only.n) == (pytest.approx(0.85), pytest.approx(0.95), 10)
    assert only.mean_probability == pytest.approx(0.9)
    assert only.ran_ratio == pytest.approx(0.9)


def test_noise_is_how_far_re_measurements_lie_apart():
    again = [scored("a-1", 1.0), scored("a-2", 1.1), scored("a-3", 5.0, cells={"mbs": "2"})]
    assert scores(again).noise_ratio == pytest.approx(0.1)
    assert scores(again[1:]).noise_ratio is None


def test_one_constant_predicts_rows_of_one_efficiency():
    rows = [scored(f"a-{index}", 2.0 * index, 1.0, ideal_s=1.0 * index, cells={"mbs": str(index)}) for index in range(1, 20)]
    assert scores(rows).constant_hfu_mape_ratio == pytest.approx(0.0)
    assert scores(rows[:1]).constant_hfu_mape_ratio is None
