"""A measured peak takes the place of a predicted one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draws import examples
from meshwright.api import make_case
from meshwright.domain.layout import Layout
from meshwright.errors import InputError
from meshwright.estimate import estimate
from meshwright.estimate.anchor import FIXED, MULTIPLE, SHARED, Probe, anchored, inferred

CASE = make_case("llama3-8b", "dgx-h100", global_batch_sequences=64, sequence_tokens=8192)
LAYOUT = Layout(
    tensor_parallel=2, sequence_parallel=True, pipeline_parallel=2, data_parallel=2, optimizer_shards=2, num_microbatches=32
)
PLAIN = estimate(CASE, LAYOUT)


def probe(stage, ratio):
    """What a stage would show whose activations and working set are so many times as large as predicted."""
    memory = next(each.memory for each in PLAIN.stages if each.stage == stage)
    states = memory.parameters + memory.gradients + memory.optimizer
    return Probe(stage=stage, predicted=memory, peak_bytes=states + ratio * (memory.activations + memory.temporary))


def test_a_probe_that_shows_what_was_predicted_changes_no_figure():
    seen = anchored(CASE, PLAIN, [probe(PLAIN.peak_stage, 1.0)])
    assert seen.memory_peak_bytes == pytest.approx(PLAIN.memory_peak_bytes)
    assert seen.memory_reserved_bytes == pytest.approx(PLAIN.memory_reserved_bytes)
    assert seen.step_s == PLAIN.step_s
    assert seen.grades["memory_peak_bytes"] == "measured"


@pytest.mark.parametrize("ratio", [0.7, 1.4])
def test_the_peak_becomes_what_the_probe_showed_and_other_stages_follow(ratio):
    known = probe(PLAIN.peak_stage, ratio)
    seen = anchored(CASE, PLAIN, [known])
    there = next(each.memory for each in seen.stages if each.stage == PLAIN.peak_stage)
    assert there.allocated_bytes == pytest.approx(known.peak_bytes)
    for before, after in zip(PLAIN.stages, seen.stages, strict=True):
        assert after.memory.activations == pytest.approx(ratio * before.memory.activations)
        assert after.memory.optimizer == before.memory.optimizer
    assert (seen.memory_reserved_bytes < PLAIN.memory_reserved_bytes) == (ratio < 1.0)


def test_a_measured_stage_is_surer_than_one_inferred_from_another():
    other = next(each.stage for each in PLAIN.stages if each.stage != PLAIN.peak_stage)
    own, inferred = (anchored(CASE, PLAIN, [probe(stage, 1.0)]) for stage in (PLAIN.peak_stage, other))
    assert width(own) <= width(inferred) < width(PLAIN)
    assert inferred.grades["memory_peak_bytes"] == "interpolated"


def width(value):
    low, high = value.interval.memory_peak_bytes
    return high / low


def test_each_stage_follows_its_nearest_probe():
    seen = anchored(CASE, PLAIN, [probe(0, 1.5), probe(1, 0.8)])
    ratios = [after.memory.activations / before.memory.activations for before, after in zip(PLAIN.stages, seen.stages, strict=True)]
    assert ratios == pytest.approx([1.5, 0.8])


def smaller(share, more, states=0.05):
    """A run of another layout: so much of the activations, and so much more than predicted."""
    memory = PLAIN.stages[PLAIN.peak_stage].memory
    small = replace(memory, activations=memory.activations * share, temporary=memory.temporary * share,
                    parameters=memory.parameters * states, gradients=memory.gradients * states, optimizer=memory.optimizer * states)
    return Probe(stage=PLAIN.peak_stage, predicted=small, peak_bytes=small.allocated_bytes + more, same=False)


def test_an_error_of_a_probe_with_few_activations_is_not_multiplied_by_a_plan_with_many():
    memory = PLAIN.stages[PLAIN.peak_stage].memory
    varying = memory.activations + memory.temporary
    near, far = (anchored(CASE, PLAIN, [smaller(share, 0.02 * varying, states=1.0)]) for share in (0.9, 0.05))
    added = [each.memory_peak_bytes - PLAIN.memory_peak_bytes for each in (near, far)]
    assert 0.0 < added[0] < 0.03 * varying
    assert added[1] < 0.2 * varying, "40 % of its activations, times the plan's, would be so"
    assert width(near) < width(far)


def test_more_probes_leave_less_open_and_agreement_with_the_prediction_moves_nothing():
    memory = PLAIN.stages[PLAIN.peak_stage].memory
    one, (more, less) = ([smaller(0.5, 0.0)], [inferred([memory], probes)
                         for probes in ([smaller(0.5, 0.0), smaller(0.25, 0.0)], [smaller(0.5, 0.0)])])
    assert more[1][0] < less[1][0]
    assert anchored(CASE, PLAIN, one).memory_peak_bytes == pytest.approx(PLAIN.memory_peak_bytes)


@examples(60)
@given(st.floats(0.02, 3.0), st.floats(0.05, 2.0), st.floats(-0.5, 2.0))
def test_what_another_run_says_is_conditioning_by_hand(share, states, error):
    memory = PLAIN.stages[PLAIN.peak_stage].memory
    known = smaller(share, 0.0, states)
    known = replace(known, peak_bytes=known.predicted.allocated_bytes + error * (v1 := share * activations(memory)))
    s1, s2, v2 = states * held(memory), held(memory), activations(memory)
    cov = SHARED * (MULTIPLE**2 * v1 * v2 + FIXED**2 * s1 * s2)
    one, two = ((MULTIPLE * v) ** 2 + (FIXED * s) ** 2 for v, s in ((v1, s1), (v2, s2)))
    (mean,), (left,) = inferred([memory], [known])
    assert mean == pytest.approx(cov / one * error * v1, rel=1e-6, abs=1.0)
    assert left == pytest.approx((two - cov**2 / one) ** 0.5, rel=1e-6)
    assert left < two**0.5


def activations(memory):
    return memory.activations + memory.temporary


def held(memory):
    return memory.parameters + memory.gradients + memory.optimizer


def test_a_peak_below_the_states_and_a_stage_that_is_not_there_are_refused():
    memory = PLAIN.stages[0].memory
    with pytest.raises(InputError, match=r"not above the .* of parameters, gradients and optimizer state"):
        anchored(CASE, PLAIN, [Probe(stage=0, predicted=memory, peak_bytes=memory.parameters)])
    with pytest.raises(InputError, match="no stage 7"):
        anchored(CASE, PLAIN, [Probe(stage=7, predicted=memory, peak_bytes=6e10)])
