"""One distribution of what a layout needs: its interval, its upper bound, its probability to fit and whether it fits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draws import examples
from meshwright.api import make_case
from meshwright.catalog import calibration, cluster_for
from meshwright.domain.label import parse_layout
from meshwright.estimate import estimate
from meshwright.estimate.anchor import Probe, anchored
from meshwright.estimate.certainty import expected_s
from strategies import planned


def calibrated(case):
    """A case under the shipped calibration."""
    fitted = calibration("shipped", case.cluster, framework=case.implementation.family, precision=case.training.precision.name)
    return replace(case, calibration=fitted)


def agree(case, each):
    """Whether all that is said of the memory of an estimate is said of one logistic distribution."""
    level, (low, high), capacity = each.interval.level, each.interval.memory_reserved_bytes, case.capacity_bytes
    assert low < each.memory_reserved_bytes < high == each.memory_upper_bytes
    assert each.interval.memory_peak_bytes[0] < each.memory_peak_bytes < each.interval.memory_peak_bytes[1]
    assert each.interval.memory_peak_bytes[1] < high
    assert each.interval.step_s[0] < each.step_s < each.interval.step_s[1]
    width = math.log(high / low) / 2.0 / math.log((1.0 + level) / (1.0 - level))
    mass = 1.0 / (1.0 + math.exp(min(60.0, max(-60.0, math.log(each.memory_reserved_bytes / capacity) / width))))
    assert each.memory_fit_probability == pytest.approx(mass, rel=1e-6)
    for end, probability in ((each.memory_reserved_bytes, 0.5), (high, (1.0 + level) / 2.0), (low, (1.0 - level) / 2.0)):
        if abs(end / capacity - 1.0) > 1e-9:
            assert (end < capacity) == (each.memory_fit_probability > probability)
    assert each.fits == (each.memory_fit_probability >= 0.5)
    assert each.memory_capacity_bytes == capacity


@examples(60)
@given(planned(), st.floats(0.4, 1.0), st.floats(0.3, 3.0))
def test_probability_interval_bound_and_answer_are_of_one_distribution(drawn, share, near):
    case, layout = calibrated(drawn[0]), drawn[1]
    need = estimate(case, layout).memory_reserved_bytes
    device = replace(case.cluster.device, memory_bytes=need * near)
    case = replace(case, cluster=replace(case.cluster, device=device), memory_ratio=share)
    each = estimate(case, layout)
    agree(case, each)
    columns = expected_s(case, np.array([each.step_s]), np.array([each.memory_reserved_bytes]))
    assert float(columns[0]) == pytest.approx(each.step_s / max(each.memory_fit_probability, 1e-3), rel=1e-9)


def test_a_device_whose_interval_crosses_the_bound_is_not_said_to_fit_for_certain():
    case = make_case(
        "llama2-13b", cluster_for("ascend-910b", num_devices=32), global_batch_sequences=256, sequence_tokens=4096,
        framework="mindspeed-core-ms",
    )
    each = estimate(case, parse_layout("tp2 pp4 mb1 sp zero1", num_devices=32, global_batch_sequences=256))
    agree(case, each)


@pytest.mark.parametrize("ratio", [0.8, 1.0, 1.3])
def test_an_anchored_estimate_keeps_to_one_distribution_and_is_surer_the_more_was_shown(ratio):
    case = make_case("llama3-8b", "dgx-h100", global_batch_sequences=64, sequence_tokens=8192)
    plain = estimate(case, parse_layout("tp2 sp pp2 dp2 zero1 mb1", num_devices=8, global_batch_sequences=64))
    fullest = plain.stages[plain.peak_stage].memory
    states = fullest.parameters + fullest.gradients + fullest.optimizer
    small = replace(fullest, parameters=1e9, gradients=1e9, optimizer=1e9)
    peak = (fullest.activations + fullest.temporary) * ratio
    own, other = (
        anchored(case, plain, [Probe(stage=plain.peak_stage, predicted=memory, peak_bytes=peak + rest, same=memory is fullest)])
        for memory, rest in ((fullest, states), (small, 3e9))
    )
    for each in (own, other):
        agree(case, each)
    assert own.memory_reserved_bytes == pytest.approx(other.memory_reserved_bytes, rel=0.02)  # 3 GB of states leave less to chance
    widths = [each.interval.memory_peak_bytes[1] / each.memory_peak_bytes for each in (own, other, plain)]
    assert widths[0] < min(widths[1:])  # another layout's peak leaves open what recorded pairs say
