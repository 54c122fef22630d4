"""Bytes per parameter of every sharding scheme (docs/sources.md#states), and the optimizer step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.catalog import optimizer as optimizer_named
from meshwright.perf.arrays import array
from meshwright.perf.states import Shards, adapter_parameters, optimizer_s, training_states
from strategies import examples, small_case

CASE = small_case()
DENSE, EXPERTS = 1e9, 4e9


def _bytes(case, *, dense=0.0, experts=0.0, optimizer=1, gradient=1, parameter=1, expert_replicas=1):
    shards = Shards(
        optimizer=array(optimizer),
        gradient=array(gradient),
        parameter=array(parameter),
        expert_data_parallel=array(expert_replicas),
    )
    states = training_states(array(dense), array(experts), array(0.0), shards, case)
    return states.parameter_bytes, states.gradient_bytes, states.optimizer_bytes


def _per_parameter(case, **options):
    total = sum(map(float, _bytes(case, **options)))
    return total / (options.get("dense", 0.0) + options.get("experts", 0.0))


def _with(case, *, gradient_bytes=None, optimizer=None):
    training = case.training
    if gradient_bytes is not None:
        training = replace(training, precision=replace(training.precision, gradient_bytes=gradient_bytes))
    if optimizer is not None:
        training = replace(training, optimizer=optimizer_named(optimizer))
    return replace(case, training=training)


def test_unsharded_adam_takes_eighteen_bytes():
    assert _per_parameter(CASE, dense=DENSE) == 18


@pytest.mark.parametrize("group", [2, 8, 64, 512])
def test_the_distributed_optimizer_takes_six_and_twelve_over_the_group(group):
    assert _per_parameter(CASE, dense=DENSE, optimizer=group) == pytest.approx(6 + 12 / group, rel=1e-14)


@pytest.mark.parametrize("group", [2, 64])
def test_bf16_gradients_take_two_bytes_less(group):
    assert _per_parameter(_with(CASE, gradient_bytes=2.0), dense=DENSE, optimizer=group) == pytest.approx(4 + 12 / group, rel=1e-14)


def test_bf16_moments_leave_eight_bytes_to_shard():
    assert _per_parameter(_with(CASE, optimizer="adamw-bf16-moments"), dense=DENSE, optimizer=4) == pytest.approx(6 + 8 / 4)


@pytest.mark.parametrize(("group", "replicas"), [(64, 8), (8, 8), (4, 16), (64, 1)])
def test_routed_experts_are_sharded_over_their_own_replicas_at_most(group, replicas):
    size = _per_parameter(CASE, experts=EXPERTS, optimizer=group, expert_replicas=replicas)
    assert size == pytest.approx(6 + 12 / min(group, replicas), rel=1e-14)


@examples(50)
@given(st.sampled_from((1, 2, 4, 32)), st.floats(1.0, 1e12))
def test_zero_stages_are_their_definitions(z, parameters):
    w, g, o = 2.0, 4.0, 12.0
    assert _per_parameter(CASE, dense=parameters, optimizer=z) == pytest.approx((w + g) + o / z)
    assert _per_parameter(CASE, dense=parameters, optimizer=z, gradient=z) == pytest.approx(w + (g + o) / z)
    assert _per_parameter(CASE, dense=parameters, optimizer=z, gradient=z, parameter=z) == pytest.approx((w + g + o) / z)


def test_sgd_keeps_a_master_copy_and_one_moment():
    _, _, optimizer = _bytes(_with(CASE, optimizer="sgd"), dense=DENSE)
    assert float(optimizer) / DENSE == 4 + 4


def test_frozen_weights_have_neither_gradients_nor_optimizer_states():
    case = small_case(task="lora")
    shards = Shards(optimizer=array(1), gradient=array(1), parameter=array(1), expert_data_parallel=array(1))
    states = training_states(array(DENSE), array(0.0), array(1000.0), shards, case)
    assert float(states.parameter_bytes) == 2 * (DENSE + 1000)
    assert (float(states.gradient_bytes), float(states.optimizer_bytes)) == (4 * 1000, 12 * 1000)


def test_lora_adapters_of_llama3_8b_are_counted_exactly():
    """Rank 16 on q, k, v, o, gate, up and down of 32 layers: PEFT prints 41,943,040 trainable parameters."""
    case = small_case(task="lora")
    assert float(adapter_parameters(case, array(32.0), array(1.0))) == 41_943_040


def test_adapters_split_their_wide_side_over_tensor_ranks_and_copy_the_other():
    """Per layer: seven projections have one side of hidden width, which stays whole; the other side is cut by 8."""
    case = small_case(task="lora")
    wide = 4096 + 1024 + 1024 + 4096 + 3 * 14336
    assert float(adapter_parameters(case, array(1.0), array(8.0))) == 16 * (7 * 4096 + wide / 8)


@examples(50)
@given(st.integers(0, 10**9), st.integers(1, 64), st.integers(1, 64), st.integers(1, 64), st.integers(1, 64))
def test_no_state_grows_with_more_shards(parameters, a, b, replicas, ratio):
    few, many = sorted((a, b))
    for knob in ("optimizer", "gradient", "parameter"):
        lean = _bytes(CASE, dense=parameters, experts=parameters / ratio, expert_replicas=replicas, **{knob: many})
        wide = _bytes(CASE, dense=parameters, experts=parameters / ratio, expert_replicas=replicas, **{knob: few})
        assert all(float(x) <= float(y) for x, y in zip(lean, wide, strict=True))


def test_the_optimizer_step_moves_its_states_and_offload_is_bound_by_the_host():
    shards = Shards(optimizer=array(1), gradient=array(1), parameter=array(1), expert_data_parallel=array(1))
    states = training_states(array(DENSE), array(0.0), array(0.0), shards, CASE)
    bandwidth = CASE.cluster.device.memory_bytes_per_s * CASE.calibration.constants.memory_ratio
    on_device = float(optimizer_s(states, CASE))
    assert on_device == pytest.approx(DENSE * (2 * 12 + 4 + 2 + CASE.implementation.optimizer_passes_bytes) / bandwidth)
    assert float(optimizer_s(states, CASE, offload=True)) > on_device


def test_an_update_by_a_list_of_operators_passes_over_the_states_more_often_and_holds_one_moment_more():
    """By hand: eight operators of AdamW move 8 + 12 + 8 + 12 + 8 + 8 + 8 + 16 bytes a parameter, one kernel 28."""
    shards = Shards(optimizer=array(4), gradient=array(1), parameter=array(1), expert_data_parallel=array(4))
    plain = replace(CASE, launch=replace(CASE.launch, plain_optimizer=True))
    states, more = (training_states(array(DENSE), array(0.0), array(0.0), shards, each) for each in (CASE, plain))
    bandwidth = CASE.cluster.device.memory_bytes_per_s * CASE.calibration.constants.memory_ratio
    extra_s = float(optimizer_s(more, plain)) - float(optimizer_s(states, CASE))
    assert extra_s == pytest.approx(DENSE / 4 * (80 - 28) / bandwidth)
    assert float(more.step_bytes - states.step_bytes) == pytest.approx(DENSE / 4 * 4)
    assert float(optimizer_s(more, plain, offload=True)) == float(optimizer_s(states, CASE, offload=True))
