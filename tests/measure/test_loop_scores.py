"""Scores against formulas of their own kind: ranks by sorting, regret by hand, noise from what was put in."""

from __future__ import annotations

from statistics import mean, median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.measure.rehearse.scores import regret, scores, spearman, spread

times = st.floats(0.01, 100.0)


def averaged_ranks(values: list[float]) -> list[float]:
    ordered = sorted(values)
    return [mean(place + 1 for place, other in enumerate(ordered) if other == value) for value in values]


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), min_size=3, max_size=12))
def test_spearman_is_the_correlation_of_averaged_ranks(pairs: list[tuple[int, int]]) -> None:
    first, second = ([float(pair[side]) for pair in pairs] for side in (0, 1))
    one, other = averaged_ranks(first), averaged_ranks(second)
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert spearman(first, second) is None
    else:
        assert spearman(first, second) == pytest.approx(float(np.corrcoef(one, other)[0, 1]), abs=1e-9)


@given(st.permutations(range(8)))
def test_spearman_without_ties_is_the_short_formula(order: list[int]) -> None:
    squares = sum((place - value) ** 2 for place, value in enumerate(order))
    expected = 1 - 6 * squares / (8 * (64 - 1))
    assert spearman([float(i) for i in range(8)], [float(i) for i in order]) == pytest.approx(expected)


def test_the_regret_is_that_of_the_layout_that_was_chosen() -> None:
    rows = ([1.0, 1.0 + 1e-9], [[3.0, 3.0], [2.0, 2.0]])
    one, other = scores(*rows), scores(*rows, 1)
    assert one is not None and other is not None and other.noise is not None
    assert (one.regret_ratio, other.regret_ratio, other.noise.regret_high_ratio) == (0.5, 0.0, 0.0)


def test_an_order_needs_three() -> None:
    assert spearman([1.0, 2.0], [1.0, 2.0]) is None


def test_regret_and_errors_of_a_table_made_by_hand() -> None:
    found = scores([1.0, 2.0, 4.0], [[1.2, 1.0, 1.1], [1.0, 1.0, 1.0], [5.0, 5.0, 5.0]])
    assert found is not None
    assert found.regret_ratio == pytest.approx(0.1)
    assert found.median_error_ratio == pytest.approx(0.2)  # of 1/1.1 - 1, 2/1 - 1 and 4/5 - 1
    assert found.worst_error_ratio == pytest.approx(1.0)
    assert found.bias_ratio == pytest.approx(1.0 / 1.1 - 1.0)
    assert found.order == pytest.approx(0.5)
    assert found.noise is not None
    assert found.noise.spread_ratio == pytest.approx(0.0)


@given(st.lists(st.tuples(times, st.lists(times, min_size=3, max_size=3)), min_size=3, max_size=8), st.floats(0.1, 10.0))
def test_a_common_factor_changes_the_bias_and_nothing_of_the_choice(rows: list[tuple[float, list[float]]], factor: float) -> None:
    runs = [row[1] for row in rows]
    one, other = scores([row[0] for row in rows], runs), scores([row[0] * factor for row in rows], runs)
    assert one is not None and other is not None
    assert other.bias_ratio + 1.0 == pytest.approx((one.bias_ratio + 1.0) * factor)
    if len({row[0] * factor for row in rows}) == len({row[0] for row in rows}) == len(rows):
        assert (one.order, one.regret_ratio, one.noise) == (other.order, other.regret_ratio, other.noise)


@given(st.lists(st.tuples(times, st.lists(times, min_size=2, max_size=5)), min_size=2, max_size=6))
def test_regret_is_what_brute_force_says_and_no_draw_is_negative(rows: list[tuple[float, list[float]]]) -> None:
    predicted, runs = [row[0] for row in rows], [row[1] for row in rows]
    found = scores(predicted, runs)
    assert found is not None and found.noise is not None
    first = min(range(len(rows)), key=lambda place: predicted[place])
    assert found.regret_ratio == pytest.approx(median(runs[first]) / min(map(median, runs)) - 1.0)
    assert 0.0 <= found.noise.regret_low_ratio <= found.noise.regret_high_ratio
    assert found.noise.choice_regret_ratio >= 0.0
    assert scores(predicted, runs) == found, "the same figures every time"


def test_without_noise_a_measurement_chooses_right_and_one_repetition_knows_none() -> None:
    found = scores([1.0, 2.0], [[3.0] * 5, [2.0] * 5])
    assert found is not None and found.noise is not None
    assert (found.noise.choice_regret_ratio, found.noise.regret_low_ratio, found.noise.regret_high_ratio) == (0.0, 0.5, 0.5)
    once = scores([1.0, 2.0], [[3.0], [2.0, 2.0]])
    assert once is not None and once.noise is None
    assert scores([], []) is None


def test_regret_and_spread_by_hand() -> None:
    assert regret(1, [2.0, 3.0]) == 0.5
    assert spread([1.0, 2.0, 4.0]) == 1.5
