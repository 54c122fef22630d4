"""A measured peak takes the place of a predicted one."""

from __future__ import annotations

import pytest

from meshwright.api import make_case
from meshwright.domain.layout import Layout
from meshwright.errors import InputError
from meshwright.estimate import estimate
from meshwright.estimate.anchor import Probe, anchored

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


def test_a_peak_below_the_states_and_a_stage_that_is_not_there_are_refused():
    memory = PLAIN.stages[0].memory
    with pytest.raises(InputError, match=r"not above the .* of parameters, gradients and optimizer state"):
        anchored(CASE, PLAIN, [Probe(stage=0, predicted=memory, peak_bytes=memory.parameters)])
    with pytest.raises(InputError, match="no stage 7"):
        anchored(CASE, PLAIN, [Probe(stage=7, predicted=memory, peak_bytes=6e10)])
