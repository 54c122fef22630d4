"""The run to measure next is the one that tells the best plans apart, not the one that is most uncertain by itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.evidence.fit.test_fit import TRUTH, invented

from meshwright.api.next_run import given as conditioned
from meshwright.api.next_run import narrows, next_run
from meshwright.catalog import calibration_table


def test_conditioning_by_hand():
    # one of two with correlation 1/2 is measured to 2 %: the other keeps 1 - 1/4 of its variance, nearly
    found = conditioned(np.array([[1.0, 0.5], [0.5, 1.0]]), [0])
    assert found == pytest.approx(np.array([[0.0004, 0.0002], [0.0002, 0.75]]), abs=2e-4)
    assert (conditioned(np.eye(2), []) == np.eye(2)).all()


def test_what_all_share_narrows_nothing():
    shared = np.full((3, 3), 0.04) + np.diag([1e-12, 1e-12, 1e-12])
    assert narrows(np.array([0.0, 0.01, 0.02]), shared) == pytest.approx(np.zeros(3), abs=1e-3)


def test_an_uncertain_rival_that_is_near_is_worth_more_than_one_that_is_far():
    found = narrows(np.array([0.0, 0.02, 1.0]), np.diag([1e-6, 0.01, 0.01]))
    assert int(np.argmax(found)) == 1
    assert found[1] > 0.5 > found[2]


@given(st.integers(2, 6), st.integers(0, 1000))
def test_narrowing_is_a_share_and_order_free(count, seed):
    random = np.random.default_rng(seed)
    root = random.normal(size=(count, count)) * 0.1
    covariance, steps = root @ root.T, random.normal(size=count) * 0.1
    found, turn = narrows(steps, covariance), random.permutation(count)
    assert ((found >= 0.0) & (found <= 1.0)).all()
    assert narrows(steps[turn], covariance[np.ix_(turn, turn)]) == pytest.approx(found[turn], abs=1e-6)


def test_of_runs_of_one_case_the_next_is_one_of_its_plans_and_not_one_measured():
    runs = invented(TRUTH)[:3]
    found = next_run(runs, calibration_table("shipped"))
    assert found is not None
    assert found.devices == 8
    assert 0.0 < found.narrows_ratio < 1.0
    assert found.candidates >= 2
