"""Which steps stand for a run, against values counted by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.domain.observed import Step
from meshwright.domain.observed.steady import steady


def run_of(times, **parts):
    return [Step(number=index + 1, step_s=time, line=index + 1, parts=parts) for index, time in enumerate(times)]


@pytest.mark.parametrize(
    ("times", "dropped", "median"),
    [
        ([10.0, 1.0, 1.1, 1.2], 1, 1.1),
        ([5.0, 3.0, 1.0, 1.0, 1.0, 1.0], 2, 1.0),
        ([1.0, 1.0, 1.0, 9.0], 0, 1.0),
        ([4.0], 0, 4.0),
        ([9.0, 1.0], 1, 1.0),
    ],
)
def test_steps_of_warming_up_do_not_count(times, dropped, median):
    found = steady(run_of(times))
    assert (found.dropped, found.step_s) == (dropped, pytest.approx(median))


def test_a_window_counts_as_it_is():
    found = steady(run_of([10.0, 1.0, 2.0, 30.0]), window=(1, 3))
    assert (found.dropped, found.step_s, len(found.steps)) == (0, 2.0, 3)
    assert steady(run_of([1.0, 2.0]), window=(7, 9)) is None


def test_spikes_are_the_time_beyond_the_median():
    found = steady(run_of([1.0, 1.0, 3.0, 1.0, 1.0, 2.0]))
    assert [each.number for each in found.spikes] == [3, 6]
    assert found.spike_ratio == pytest.approx((2.0 + 1.0) / 9.0)


def test_drift_is_seen_beyond_the_scatter_alone():
    rising = [1.0 + 0.01 * index for index in range(40)]
    assert steady(run_of(rising)).drift_ratio == pytest.approx(1.345 / 1.045 - 1.0)
    assert steady(run_of([1.0, 1.02] * 20)).drift_ratio is None
    assert steady(run_of(rising[:19])).drift_ratio is None


def test_timers_stand_for_steps_without_a_time():
    found = steady([Step(number=1, step_s=None, line=1, parts={"fwd": 1.0, "bwd": 2.0}), Step(number=2, step_s=None, line=2)])
    assert (found.step_s, dict(found.parts), len(found.steps)) == (3.0, {"fwd": 1.0, "bwd": 2.0}, 1)


@given(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=40))
def test_no_more_than_half_is_left_out_and_the_median_is_among_the_rest(times):
    found = steady(run_of(times))
    assert found.dropped <= len(times) // 2
    assert len(found.steps) + found.dropped == len(times)
    kept = times[found.dropped :]
    assert min(kept) <= found.step_s <= max(kept)
    assert 0.0 <= found.low_s <= found.step_s <= found.high_s
