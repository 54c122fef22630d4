"""Regret against its definition by enumeration, and its corner cases."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, permutations
from statistics import fmean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.evidence.scored_rows import scored, scored_rows, steady

from meshwright.evidence.rows.groups import settings_key
from meshwright.evidence.score.cells import TIED, best_of, cells_of, decisions


def by_hand(rows):
    """Regret of one cell, and of the best of its first three choices, over every order that ties allow."""
    settings = {}
    for each in rows:
        settings.setdefault(settings_key(each.row), []).append(each)
    choices = []
    for same in settings.values():
        ran = [each.measured_step_s for each in same if each.status == "ok"]
        fits = 2 * sum(each.predicted_fits for each in same) > len(same)
        choices.append((median(each.predicted_step_s for each in same), median(ran) if ran else None, fits))
    best = min(measured for _, measured, _ in choices if measured is not None)
    fitting = sorted((each for each in choices if each[2]), key=lambda each: each[0])
    if not fitting:
        return 1.0, 1.0
    regret = [1.0 if measured is None else 1.0 - best / measured for _, measured, _ in fitting]
    predicted = [each[0] for each in fitting]
    first = [each for each, time in zip(regret, predicted, strict=True) if time <= predicted[0] * (1 + 1e-9)]
    orders = [
        min(regret[place] for place in order[:3])
        for order in permutations(range(len(regret)))
        if all(predicted[a] <= predicted[b] * (1 + 1e-9) for a, b in pairwise(order))
    ]
    return fmean(first), fmean(orders)


@steady
@given(scored_rows(min_size=5, max_size=12, cell=True))
def test_regret_against_its_definition(rows):
    found = cells_of(rows)
    if sum(each.status == "ok" for each in rows) < 5:
        assert found == ()
        return
    (cell,) = found
    if len({settings_key(each.row) for each in rows}) <= 6:
        assert (cell.regret_ratio, cell.best_of_3_regret_ratio) == pytest.approx(by_hand(rows))


@steady
@given(scored_rows(min_size=5, cell=True), st.randoms(use_true_random=False))
def test_no_order_and_no_id_matters(rows, random):
    shuffled = list(rows)
    random.shuffle(shuffled)
    renamed = [replace(each, id=f"{each.source}-{900 - index}") for index, each in enumerate(shuffled)]
    assert cells_of(renamed) == cells_of(rows)


@steady
@given(scored_rows(min_size=8, cell=True))
def test_a_perfect_prediction_has_no_regret(rows):
    ran = {}
    for each in rows:
        if each.status == "ok":
            ran.setdefault(settings_key(each.row), []).append(each.measured_step_s)
    perfect = []
    for each in rows:
        times = ran.get(settings_key(each.row))
        perfect.append(replace(each, predicted_step_s=median(times) if times else 0.1, fit_probability=float(bool(times))))
    for cell in cells_of(perfect):
        assert cell.failed_choice == 0.0
        assert 0.0 <= cell.best_of_3_regret_ratio <= cell.regret_ratio <= TIED  # predictions as near as this are one choice
        assert cell.spearman in (None, pytest.approx(1.0))


def five(**first):
    """Five rows of one cell, the first of them changed; predictions and measurements are 1 .. 5."""
    rows = [scored(f"a-{index}", float(index), float(index), cells={"mbs": str(index)}) for index in range(1, 6)]
    return [replace(rows[0], **first), *rows[1:]]


def test_a_first_choice_that_failed_counts_one():
    failed = scored("fail-1", None, 0.5, status="failed", cells={"mbs": "9"})
    (cell,) = cells_of([*five(), failed])
    assert (cell.regret_ratio, cell.failed_choice, cell.best_of_3_regret_ratio) == (1.0, 1.0, 0.0)
    assert (cell.measured, cell.failed) == (5, 1)
    assert cell.key[0] == "a"


def test_tied_first_choices_count_as_their_mean():
    (cell,) = cells_of(five(predicted_step_s=2.0))
    assert cell.regret_ratio == pytest.approx(0.25)
    failed = scored("fail-1", None, 1.0, status="failed", cells={"mbs": "9"})
    (cell,) = cells_of([*five(), failed])
    assert (cell.regret_ratio, cell.failed_choice) == (0.5, 0.5)


def test_saying_that_nothing_fits_counts_one():
    (cell,) = cells_of([replace(each, fit_probability=0.4) for each in five()])
    assert (cell.regret_ratio, cell.failed_choice, cell.nothing_fits, cell.explained) == (1.0, 1.0, True, False)


def test_identical_settings_count_once_with_their_median():
    again = [replace(five()[0], id=f"a-{index}", measured_step_s=time) for index, time in ((7, 8.0), (8, 9.0))]
    (cell,) = cells_of([*five(), *again])  # the setting predicted first measured 1, 8 and 9
    assert cell.regret_ratio == pytest.approx(1 - 2 / 8)


@pytest.mark.parametrize(("needed", "explained"), [(80.0, True), (60.0, False)])
def test_a_failed_choice_is_explained_by_more_memory_than_any_run_that_worked(needed, explained):
    rows = five(measured_memory_bytes=70.0)
    failed = scored("fail-1", None, 0.5, status="failed", cells={"mbs": "9"}, predicted_memory_bytes=needed)
    (cell,) = cells_of([*rows, failed])
    assert cell.explained is explained
    assert decisions([cell]).failed_choices_explained == explained


def test_cells_need_five_measured_rows_of_one_question():
    assert cells_of(five()[1:]) == ()
    assert cells_of([*five()[1:], scored("a-9", cells={"n_gpus": "16"})]) == ()
    assert decisions([]) is None


def test_decisions_are_mean_and_worst_over_cells():
    other = [replace(each, row=replace(each.row, num_devices=16)) for each in five(predicted_step_s=2.5)]
    found = decisions(cells_of([*five(), *other]))
    assert found.cells == 2
    assert found.regret_worst_ratio == pytest.approx(0.5)
    assert found.regret_mean_ratio == pytest.approx(0.25)
    assert found.best_of_3_regret_mean_ratio == 0.0


@pytest.mark.parametrize(
    ("tiers", "choices", "expected"),
    [([], 3, 1.0), ([[0.5]], 3, 0.5), ([[0.9], [0.4, 0.0]], 2, 0.2), ([[0.3, 0.6, 0.9]], 2, 0.4), ([[0.2], [0.5, 0.5]], 2, 0.2)],
)
def test_the_best_of_the_first_choices_where_ties_are_broken_at_random(tiers, choices, expected):
    assert best_of(tiers, choices) == pytest.approx(expected)
