"""Two peaks of a step, the backward's and the optimizer's; what modules free; what the host takes; logits in chunks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.domain.launch import Launch
from meshwright.domain.layout import Full, Layout, NoRecompute, Selective
from meshwright.estimate.evaluate import evaluate
from meshwright.estimate.many import evaluate_many
from meshwright.perf.ends import logits_bytes
from meshwright.perf.operators import work_shape
from strategies import cases, examples, small_case


def _halved(case, bytes_=2.0):
    """The case with gradients of 16 bits."""
    precision = replace(case.training.precision, gradient_bytes=bytes_)
    return replace(case, training=replace(case.training, precision=precision))


def _modules(*modules):
    return Layout(recompute=Selective(modules=modules) if modules else NoRecompute())


def test_the_optimizer_step_is_a_floor_that_recomputation_does_not_lower():
    """2 + 2 + 12 + 4 bytes a parameter, by hand; the copies take the place of activations."""
    case = _halved(small_case("llama3-8b", devices=1, batch=1, sequence=128))
    plain, full = (evaluate(case, Layout(recompute=each)).memory for each in (NoRecompute(), Full()))
    parameters = float(plain.parameters[0]) / 2.0
    assert float(full.allocated_bytes[0]) == pytest.approx(20.0 * parameters, rel=1e-12)
    assert float(plain.allocated_bytes[0]) == float(full.allocated_bytes[0])
    assert float(full.activations[0]) < float(plain.activations[0])
    kept = evaluate(_halved(case, 4.0), Layout(recompute=Full())).memory
    assert float(kept.allocated_bytes[0]) < 20.0 * parameters


@examples(30)
@given(cases(implementation="megatron-te"), st.sampled_from((1, 4)))
def test_reserved_is_the_larger_of_both_peaks(case, number):
    case = _halved(replace(case, batch=replace(case.batch, global_batch_sequences=number)))
    layout = Layout(num_microbatches=number)
    with_copies = evaluate(case, layout).memory
    none = replace(case, implementation=replace(case.implementation, step_gradient_bytes=0.0))
    backward = evaluate(none, layout).memory
    states = backward.parameters + backward.gradients + backward.optimizer
    step = states + 4.0 * backward.parameters / case.training.precision.parameter_bytes
    assert with_copies.allocated_bytes == pytest.approx(np.maximum(backward.allocated_bytes, step), rel=1e-12)
    _, reserved = evaluate_many(case, [layout, replace(layout, recompute=Full())])
    assert reserved[0] == pytest.approx(float(with_copies.reserved_bytes.max()), rel=1e-12)
    assert reserved[1] <= reserved[0] * (1.0 + 1e-12)


@pytest.mark.parametrize(("model", "norms"), [("llama3-8b", 0), ("mixtral-8x7b", 32), ("deepseek-v3", 61 + 58 + 2)])
def test_layernorm_reaches_norms_that_are_modules_of_their_own(model, norms):
    """2 T h for each: none of a dense layer, one in front of experts, one of latent attention (two of a prediction layer)."""
    case = small_case(model, sequence=2048)
    kept = [float(evaluate(case, _modules(*modules)).memory.activations[0]) for modules in ((), ("layernorm",))]
    assert kept[0] - kept[1] == pytest.approx(2.0 * 2048 * case.model.hidden * norms, rel=1e-12)


@pytest.mark.parametrize("routing", [True, False])
@pytest.mark.parametrize("ranks", [1, 4])
def test_a_token_has_as_many_copies_however_many_ranks_share_the_experts(routing, ranks):
    """The fullest of several ranks has more only where routing is left to itself."""
    case = small_case("mixtral-8x7b", devices=ranks, batch=ranks, sequence=2048)
    case = replace(case, training=replace(case.training, balanced_routing=routing))
    layout = Layout(expert_parallel=ranks, data_parallel=ranks)
    kept = float(evaluate(case, layout).memory.activations[0])
    rest = float(evaluate(case, replace(layout, recompute=Selective(modules=("moe",)))).memory.activations[0])
    experts = case.model.kinds[0].experts
    tokens = 2.0 * 2048 * experts.experts_per_token * (case.model.hidden + 3 * experts.expert_width) * len(case.model.pattern)
    headroom = 1.0 if routing or ranks == 1 else case.calibration.constants.expert_headroom_ratio
    assert kept - rest == pytest.approx(headroom * tokens, rel=1e-12)


@examples(30)
@given(cases(uniform=True, implementation="megatron-te"), st.integers(0, 12))
def test_layers_on_the_host_leave_the_device(case, offloaded):
    layout, layers = Layout(num_microbatches=case.batch.global_batch_sequences), case.model.num_layers
    here = evaluate(case, layout).memory
    there = evaluate(replace(case, launch=Launch(offloaded_layers=offloaded)), layout).memory
    share = 1.0 - min(offloaded, layers) / layers
    assert there.activations == pytest.approx(share * here.activations, rel=1e-12, abs=1e-6)
    assert (there.temporary >= here.temporary).all()


def test_checkpoints_on_the_host_leave_one_on_the_device():
    case = small_case("llama3-8b", devices=1, batch=1, sequence=4096)
    full, none = Layout(recompute=Full()), Layout()
    away = replace(case, launch=Launch(offloaded_checkpoints=True))
    assert float(evaluate(away, full).memory.activations[0]) == 0.0
    assert float(evaluate(away, none).memory.activations[0]) == float(evaluate(case, none).memory.activations[0])
    there, here = (evaluate(each, full).costs.kinds[0].transient_bytes[-1] for each in (away, case))
    assert float(there - here) == pytest.approx(2.0 * 4096 * case.model.hidden, rel=1e-9)


@pytest.mark.parametrize("name", ["trl", "torchtitan"])
def test_full_sharding_keeps_full_precision_weights_alone(name):
    """FP32 weights, gradients and two moments: 16 bytes a parameter; without full sharding BF16 ones are beside them."""
    case = small_case("llama3-8b", implementation=name, devices=8, batch=8)
    layout = Layout(data_parallel=8, optimizer_shards=8, gradient_shards=8, parameter_shards=8)
    parameters = evaluate(case, layout).parameters.dense[0]
    for stage, each in ((3, 16 / 8), (2, 2 + 16 / 8)):
        found = evaluate(case, replace(layout, parameter_shards=8 if stage == 3 else 1))
        assert float(found.state.states.total_bytes[0]) == pytest.approx(each * float(parameters), rel=1e-12)
    away = evaluate(case, replace(layout, offload=("optimizer",))).state.states
    assert float(away.total_bytes[0]) == 0.0
    kept = evaluate(case, replace(layout, parameter_shards=1, offload=("optimizer",))).state.states
    assert float(kept.total_bytes[0]) == pytest.approx((2 + 4 / 8) * float(parameters), rel=1e-12)


def test_fp8_weights_are_cast_for_the_update():
    case = small_case("llama3-8b", precision="fp8-cs", devices=2, batch=2)
    cast = replace(case, training=replace(case.training, precision=replace(case.training.precision, weight_cast_bytes=2.0)))
    layout = Layout(data_parallel=2, num_microbatches=1, optimizer_shards=2)
    without, with_casts = (evaluate(each, layout).state.states for each in (case, cast))
    assert float(without.step_bytes[0]) == 0.0  # gradients are FP32
    assert float(with_casts.step_bytes[0]) == 2.0 * float(with_casts.owned_parameters[0])


def test_a_ring_peaks_in_the_backward_of_attention():
    case = small_case("qwen3-0.6b", implementation="trl", devices=8, batch=1, sequence=2**20)
    layout = Layout(context_parallel=8, recompute=Full(), optimizer_shards=8, gradient_shards=8, parameter_shards=8)
    around, within = (evaluate(case, replace(layout, context_kind=kind)).memory for kind in ("ring", "ulysses"))
    assert float(around.temporary[0] - within.temporary[0]) > 2**30


@examples(20)
@given(st.integers(1, 64), st.sampled_from((0, 64, 256)))
def test_logits_in_chunks_do_not_grow_beyond_a_chunk(sequences, chunk):
    case = small_case("llama3-8b", sequence=64)
    case = replace(case, implementation=replace(case.implementation, logit_chunk_tokens=chunk, weight_gradient_bytes=0.0))
    shape = work_shape(microbatch_sequences=sequences, sequence_tokens=64, tensor_parallel=1, sequence_parallel=1,
                       context_parallel=1, expert_parallel=1, expert_tensor_parallel=1)
    tokens = min(64 * sequences, chunk) if chunk else 64 * sequences
    assert float(logits_bytes(case, shape, 1000)) == case.implementation.logit_bytes * tokens * 1000
