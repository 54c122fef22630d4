"""What an engine reads for the next token: keys and values by hand, weights that a batch meets, and the roofline's two sides."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draws import examples
from meshwright.api import make_case
from meshwright.catalog import cluster_for, load_model
from meshwright.catalog.engines import engine
from meshwright.perf.decoding import cache_bytes, decode_s, prefill_s, weight_tensors, weights_bytes
from meshwright.perf.parameters import active_parameters, met_parameters, total_parameters


@pytest.mark.parametrize(
    ("model", "tensor", "each"),
    [
        ("llama3-70b", 1, 80 * 2 * 8 * 128 * 2),  # layers, keys and values, heads, width, bytes
        ("llama3-70b", 8, 80 * 2 * 1 * 128 * 2),
        ("llama3-70b", 16, 80 * 2 * 1 * 128 * 2),  # no fewer than one head on a rank
        ("deepseek-v3", 1, 61 * (512 + 64) * 2),
        ("deepseek-v3", 8, 61 * (512 + 64) * 2),  # latents are on every rank
    ],
)
def test_keys_and_values_of_a_token(model, tensor, each):
    assert float(cache_bytes(load_model(model), 1000.0, tensor)) == 1000.0 * each


def test_a_window_holds_no_more_than_its_tokens():
    model = load_model("gpt-oss-20b")
    window = {kind.attention.window_tokens for kind in model.kinds}
    assert window == {None, 128}
    short, long, longer = (float(cache_bytes(model, tokens, 1)) for tokens in (128.0, 10_000.0, 20_000.0))
    assert long < short * 10_000 / 128
    full = sum(model.pattern.count(index) for index, kind in enumerate(model.kinds) if kind.attention.window_tokens is None)
    assert longer - long == pytest.approx(10_000 * full * 2 * 8 * 64 * 2)


@examples(40)
@given(few=st.floats(1.0, 1e5), more=st.floats(1.0, 1e5))
def test_more_tokens_meet_more_experts_from_the_active_ones_to_all(few, more):
    model = load_model("qwen3-30b-a3b")
    few, more = sorted((few, more))
    met = met_parameters(model, np.array([1.0, few, more, 1e9]))
    assert met[0] == pytest.approx(active_parameters(model), rel=1e-12)
    assert met[-1] == pytest.approx(total_parameters(model), rel=1e-12)
    assert np.all(np.diff(met) >= 0.0)


def case(model="llama3-8b"):
    cluster = cluster_for("h100-sxm", num_devices=8)
    return make_case(model, cluster, global_batch_sequences=64, sequence_tokens=4096, calibration="none")


def test_few_sequences_wait_for_weights_and_many_for_products():
    made, one = case(), engine()
    device, constants = made.cluster.device, made.calibration.constants
    read = 2.0 * total_parameters(made.model) / (device.memory_bytes_per_s * constants.memory_ratio)
    assert float(decode_s(made, one, running=1.0, context_tokens=0.0)) == pytest.approx(read + one.step_host_s)
    many = 1e5
    computed = 2.0 * total_parameters(made.model) * many / (device.peak_flops_per_s["bf16"] * constants.gemm_ratio)
    assert float(decode_s(made, one, running=many, context_tokens=0.0)) == pytest.approx(computed + one.step_host_s)
    assert float(prefill_s(made, one, many)) == pytest.approx(computed)


@examples(40)
@given(running=st.floats(1.0, 1e4), context=st.floats(0.0, 1e5), more=st.floats(1.0, 3.0))
def test_more_sequences_and_longer_ones_take_no_less_time(running, context, more):
    made, one = case("qwen3-30b-a3b"), engine()
    base = float(decode_s(made, one, running=running, context_tokens=context))
    assert float(decode_s(made, one, running=running * more, context_tokens=context)) >= base
    assert float(decode_s(made, one, running=running, context_tokens=context * more)) >= base


@pytest.mark.parametrize(
    ("model", "count"),
    [
        ("llama3-8b", 32 * 9 + 3),  # q, k, v, o, gate, up, down, two norms; embedding, head, last norm
        ("qwen3-30b-a3b", 48 * (6 + 1 + 128 * 3) + 3),  # a router and three of each expert
    ],
)
def test_tensors_of_the_weights(model, count):
    assert weight_tensors(load_model(model)) == count


def test_devices_of_a_copy_share_its_weights():
    model = load_model("llama3-8b")
    assert float(weights_bytes(model, 4)) == pytest.approx(2.0 * total_parameters(model) / 4)
