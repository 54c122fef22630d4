"""The tuner's brain: its posterior is what conditioning is, failures prune as far as they prove, and its rule to stop is honest."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuning_cases import PLAIN, Thing, drawn_beliefs, drawn_steps, ran, things

from meshwright.evidence.fit.likeness import likeness
from meshwright.measure.outcome import Outcome
from meshwright.measure.tuning.learning import escapes
from meshwright.measure.tuning.running import Ran, implied, running
from meshwright.measure.tuning.scales import Scales, covariance, shipped_scales
from meshwright.measure.tuning.steps import NOISE, Luck, expected_improvement, update
from meshwright.measure.tuning.tuner import Tuner

SEEDS = st.integers(0, 10**6)


def luck(stall: np.ndarray, escape: np.ndarray | None = None, chance: float = 0.0) -> Luck:
    """Of trials that may stall, or escape."""
    return Luck(stall=stall, escape=np.zeros_like(stall) if escape is None else escape, chance=chance)


def calm(count: int) -> Luck:
    """Nothing becomes of any."""
    return luck(np.zeros(count))



def conditioned_by_hand(mean: np.ndarray, prior: np.ndarray, at: list[int], told: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One observation after another, each a scalar: the textbook's update, entry by entry."""
    mean, prior = mean.copy(), prior.copy()
    for index, value in zip(at, told, strict=True):
        total = prior[index, index] + NOISE**2
        gain = [prior[row, index] / total for row in range(len(mean))]
        apart = value - mean[index]
        mean = np.array([mean[row] + gain[row] * apart for row in range(len(mean))])
        column = prior[:, index].copy()
        rows = range(len(mean))
        prior = np.array([[prior[row, other] - gain[row] * column[other] for other in rows] for row in rows])
    return mean, prior


@given(SEEDS, st.integers(1, 6))
@settings(max_examples=25)
def test_without_stalls_the_posterior_is_gaussian_conditioning(seed: int, count: int) -> None:
    known = drawn_beliefs(seed)
    prior, told = covariance(known, PLAIN), np.log(drawn_steps(known, PLAIN, seed))
    at = np.random.default_rng(seed).permutation(len(known))[:count].tolist()
    found = update(known.log_step, prior, at, told[at], np.full(count, NOISE), calm(count), 1e12)
    mean, own = conditioned_by_hand(known.log_step, prior, at, told[at])
    np.testing.assert_allclose(found.mean, mean, atol=1e-8)
    np.testing.assert_allclose(found.covariance, own, atol=1e-8)


@given(SEEDS)
@settings(max_examples=25)
def test_a_prior_is_positive_semidefinite_and_a_trial_never_widens_what_is_believed(seed: int) -> None:
    known, scales = drawn_beliefs(seed), replace(shipped_scales(), cells=1e12)
    prior = covariance(known, scales)
    assert np.linalg.eigvalsh(prior).min() > -1e-9
    at = [0, 3, 5]
    for count in (1, 2, 3):
        told = np.log(drawn_steps(known, scales, seed))[at[:count]]
        found = update(known.log_step, prior, at[:count], told, np.full(count, NOISE), calm(count), scales.cells)
        assert (np.diag(found.covariance) <= np.diag(prior) * (1.0 + 1e-6)).all()
        assert all(found.covariance[each, each] <= NOISE**2 * 1.001 for each in at[:count])


def test_one_stall_among_good_predictions_moves_its_neighbours_hardly_and_is_told_as_one() -> None:
    known = drawn_beliefs(4, spread=0.05)
    prior, may = covariance(known, replace(PLAIN, trouble=0.05)), luck(np.full(4, 0.05))
    told = known.log_step[:4] + np.array([0.0, 0.01, -0.01, 1.5])
    found = update(known.log_step, prior, [0, 1, 2, 3], told, np.full(4, NOISE), may, 10.0)
    assert found.stalled[3] > 0.99
    assert found.stalled[:3].max() < 0.05
    assert np.abs(found.mean[4:] - known.log_step[4:]).max() < 0.05
    faster = update(known.log_step, prior, [0], known.log_step[:1] - 1.5, np.full(1, NOISE), luck(np.full(1, 0.05)), 10.0)
    assert faster.stalled[0] < 0.05, "a run that is faster than expected did not stall"


def test_one_run_that_escapes_a_stall_moves_its_neighbours_hardly_and_is_told_as_one() -> None:
    known = drawn_beliefs(4, spread=0.05)
    prior, escape = covariance(known, PLAIN), np.array([0.0, 0.0, 0.0, -1.4])
    told = known.log_step[:4] + np.array([0.0, 0.01, -0.01, -1.5])
    found, blind = (
        update(known.log_step, prior, [0, 1, 2, 3], told, np.full(4, NOISE), luck(np.zeros(4), escape, chance), 10.0)
        for chance in (0.03, 0.0)
    )
    assert found.aside[3] > 0.99
    assert found.aside[:3].max() == 0.0 and found.stalled.max() == 0.0
    assert np.abs(found.mean[4:] - known.log_step[4:]).max() < 0.05
    assert np.abs(blind.mean[4:] - known.log_step[4:]).max() > 0.15, "without it, one lucky run is taken for what all may do"


@given(SEEDS, st.floats(0.01, 0.3))
@settings(max_examples=25)
def test_what_may_escape_is_tried_before_what_is_surely_no_better_and_is_no_reason_to_go_on(seed: int, chance: float) -> None:
    steps = np.array([0.0, 0.2, 0.21])
    plain = drawn_beliefs(seed, count=3, spread=0.01)
    known = replace(plain, log_step=steps, escape=np.array([0.0, 0.0, -1.0]), by=np.zeros((3, 3)))
    scales = replace(PLAIN, escape=chance)
    tuner, blind = (Tuner(things(known), known, each, stop_probability=0.0) for each in (scales, PLAIN))
    for each in (tuner, blind):
        assert each.ask() == Thing("layout 0")
        each.tell(Thing("layout 0"), ran(1.0))
        assert each.prospect.probability_better < 0.05
    assert tuner.prospect == blind.prospect
    assert tuner.ask() == Thing("layout 2")
    assert blind.ask() == Thing("layout 1")
    tuner.tell(Thing("layout 2"), ran(float(np.exp(0.21 - 1.0))))
    assert tuner.prospect.probability_better < 0.05, "what escaped is measured against as it was measured"


def test_the_chance_to_escape_is_counted_over_the_runs_that_can() -> None:
    shift, above = np.array([-1.0, -1.0, -0.6, -2.0]), np.array([-0.9, 0.1, -0.2, -0.4])
    assert escapes(shift, above) == pytest.approx(2.0 / 6.0)
    assert escapes(np.zeros(0), np.zeros(0)) == 0.5


def test_a_cell_that_is_off_as_a_whole_is_told_from_one_whose_trials_stall() -> None:
    known = replace(drawn_beliefs(6, count=12, spread=0.1), words=np.eye(12, 11) * 9.0)
    scales = replace(shipped_scales(), common=0.05, physics=0.0)
    prior, trouble = covariance(known, scales), luck(np.full(4, 0.03))
    for misses, shift in (((0.9, 0.95, 0.88, 0.92), 0.9), ((0.0, 0.02, 1.4, -0.03), 0.0)):
        told = known.log_step[:4] + np.array(misses)
        found = update(known.log_step, prior, [0, 1, 2, 3], told, np.full(4, NOISE), trouble, scales.cells, 0.0125)
        assert np.median(found.mean[4:] - known.log_step[4:]) == pytest.approx(shift, abs=0.06)
        assert (found.stalled > 0.5).sum() == sum(miss > shift + 0.3 for miss in misses)


def test_a_cell_whose_predictions_hold_is_trusted_more_and_one_where_they_do_not_less() -> None:
    known = drawn_beliefs(5)
    prior = covariance(known, PLAIN)
    at = list(range(6))
    widths = []
    for miss in (0.0, 1.0, 3.0):
        told = known.log_step[at] + miss * np.sqrt(np.diag(prior))[at] * np.array([1, -1, 1, -1, 1, -1])
        found = update(known.log_step, prior, at, told, np.full(6, NOISE), calm(6), 8.0)
        widths.append(float(np.diag(found.covariance)[6:].sum()))
    assert widths == sorted(widths)
    assert widths[0] < widths[1] < widths[2]


@given(SEEDS, st.lists(st.integers(0, 11), min_size=1, max_size=5, unique=True))
@settings(max_examples=40)
def test_what_ran_out_of_memory_prunes_all_that_needs_no_less_and_more_failures_prune_more(seed: int, failed: list[int]) -> None:
    known = drawn_beliefs(seed)
    known = replace(known, terms=np.floor(known.terms / 4.0))
    trials = [Ran(candidate=each, stalled=0.0, failed=True, by_memory=True) for each in failed]
    pruned = np.zeros(len(known), dtype=bool)
    for count in range(1, len(trials) + 1):
        now = implied(known, trials[:count])
        assert (now >= pruned).all()
        pruned = now
    for index in range(len(known)):
        by_hand = any(all(a >= b for a, b in zip(known.terms[index], known.terms[each], strict=True)) for each in failed)
        assert pruned[index] == by_hand
    found = running(known, PLAIN, likeness(known.words, 2.0), trials)
    assert (found.runs[pruned] == 0.0).all()


def test_only_an_ending_out_of_memory_proves_anything() -> None:
    known = drawn_beliefs(7)
    known = replace(known, terms=np.ones_like(known.terms))
    alike = likeness(known.words, 2.0)
    for cause, gone in ((True, True), (False, False), (None, False)):
        found = running(known, shipped_scales(), alike, [Ran(candidate=0, stalled=0.0, failed=True, by_memory=cause)])
        assert (found.memory[1:] == 0.0).all() == gone


def test_an_unclassified_failure_near_the_edge_counts_for_memory_and_far_from_it_for_trouble() -> None:
    scales = replace(shipped_scales(), trouble=0.05, trouble_growth=0.0)
    for need, by_memory in ((0.02, True), (-2.0, False)):
        known = replace(drawn_beliefs(8, failures=0.02), log_need=np.full(12, need))
        alike = likeness(known.words, scales.trouble_reach)
        before, after = (running(known, scales, alike, trials) for trials in ([], [Ran(candidate=0, stalled=0.0, failed=True)]))
        assert (after.memory[1:].mean() < before.memory[1:].mean() - 0.02) == by_memory
        assert (after.trouble[0] > 2.0 * before.trouble[0]) == (not by_memory)


def test_the_share_of_trouble_is_a_mean_of_the_prior_and_of_alike_trials() -> None:
    scales = replace(PLAIN, trouble=0.1, trouble_growth=0.0, trouble_weight=2.0, trouble_reach=1.0)
    known = replace(drawn_beliefs(9, count=3), words=np.array([[0.0] * 11, [1.0] + [0.0] * 10, [50.0] * 11]))
    trials = [Ran(candidate=0, stalled=0.75, failed=False)]
    found = running(known, scales, likeness(known.words, 1.0), trials).trouble
    near = np.exp(-1.0)
    assert found == pytest.approx([(0.2 + 0.75) / 3.0, (0.2 + 0.75 * near) / (2.0 + near), 0.1])


def test_measured_memory_moves_what_all_layouts_of_the_cell_need() -> None:
    known, alike = drawn_beliefs(10, need=0.0), np.eye(12)
    more, less = (
        running(known, PLAIN, alike, [Ran(candidate=0, stalled=0.0, failed=False, log_memory=24.0 + shift)]).memory.mean()
        for shift in (0.1, -0.1)
    )
    assert more < less


def test_expected_improvement_by_hand_and_by_draws() -> None:
    assert expected_improvement(np.array([0.0]), np.array([1.0]), 0.0)[0] == pytest.approx(0.398942, abs=1e-6)
    drawn = np.random.default_rng(1).normal(0.3, 0.2, 400_000)
    assert expected_improvement(np.array([0.3]), np.array([0.2]), 0.1)[0] == pytest.approx(
        np.maximum(0.1 - drawn, 0.0).mean(), rel=0.02
    )


def test_the_first_choice_is_the_plans_and_what_surely_fails_is_never_asked_for() -> None:
    known = drawn_beliefs(11)
    assert known.expected_s.argmin() == int(Tuner(things(known), known, PLAIN).ask().label.split()[1])  # type: ignore[union-attr]
    known = replace(known, legal=np.array([True] + [False] * 11))
    tuner = Tuner(things(known), known, PLAIN, stop_probability=0.0)
    assert tuner.ask() == Thing("layout 0")
    assert tuner.ask() is None
    assert tuner.stopped == "every layout that may run was tried"


def test_outcomes_that_say_nothing_of_a_layout_change_nothing_and_are_not_asked_for_again() -> None:
    known = drawn_beliefs(12)
    tuner = Tuner(things(known), known, shipped_scales())
    first = tuner.ask()
    before = tuner.runs.runs
    assert first is not None
    tuner.tell(first, Outcome(status="node"))
    assert (tuner.runs.runs == before).all()
    asked = [first]
    while (each := tuner.ask()) is not None:
        asked.append(each)
        tuner.tell(each, ran(1.0))
    assert len(asked) == len(set(asked))


def test_several_may_be_asked_for_before_any_is_told() -> None:
    known = drawn_beliefs(13)
    tuner = Tuner(things(known), known)
    assert len({tuner.ask() for _ in range(5)}) == 5


@pytest.mark.parametrize("limit", [0.05, 0.3])
def test_the_rule_to_stop_is_honest_on_cells_drawn_from_the_prior(limit: float) -> None:
    """Where it stops with probability p of a better one, there is a better one about as often: never more than allowed."""
    left, trials, promised = 0, [], []
    count = 150
    for seed in range(count):
        known = drawn_beliefs(seed, spread=0.08)
        steps = drawn_steps(known, PLAIN, seed)
        tuner = Tuner(things(known), known, PLAIN, stop_probability=limit)
        while (each := tuner.ask()) is not None:
            tuner.tell(each, ran(steps[int(each.label.split()[1])], seed))
        assert tuner.best is not None
        tried = {int(each.label.split()[1]) for each in things(known)} - set(tuner.left)
        untried = [steps[index] for index in range(len(steps)) if index not in tried]
        left += bool(untried) and min(untried) < 0.99 * tuner.best[1]
        trials.append(len(tried))
        promised.append(tuner.prospect.probability_better)
    assert left / count <= np.mean(promised) + 3.0 * np.sqrt(limit * (1.0 - limit) / count)
    assert left / count <= limit + 3.0 * np.sqrt(limit * (1.0 - limit) / count)
    assert np.mean(trials) < (7.0 if limit == 0.05 else 5.0), "and it stops before all were tried"


def test_the_scales_that_ship_have_every_field_and_are_possible() -> None:
    found = shipped_scales()
    assert all(getattr(found, each.name) > 0.0 for each in fields(Scales))
    assert found.need_common < 1.0
    assert found.trouble < 0.5


def test_what_was_cancelled_is_still_left_to_find() -> None:
    known = drawn_beliefs(7)
    first, second = (Tuner(things(known), known, scales=PLAIN) for _ in range(2))
    for each in (first, second):
        asked = each.ask()
        each.tell(asked, ran(float(np.exp(known.log_step.max()))))
    before = first.prospect
    likely = second.ask()
    second.tell(likely, Outcome(status="cancelled"))
    assert second.prospect == before, "nobody has seen what it would come to"
    second.tell(likely, Outcome(status="oom"))
    assert second.prospect.expected_gain_ratio < before.expected_gain_ratio


def test_what_a_store_has_is_learnt_from_and_not_asked_for() -> None:
    known = drawn_beliefs(8)
    tuner, every = Tuner(things(known), known, scales=PLAIN, stop_probability=0.0), things(known)
    for each in every[:3]:
        tuner.take(each)
    tuner.tell(every[0], ran(1.0))
    assert tuner.best == (0, 1.0)
    asked = []
    while (found := tuner.ask()) is not None:
        asked.append(found.label)
    assert sorted(asked) == sorted(each.label for each in every[3:])
    tuner.tell(every[1], ran(0.5))
    assert tuner.best == (1, 0.5), "told of when it has ended"
