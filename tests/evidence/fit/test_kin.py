"""What errors of recorded runs of kin foretell: what is smooth, and nothing where kin do not foretell each other."""

import numpy as np
import pytest
from tests.evidence.fit.test_fit import TRUTH, invented

from meshwright.api import make_case
from meshwright.domain.layout import Layout
from meshwright.evidence.fit.kin import LARGEST, LEAST_RUNS, Kin, foretold, kin_of, nearest, place


def kin(error_of, *, cases=6, runs=12, noise=0.01, seed=0):
    """Cases that differ in one size, each of some layouts; the error is a function of both."""
    dice = np.random.default_rng(seed)
    places = np.array([(0.3 * case, 0.3 * number) for case in range(cases) for number in range(runs)])
    return Kin(places=places, case=np.repeat(np.arange(cases), runs),
               error=np.array([error_of(*each) for each in places]) + noise * dice.standard_normal(len(places)))


ASKED = np.array([(0.75, 0.3 * number + 0.1) for number in range(11)])
"""A case between the third and the fourth."""


def smooth(size, layout):
    return 0.1 * size + 0.25 * np.sin(2.0 * layout)


def test_a_smooth_error_is_foretold_for_a_case_that_nobody_ran():
    found = foretold(kin(smooth), ASKED)
    truth = np.array([smooth(*each) for each in ASKED])
    assert np.abs(found.error - found.error.mean() - truth + truth.mean()).max() < 0.03
    assert found.gain > 0.7
    assert (found.spread_ratio < 0.8).all()


@pytest.mark.parametrize("seed", range(5))
def test_noise_foretells_nothing(seed):
    found = foretold(kin(lambda *_: 0.0, noise=0.3, seed=seed), ASKED)
    assert found.gain == 0.0 and not found.error.any() and (found.spread_ratio == 1.0).all()


def test_errors_that_are_each_cases_own_foretell_nothing_of_another():
    signs = {0.0: 1.0, 0.3: -1.0, 0.6: 1.0, 0.9: -1.0, 1.2: 1.0, 1.5: -1.0}
    found = foretold(kin(lambda size, layout: signs[round(size, 1)] * 0.2 * np.sin(2.0 * layout)), ASKED)
    assert not found.error.any()


def test_few_runs_and_few_cases_are_not_asked():
    for few in (kin(smooth, cases=2), kin(smooth, cases=5, runs=2)):
        assert len(few.error) < LEAST_RUNS or len(np.unique(few.case)) < 3
        assert not foretold(few, ASKED).error.any()


def test_far_from_all_runs_nothing_is_surer_and_a_stalled_run_counts_as_twice_its_prediction():
    far = foretold(kin(smooth), np.array([(60.0, 60.0)]))
    assert far.error[0] == pytest.approx(0.0, abs=1e-6) and far.spread_ratio[0] == pytest.approx(1.0, abs=1e-6)
    odd = kin(smooth)
    stalled, twice = odd.error.copy(), odd.error.copy()
    stalled[30], twice[30] = 3.0, LARGEST
    one, other = (foretold(Kin(places=odd.places, case=odd.case, error=each), ASKED) for each in (stalled, twice))
    assert one.error == pytest.approx(other.error)


def test_places_differ_by_what_runs_differ_in_and_the_nearest_are_asked():
    small, large = (make_case("llama3-8b", "dgx-h100", global_batch_sequences=batch, sequence_tokens=8192) for batch in (64, 256))
    one, other = Layout(data_parallel=8, num_microbatches=8), Layout(data_parallel=8, num_microbatches=32)
    assert np.abs(np.array(place(small, one)) - np.array(place(large, other))).sum() == pytest.approx(0.2)
    runs = invented(TRUTH)
    places = np.array([place(runs[3].case, runs[3].layout)])
    assert nearest(runs, places, 1) == [runs[3]] and nearest([], places) == []
    found = kin_of(runs, [run.step_s / 1.5 for run in runs])
    assert found.error == pytest.approx(np.log(1.5)) and found.places.shape[0] == len(runs)
