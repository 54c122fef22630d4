"""Pairs of runs, and what chance allows of intervals."""

import math
from itertools import combinations

import numpy as np
import pytest
from benchmarks.ordinary import ALIKE, DEGREES, band, bootstrap, pairs
from hypothesis import given
from hypothesis import strategies as st
from tests.draws import examples

from meshwright.evidence.rows.table import shipped_table
from meshwright.evidence.score.scored import Scored


def _scored(row):
    return Scored(id=row.id, line=row.line, row=row, status=row.status, predicted_step_s=None, measured_step_s=row.measured.step_s,
                  predicted_memory_bytes=None, measured_memory_bytes=None, fit_probability=1.0)


@pytest.fixture(scope="module")
def rows():
    return [_scored(row) for row in shipped_table().rows if row.id.startswith(("bridge26", "vcard"))]


@given(st.integers(1, 1000), st.floats(0.05, 0.95))
def test_the_band_holds_at_least_its_share_and_no_narrower_one_on_either_side_does(count, share):
    low, high = (round(each * count) for each in band(count, share))
    mass = [math.exp(math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) + k * math.log(share)
                     + (count - k) * math.log1p(-share)) for k in range(count + 1)]
    assert 0 <= low <= high <= count
    assert sum(mass[:low]) <= 0.025 + 1e-9 < sum(mass[: low + 1]) + 2e-9
    assert sum(mass[high + 1:]) <= 0.025 + 1e-9 < sum(mass[high:]) + 2e-9


def test_two_runs_of_a_pair_differ_in_one_setting_and_no_such_pair_is_left_out(rows):
    found = {frozenset((each.first.id, each.second.id)) for each in pairs(rows)}
    assert len(found) >= 14
    for first, second in combinations([each for each in rows if each.status == "ok"], 2):
        alike = all(getattr(first.row, name) == getattr(second.row, name) for name in ALIKE)
        differ = sum(getattr(first.row, name) != getattr(second.row, name) for name in DEGREES)
        assert (frozenset((first.id, second.id)) in found) == (alike and differ == 1)


@given(st.randoms(use_true_random=False))
def test_pairs_do_not_depend_on_the_order_of_rows(rows, random):
    shuffled = random.sample(rows, len(rows))
    assert pairs(shuffled) == pairs(rows)


@given(st.lists(st.floats(1.0, 5.0), min_size=1, max_size=12), st.floats(0.0, 1.0), st.data())
@examples(24)
def test_a_bootstrap_stays_within_the_values_and_of_one_group_has_no_width(values, share, data):
    groups = [data.draw(st.sampled_from("abc")) for _ in values]
    low, high = bootstrap(values, groups, share)
    assert min(values) <= low <= high <= max(values)
    single = bootstrap(values, ["one"] * len(values), share)
    assert single == pytest.approx([np.quantile(values, share)] * 2)
