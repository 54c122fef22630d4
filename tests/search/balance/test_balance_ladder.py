"""MindSpore's documented tuning of Llama2-13B, rung by rung: the cost model puts the rungs in the same order."""

from __future__ import annotations

from itertools import pairwise

import pytest
from benchmarks.balance import predicted
from benchmarks.balance_cases import LADDER, LADDER_BYTES


@pytest.mark.parametrize("calibration", ["none", "shipped"])
def test_every_rung_of_the_documented_ladder_is_faster_than_the_one_before(calibration: str) -> None:
    speeds = [predicted(rung, calibration).tokens_per_s / rung.devices for rung in LADDER]
    assert all(slower < faster for slower, faster in pairwise(speeds)), [round(speed) for speed in speeds]


def test_speeds_without_calibration_are_within_a_tenth_of_the_published() -> None:
    for rung in LADDER:
        assert predicted(rung, "none").tokens_per_s / rung.devices == pytest.approx(rung.tokens_per_s, rel=0.10), rung.name


def test_the_last_rung_holds_what_it_held() -> None:
    assert predicted(LADDER[-1], "none").memory_peak_bytes == pytest.approx(LADDER_BYTES, rel=0.10)
