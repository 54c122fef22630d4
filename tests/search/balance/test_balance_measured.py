"""Measured stages in place of modelled ones."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.domain.balance import BalanceProblem, Body, End
from meshwright.search.balance.measured import Correction, corrected, correction
from meshwright.search.balance.memory import stage_memory
from meshwright.search.balance.solve import balance
from meshwright.search.balance.times import chunk_times

BODY = Body(layers=16, forward_time=10.0, backward_times=(20.0, 30.0), static_memory=100.0, activation_memory=(50.0, 5.0))
ASKED = BalanceProblem(
    stages=4, microbatches=8, treatments=("none", "full"), bodies=(BODY,), memory_bounds=(2000.0,) * 4,
    first=End(forward_time=1.0, backward_time=2.0), last=End(forward_time=6.0, backward_time=12.0),
)
EVEN = np.zeros((1, 2, 1, 4), dtype=np.int64)
EVEN[0, 0] = 4


def stage_times(problem, counts):
    times = chunk_times(problem, counts)
    return (times.forward + times.backward).sum(axis=1)


def test_a_run_like_its_model_changes_nothing():
    found = correction(ASKED, EVEN, stage_times=tuple(stage_times(ASKED, EVEN)), stage_memories=tuple(stage_memory(ASKED, EVEN)))
    assert found.layer_time_ratio == pytest.approx(1.0)
    assert (found.first_extra, found.last_extra) == (pytest.approx(0.0), pytest.approx(0.0))
    assert found.stage_memory_extra == pytest.approx([0.0] * 4)
    assert stage_times(corrected(ASKED, found), EVEN) == pytest.approx(stage_times(ASKED, EVEN))


@pytest.mark.parametrize("counts", [EVEN, np.array([[[[3, 4, 4, 2]], [[1, 1, 0, 1]]]])])
def test_the_corrected_problem_meets_what_was_measured(counts):
    truth = Correction(layer_time_ratio=1.3, first_extra=9.0, last_extra=30.0, stage_memory_extra=(10.0, -20.0, 5.0, 0.0))
    real = corrected(ASKED, truth)
    times, memories = stage_times(real, counts), stage_memory(real, counts)
    found = correction(ASKED, counts, stage_times=tuple(times), stage_memories=tuple(memories))
    assert stage_times(corrected(ASKED, found), counts) == pytest.approx(times)
    assert stage_memory(corrected(ASKED, found), counts) == pytest.approx(memories)
    assert found.layer_time_ratio == pytest.approx(1.3)
    assert found.stage_memory_extra == pytest.approx(truth.stage_memory_extra)


def test_a_slow_last_stage_loses_layers():
    times = stage_times(ASKED, EVEN)
    times[-1] += 60.0
    moved = balance(corrected(ASKED, correction(ASKED, EVEN, stage_times=tuple(times))), time_limit_s=2.0)
    assert moved.best.layers[0][-1] < balance(ASKED, time_limit_s=2.0).best.layers[0][-1]


def test_a_full_first_stage_recomputes():
    asked = balance(ASKED, time_limit_s=2.0)
    assert asked.best.treated(1)[0][0] == 0
    memories = stage_memory(ASKED, EVEN)
    memories[0] += 1100.0
    full = balance(corrected(ASKED, correction(ASKED, EVEN, stage_memories=tuple(memories))), time_limit_s=2.0)
    assert full.best.treated(1)[0][0] > 0 or full.best.layers[0][0] < asked.best.layers[0][0]


def test_two_stages_have_no_middle():
    body = Body(layers=4, forward_time=10.0, backward_times=(20.0,))
    asked = BalanceProblem(stages=2, microbatches=4, bodies=(body,), memory_bounds=(1.0, 1.0), last=End(forward_time=2.0))
    counts = np.full((1, 1, 1, 2), 2, dtype=np.int64)
    times = 2.0 * stage_times(asked, counts)
    found = correction(asked, counts, stage_times=tuple(times))
    assert stage_times(corrected(asked, found), counts) == pytest.approx(times)
