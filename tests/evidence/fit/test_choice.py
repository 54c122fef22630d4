"""Which of some runs to measure first."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draws import examples
from meshwright.evidence.fit.choice import most_telling
from meshwright.evidence.fit.sharing import Own, covariance_of

SIZES = st.integers(2, 7)


@st.composite
def candidates(draw):
    """Runs without errors, of one or two cells, that depend on two constants."""
    count = draw(SIZES)
    numbers = st.lists(st.floats(0.05, 0.8), min_size=count, max_size=count)
    place, cell = (np.array(draw(st.lists(st.integers(0, most), min_size=count, max_size=count))) for most in (9, 1))
    return Own(
        error=np.full(count, np.nan), spread=np.array(draw(numbers)), by=np.array([draw(numbers), draw(numbers)]).T, cell=cell,
        known=cell == 1, model=place % 2, distance=np.abs(place[:, None] - place[None, :]).astype(float),
    )


def unknown(own, measured):
    """Variance that is left of all errors: conditioning on all measured at once."""
    cov, noise = covariance_of(own)
    at = list(measured)
    gain = cov[:, at] @ np.linalg.inv(cov[np.ix_(at, at)] + np.diag(noise[at])) if at else np.zeros((len(noise), 0))
    return float(np.trace(cov - gain @ cov[at]))


@examples(60)
@given(candidates(), st.data())
def test_each_is_the_best_beside_those_that_are_known(own, data):
    measured = data.draw(st.sets(st.integers(0, len(own.spread) - 1), max_size=len(own.spread) - 1))
    found = most_telling(own, sorted(measured), 3)
    assert len(found) == min(3, len(own.spread) - len(measured))
    known = set(measured)
    for each in found:
        left = {index: unknown(own, {*known, index}) for index in range(len(own.spread)) if index not in known}
        assert left[each.index] == pytest.approx(min(left.values()), rel=1e-6, abs=1e-12)
        known.add(each.index)
        assert each.left_ratio**2 == pytest.approx(left[each.index] / unknown(own, measured), rel=1e-6, abs=1e-9)


@examples(40)
@given(candidates())
def test_more_runs_leave_less_unknown(own):
    left = [1.0, *(each.left_ratio for each in most_telling(own, (), 7))]
    assert all(later < earlier for earlier, later in pairwise(left))


def test_a_run_beside_a_measured_one_waits_for_one_that_is_unlike_all():
    place = np.array([0.0, 0.0, 8.0])
    own = Own(
        error=np.full(3, np.nan), spread=np.full(3, 0.2), by=np.array([[0.5, 0.0], [0.5, 0.0], [0.0, 0.5]]),
        cell=np.zeros(3, dtype=np.int64), known=np.zeros(3, dtype=bool), model=np.zeros(3, dtype=np.int64),
        distance=np.abs(place[:, None] - place[None, :]),
    )
    assert [each.index for each in most_telling(own, [0], 2)] == [2, 1]


def test_errors_of_measured_runs_decide_what_is_chosen_next():
    """Run 1, which hangs on constants, where these were seen to move; run 2, which is uncertain by itself, where they were not."""
    place = np.array([0.0, 9.0, 18.0])
    own = Own(
        error=np.full(3, np.nan), spread=np.array([0.05, 0.05, 0.4]), by=np.array([[0.3, 0.0], [0.0, 0.5], [0.0, 0.05]]),
        cell=np.zeros(3, dtype=np.int64), known=np.zeros(3, dtype=bool), model=np.arange(3),
        distance=np.abs(place[:, None] - place[None, :]),
    )
    first = {error: most_telling(replace(own, error=np.array([error, np.nan, np.nan])), [0], 1)[0].index for error in (0.0, 0.8)}
    assert first == {0.0: 2, 0.8: 1}
