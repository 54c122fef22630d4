"""What a few own runs have in common, and what is each run's alone."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draws import examples
from meshwright.domain.layout import Layout
from meshwright.evidence.fit.likeness import KNOBS, distance, likeness, words
from meshwright.evidence.fit.sharing import MOVES, PRECISIONS, Own, covariance_of, shared
from meshwright.evidence.fit.spread import fit_scale, widened


def runs(*errors, apart=4.0, known=False, model=None, spread=0.1):
    """Own runs of one cell, each so many doublings from the next, that depend on one constant."""
    count = len(errors)
    place = apart * np.arange(count)
    return Own(
        error=np.array(errors, dtype=float), spread=np.full(count, spread), by=np.full((count, 1), 0.3),
        cell=np.zeros(count, dtype=np.int64), known=np.full(count, known), model=np.array(model or range(count)),
        distance=np.abs(place[:, None] - place[None, :]),
    )


def test_priors_of_the_mixture_are_probabilities():
    assert sum(MOVES.values()) == pytest.approx(1.0) and sum(PRECISIONS.values()) == pytest.approx(1.0)


@examples(40)
@given(st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_the_sign_of_errors_and_the_order_of_runs_are_nobodys_choice(errors, dice):
    found, other = shared(runs(*errors, apart=0.0)), shared(runs(*(-each for each in errors), apart=0.0))
    assert found.error == pytest.approx(-other.error, abs=1e-9)
    assert found.half_width == pytest.approx(other.half_width, rel=1e-6)
    order = list(range(len(errors)))
    dice.shuffle(order)
    mixed = shared(runs(*(errors[each] for each in order), apart=0.0))
    assert mixed.error == pytest.approx(found.error[order], abs=1e-9)


@examples(40)
@given(st.lists(st.floats(-1.5, 1.5), min_size=1, max_size=6))
def test_what_is_shared_is_no_farther_out_than_the_farthest_run(errors):
    found = shared(runs(*errors))
    assert np.abs(found.error).max() <= np.abs(errors).max() + 1e-9
    assert (found.half_width > 0.0).all()


def test_runs_that_agree_move_more_of_their_error_than_one_does_and_all_of_it_is_believed_soon():
    moved = [float(shared(runs(*[0.4] * count)).error.mean()) / 0.4 for count in (1, 2, 3, 5)]
    assert moved == sorted(moved)
    assert moved[0] < 0.95 < moved[3]


@examples(40)
@given(st.floats(0.05, 0.8), st.integers(2, 5), st.booleans())
def test_several_runs_that_say_the_same_move_more_than_one(error, count, known):
    one, several = (shared(runs(*[error] * each, apart=0.0, model=[0] * each, known=known)).error[0] for each in (1, count))
    assert 0.0 < one < several <= error + 1e-9


@examples(40)
@given(st.integers(1, 4), st.floats(0.03, 0.5), st.booleans())
def test_a_run_that_was_foretold_exactly_never_widens(count, spread, known):
    few, more = (shared(runs(*[0.0] * each, known=known, spread=spread)) for each in (count, count + 1))
    assert more.half_width[:count].max() <= few.half_width.max() + 1e-9
    assert np.abs(more.error).max() <= 1e-12


def test_what_measured_runs_say_of_a_source_changes_what_is_unknown_of_it():
    own = runs(0.0, 0.0, np.nan)
    far = replace(own, error=np.array([0.9, 0.8, np.nan]))
    before = np.trace(covariance_of(own)[0])
    assert np.trace(covariance_of(own, [0, 1])[0]) < before < np.trace(covariance_of(far, [0, 1])[0])
    assert np.trace(covariance_of(far, [])[0]) == before


@examples(30)
@given(st.lists(st.floats(-1.0, 1.0), min_size=2, max_size=5), st.randoms(use_true_random=False))
def test_what_is_unknown_does_not_depend_on_the_order_of_measured_runs(errors, dice):
    own, order = runs(*errors, np.nan), list(range(len(errors)))
    dice.shuffle(order)
    for one, other in zip(covariance_of(own, range(len(errors))), covariance_of(own, order), strict=True):
        assert one == pytest.approx(other, rel=1e-6)


def test_one_odd_run_among_four_that_agree_is_its_own():
    found = shared(runs(0.02, -0.01, 0.01, 0.9, 0.0)).error
    assert found[3] < 0.5
    assert np.abs(np.delete(found, 3)).max() < 0.06


def test_constants_of_what_has_runs_are_moved_less():
    for errors in ((0.15,), (0.15, 0.2, 0.1)):
        known, new = (np.abs(shared(runs(*errors, known=each)).error).mean() for each in (True, False))
        assert known < new


def test_intervals_follow_how_far_own_runs_are_from_each_other():
    agree, differ = shared(runs(0.2, 0.21, 0.19, 0.2)), shared(runs(0.5, -0.3, 0.1, -0.4))
    assert agree.half_width.max() < differ.half_width.min()
    assert shared(runs(0.0)).half_width[0] > shared(runs(0.0, 0.0, 0.0)).half_width[0]


def test_another_cell_is_told_only_what_all_own_runs_share():
    one = runs(0.5, 0.0, 0.0)
    apart = replace(one, cell=np.array([0, 1, 1]))
    assert abs(shared(apart).error[1]) < abs(shared(one).error[1])


def test_words_and_likeness_by_hand():
    one = Layout(tensor_parallel=8, pipeline_parallel=2, data_parallel=4, num_microbatches=4)
    other = replace(one, tensor_parallel=2, microbatch_sequences=4)
    said = np.array([words(each) for each in (one, other)])
    assert dict(zip(KNOBS, said[0] - said[1], strict=True))["tp"] == 2.0
    assert distance(said)[0, 1] == 4.0  # two doublings of tensor parallelism, two of the micro-batch
    assert likeness(said, 2.0)[0, 1] == pytest.approx(math.exp(-2.0)) and likeness(said, 2.0)[1, 1] == 1.0


def test_a_widened_scale_has_the_half_width_it_was_given_and_leaves_others():
    features = [{"cell": each, "framework": "x"} for each in "aabb"]
    scale = fit_scale(np.array([0.1, 0.2, 0.05, 0.1]), features, np.ones(4))
    found = widened(scale, np.array([0.3, 0.3]), features[:2])
    assert found.half_width(features[0]) == pytest.approx(0.3, rel=1e-3)
    assert found.half_width(features[2]) == scale.half_width(features[2])
