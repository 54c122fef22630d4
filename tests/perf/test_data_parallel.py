"""Exposed data-parallel seconds of every ZeRO stage, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from meshwright.perf.arrays import array
from meshwright.perf.data_parallel import Synchronisation, exposed_s
from strategies import small_case

SCATTER, REDUCE, GATHER, BUCKET = 0.4, 0.2, 0.3, 0.05
FORWARD, BACKWARD, MICROBATCHES, LAYERS = 0.1, 0.25, 6, 10


def _exposed(
    gradient_shards, parameter_shards, *, ratio, slow, overlap, forward=FORWARD, backward=BACKWARD, microbatches=MICROBATCHES
):
    case = small_case()
    constants = replace(case.calibration.constants, overlap_ratio=ratio, contention_slowdown=slow)
    times = Synchronisation(
        scatter_s=array(SCATTER), reduce_s=array(REDUCE), gather_s=array(GATHER), last_bucket_s=array(BUCKET)
    )
    return float(exposed_s(
        times, gradient_shards=array(gradient_shards), parameter_shards=array(parameter_shards),
        num_microbatches=array(microbatches), forward_s=array(forward), backward_s=array(backward), layers=array(LAYERS),
        case=replace(case, calibration=replace(case.calibration, constants=constants)),
        gradient_overlap=overlap, parameter_overlap=overlap,
    ))


@pytest.mark.parametrize(("shards", "expected"), [
    ((1, 1), SCATTER + REDUCE + GATHER),
    ((8, 1), MICROBATCHES * SCATTER + REDUCE + GATHER),
    ((8, 8), MICROBATCHES * (GATHER + GATHER + SCATTER + GATHER / LAYERS) + REDUCE),
])
def test_without_overlap_all_that_travels_is_seen(shards, expected):
    assert _exposed(*shards, ratio=0.9, slow=0.1, overlap=False) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("shards", "expected"), [
    # backward hides 0.25 of 0.6, forward 0.1 of 0.3; the last bucket, 0.05, stays and slows nothing down
    ((1, 1), (0.35 + 0.05 + 0.2) + 0.1 * (0.25 + 0.1 - 0.05)),
    # scatter: half of 0.4 hidden, six times; reduction across groups: of 0.2 what the last scatter leaves of the window, 0.05
    ((8, 1), (6 * 0.2 + 0.15 + 0.05 + 0.2) + 0.1 * (6 * 0.2 + 0.05 + 0.1 - 0.05)),
    # gather forward 0.2 seen; gather and scatter backward 0.45 seen, which leaves no window; the first layer's gather 0.03
    ((8, 8), (6 * (0.2 + 0.45 + 0.03) + 0.2 + 0.05) + 0.1 * (6 * (0.1 + 0.25) + 0.0 - 0.05)),
])
def test_windows_hide_their_length_or_a_share_of_what_travels_and_slow_down_by_it(shards, expected):
    assert _exposed(*shards, ratio=0.5, slow=0.1, overlap=True) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("shards", [(1, 1), (8, 1), (8, 8)])
@pytest.mark.parametrize("microbatches", [1, 2, 6])
@pytest.mark.parametrize("slow", [0.0, 0.1, 0.5])
def test_a_shorter_window_never_shows_less(shards, microbatches, slow):
    """Down to windows shorter than the last bucket, of which the slowdown was charged although all of it is seen."""
    windows = np.geomspace(1e-4, 4.0, 200)
    seen = [
        _exposed(*shards, ratio=0.9, slow=slow, overlap=True, forward=each, backward=2.0 * each, microbatches=microbatches)
        for each in windows
    ]
    assert (np.diff(seen) <= 1e-12).all()
