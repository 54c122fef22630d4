"""What sharded units add to a step, by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from msgspec import structs

from meshwright.perf.arrays import array
from meshwright.perf.sharded_units import UnitCounts, UnitTimes, units_exposed_s

TIMES = UnitTimes(**{name: array(value) for name, value in {
    "gather_s": 8.0, "scatter_s": 6.0, "reduce_s": 4.0, "owners_s": 3.0, "gather_copies_s": 1.0, "reduce_copies_s": 0.5,
    "wait_copies_s": 0.25, "sum_s": 0.125, "shard_sum_s": 0.2, "last_s": 1.5, "units": 4.0,
}.items()})
COUNTS = UnitCounts(**{name: array(value) for name, value in {
    "forward_gathers": 2.0, "backward_gathers": 2.0, "scatters": 2.0, "waiting": 3.0, "waits": 1.0,
}.items()})
CASE = SimpleNamespace(calibration=SimpleNamespace(constants=SimpleNamespace(overlap_ratio=0.5, contention_slowdown=0.1)))


@pytest.mark.parametrize(("overlap", "expected"), [
    # Half of each hides while the window of 7 lasts: 2 (4 + 4/4) + 2 x 4 + 2 x 3, then 4 bare; with the last unit's 1.5 that is
    # 29.5; a tenth of the hidden 8 + 8 + 6 but for the first unit's 2 x 1 and the last one's 1.5, which are seen.
    (True, 29.5 + 1.85 + 5.0 + 0.825 + 3.0),
    # Nothing hides: 2 x 8 + 2 x 8 + 2 x 6 + 4.
    (False, 48.0 + 5.0 + 0.825 + 3.0),
])
def test_messages_that_do_not_hide_their_slowdown_and_copies_add_up(overlap, expected):
    found = units_exposed_s(
        TIMES, COUNTS, forward_s=array(5.0), backward_s=array(7.0), case=CASE, gradient_overlap=overlap, parameter_overlap=overlap
    )
    assert float(found) == pytest.approx(expected)


@pytest.mark.parametrize("units", [1.0, 2.0, 32.0])
def test_a_shorter_window_never_shows_less(units):
    times = structs.replace(TIMES, units=array(units))
    seen = [
        float(units_exposed_s(
            times, COUNTS, forward_s=array(each), backward_s=array(each), case=CASE, gradient_overlap=True, parameter_overlap=True
        ))
        for each in np.geomspace(1e-3, 40.0, 200)
    ]
    assert (np.diff(seen) <= 1e-12).all()
