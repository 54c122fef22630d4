"""What hides communication: an idle device as well as a busy one, each second of it once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshwright.domain.layout import Layout, Overlap
from meshwright.estimate.evaluate import evaluate
from strategies import EVERYTHING, cases, examples, layouts, small_case

SHARDED = Layout(data_parallel=16, optimizer_shards=16, num_microbatches=1, overlap=Overlap(gradient_reduce=True))


def with_constants(case, **changes):
    constants = replace(case.calibration.constants, **changes)
    return replace(case, calibration=replace(case.calibration, constants=constants))


def narrowed(case):
    """On a network on which gathering or reducing takes about as long as a window."""
    return replace(case, cluster=replace(case.cluster, network=replace(case.cluster.network, bytes_per_s=1e10)))


def step_s(case, layout):
    return float(evaluate(case, layout).time.step_s)


def test_a_layer_that_waits_for_its_host_hides_as_much_whatever_its_operators_take():
    case = with_constants(narrowed(small_case(layers=4, devices=16, batch=16, sequence=256)), launch_s=1e-3)
    slower = with_constants(case, attention_backward_ratio=case.calibration.constants.attention_backward_ratio / 8.0)
    waiting, busier = (evaluate(each, SHARDED) for each in (case, slower))
    layer = busier.costs.kinds[0].time
    assert float(layer.backward.host) > 0.0
    assert float(layer.backward.compute) > float(waiting.costs.kinds[0].time.backward.compute)
    assert float(layer.backward_window_s) == pytest.approx(float(layer.backward.compute + layer.backward.host), rel=1e-12)
    hidden = float(busier.state.times.synchronisation.reduce_s + busier.state.times.synchronisation.scatter_s)
    assert float(busier.time.data_parallel_exposed_s) < hidden
    assert float(busier.time.step_s) == pytest.approx(float(waiting.time.step_s), rel=1e-12)


def test_a_launch_that_is_waited_for_hides_nothing():
    case = small_case(layers=4, devices=16, batch=16, sequence=256, implementation="megatron-deepspeed")
    case = with_constants(replace(case, implementation=replace(case.implementation, blocking_launches=True)), launch_s=1e-3)
    layer = evaluate(case, SHARDED).costs.kinds[0].time
    assert float(layer.backward.host) > 0.0
    assert float(layer.backward_window_s) == float(layer.backward.compute)


def deterministic(case):
    return replace(case, launch=replace(case.launch, deterministic=True))


def on_a_slower_host(case):
    return with_constants(case, launch_s=8.0 * case.calibration.constants.launch_s)


def on_half_the_matrix_units(case):
    device = case.cluster.device
    rates = {name: rate / 2.0 for name, rate in device.peak_flops_per_s.items()}
    return replace(case, cluster=replace(case.cluster, device=replace(device, peak_flops_per_s=rates)))


@pytest.mark.parametrize("slowed", [deterministic, on_a_slower_host, on_half_the_matrix_units])
@examples(60)
@given(data=st.data())
def test_what_slows_a_device_or_its_host_makes_no_step_shorter(slowed, data):
    """Left out: schedules that postpone weight gradients, whose bubble between unequal stages is an estimate."""
    case = data.draw(cases())
    layout = data.draw(layouts(case, replace(EVERYTHING, schedules=("1f1b", "interleaved", "gpipe"))))
    assert step_s(slowed(case), layout) >= step_s(case, layout) * (1 - 1e-12)


@examples(60)
@given(data=st.data(), launch_s=st.sampled_from([1e-6, 1e-5, 1e-4, 1e-3]))
def test_woven_passes_last_as_long_as_their_exchanges_and_as_their_compute(data, launch_s):
    case = with_constants(data.draw(cases(moe=True)), launch_s=launch_s)
    layout = replace(data.draw(layouts(case, EVERYTHING)), overlap=Overlap(expert=True))
    assume(layout.expert_parallel > 1)
    bare = replace(layout, overlap=Overlap(expert=False))
    for woven, apart in zip(evaluate(case, layout).costs.kinds, evaluate(case, bare).costs.kinds, strict=True):
        lasts = float(woven.time.forward.total + woven.time.backward.total)
        passes = (apart.time.forward, apart.time.backward)
        assert lasts >= sum(float(each.expert) for each in passes) * (1 - 1e-12)
        assert lasts >= sum(float(each.compute) for each in passes) * (1 - 1e-12)


@pytest.mark.parametrize("name", ["reference", "torchtitan", "megatron-te"])
def test_a_window_hides_no_more_than_it_lasts(name):
    """Gathers, scatters and reductions of one backward share it."""
    case = with_constants(small_case(layers=32, devices=32, batch=64, implementation=name), contention_slowdown=0.0)
    layout = Layout(data_parallel=32, optimizer_shards=8, gradient_shards=8, parameter_shards=8, num_microbatches=2)
    ways = [replace(layout, overlap=Overlap(gradient_reduce=each, parameter_gather=each)) for each in (True, False)]
    on, off = (evaluate(narrowed(case), each) for each in ways)
    pipeline, saved = on.time.pipeline, float(off.time.data_parallel_exposed_s - on.time.data_parallel_exposed_s)
    most = layout.num_microbatches * float(pipeline.forward_window_s + pipeline.backward_window_s)
    assert 0.0 < saved <= most
    assert np.isfinite(saved)
