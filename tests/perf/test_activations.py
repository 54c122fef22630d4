"""Saved tensors against the closed expressions of docs/sources.md#activations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.domain.label import MODULES
from meshwright.perf.activations import (
    attention_working_bytes,
    checkpoint_bytes,
    piled_bytes,
    ring_backward_bytes,
    saved_bytes,
    working_bytes,
)
from meshwright.perf.operators import work_shape
from strategies import cases, examples, small_case

MB = 1e6


def _saved(case, kind, shape, **options) -> float:
    settings = {"implementation": case.implementation, "precision": case.training.precision, **options}
    return float(saved_bytes(kind, case.model.hidden, case.batch.sequence_tokens, shape, **settings))


def _shape(sequence, **degrees):
    return work_shape(microbatch_sequences=1, sequence_tokens=sequence, sequence_parallel=1, **degrees)


def test_llama3_70b_keeps_140_5_megabytes_a_layer():
    case = small_case("llama3-70b", sequence=4096)
    shape = _shape(4096, tensor_parallel=8)
    with_statistics = _saved(case, case.model.kinds[0], shape)
    statistics = 4 * 4096 * 64 / 8
    assert (with_statistics - statistics) / MB == pytest.approx(140.5, abs=0.05)
    assert 20 * with_statistics / 2**30 == pytest.approx(2.6184, rel=0.003)


@pytest.mark.parametrize("name", ["llama3-8b", "llama3-70b", "qwen2.5-7b", "llama2-13b"])
@pytest.mark.parametrize(("tp", "cp"), [(1, 1), (4, 1), (2, 4)])
def test_dense_gated_layers_keep_the_closed_expression(name, tp, cp):
    case = small_case(name, sequence=8192)
    kind, h = case.model.kinds[0], case.model.hidden
    a, k, d, f = kind.attention.num_heads, kind.attention.num_key_value_heads, kind.attention.head_dim, kind.feed_forward.width
    tokens = 8192 / (tp * cp)
    expected = 2 * tokens * (4 * h + 2 * a * d + 2 * k * d + 3 * f) + 4 * tokens * a
    assert _saved(case, kind, _shape(8192, tensor_parallel=tp, context_parallel=cp)) == pytest.approx(expected, rel=1e-14)


def test_latent_attention_keeps_its_latents_and_what_grows_out_of_them():
    case = small_case("deepseek-v3", sequence=4096)
    kind = case.model.kinds[0]
    latent, a, h = kind.attention.latent, kind.attention.num_heads, case.model.hidden
    query, value = a * (latent.nope_dim + latent.rope_dim), a * latent.value_dim
    low = 2 * latent.query_rank + 2 * latent.key_value_rank + latent.rope_dim
    expected = 2 * 4096 * (2 * h + low + 2 * query + 2 * value) + 4 * 4096 * a
    attention = _saved(case, kind, _shape(4096)) - 2 * 4096 * (2 * h + 3 * kind.feed_forward.width)
    assert attention == pytest.approx(expected, rel=1e-12)
    without = _saved(case, kind, _shape(4096), recomputed=("mla_up_proj",))
    assert _saved(case, kind, _shape(4096)) - without == pytest.approx(2 * 4096 * (2 * query + value), rel=1e-12)


@pytest.mark.parametrize("headroom", [1.0, 1.15, 2.0])
def test_routed_tokens_are_kept_with_their_headroom(headroom):
    case = small_case("mixtral-8x7b", sequence=4096)
    kind = case.model.kinds[0]
    mixture, h = kind.experts, case.model.hidden
    shape = _shape(4096, tensor_parallel=2, expert_parallel=4)
    routed = 4096 / 2 * mixture.experts_per_token
    tokens = _saved(case, kind, shape, headroom_ratio=headroom) - _saved(case, kind, shape, headroom_ratio=0.0)
    assert tokens == pytest.approx(headroom * routed * 2 * (h + 3 * mixture.expert_width), rel=1e-12)  # results are weighted inside
    assert _saved(case, kind, shape, recomputed=("moe",)) == pytest.approx(_saved(case, kind, shape, headroom_ratio=0.0), rel=1e-12)


def test_fp8_keeps_one_byte_of_linear_inputs():
    half, quarter = small_case("llama3-8b"), small_case("llama3-8b", precision="fp8-cs")
    kind, h = half.model.kinds[0], half.model.hidden
    saved = _saved(half, kind, _shape(2048)) - _saved(quarter, kind, _shape(2048))
    assert saved == 2048 * (h + kind.attention.output_width + h + kind.feed_forward.width)


def test_a_checkpoint_of_the_core_keeps_the_joint_product():
    """Qwen3-30B-A3B at 4,096 tokens: 1.79 GB over 48 layers, measured (Megatron-Bridge PR #3880: 61.35 and 63.14 GB)."""
    case = small_case("qwen3-30b-a3b", sequence=4096)
    kind = case.model.kinds[0]
    more = _saved(case, kind, _shape(4096), recomputed=("core_attn",)) - _saved(case, kind, _shape(4096))
    assert more == 4096 * (2 * (32 + 4) * 128 - 4 * 32)  # queries and keys, less the logarithms of sums
    assert 48 * more == pytest.approx(1.79e9, rel=0.01)


def test_a_checkpoint_of_the_core_of_latent_attention_frees_its_statistics():
    case = small_case("deepseek-v3", sequence=4096)
    kind = case.model.kinds[0]
    less = _saved(case, kind, _shape(4096)) - _saved(case, kind, _shape(4096), recomputed=("core_attn",))
    assert less == 4 * 4096 * kind.attention.num_heads


QWEN_0_6B = {"queries": 16 * 128, "keys and values": 2 * 8 * 128}


def test_the_backward_of_the_ring_by_hand():
    """Qwen3-0.6B on eight ranks: 12 bytes a query element, 16 + 2 c a key or value element."""
    case = small_case("qwen3-0.6b", implementation="trl", sequence=8192)
    kind, implementation = case.model.kinds[0], case.implementation
    found = ring_backward_bytes(kind, _shape(8192, context_parallel=8), implementation)
    assert float(found) == 1024 * (12 * QWEN_0_6B["queries"] + 32 * QWEN_0_6B["keys and values"])
    assert float(ring_backward_bytes(kind, _shape(8192), implementation)) == 0.0
    alone = attention_working_bytes(kind, case.model.hidden, _shape(8192, context_parallel=8), implementation, ring=False)
    assert float(alone) == 1024 * (4 * 1024 + 6 * QWEN_0_6B["queries"])


def test_slices_of_the_block_bound_its_gradients():
    case = small_case("qwen3-0.6b", implementation="trl", sequence=8192)
    kind = case.model.kinds[0]
    settings = {"implementation": case.implementation}
    whole, half, more = (
        float(working_bytes(kind, case.model.hidden, _shape(8192), slice_tokens=tokens, **settings)) for tokens in (0, 4096, 9999)
    )
    assert whole == 8192 * (4 * 1024 + 4 * 3072)
    assert half == 8192 * (4 * 1024 + 2 * 3072)
    assert more == whole


def test_results_of_experts_that_are_weighted_afterwards_have_two_gradients():
    case = small_case("qwen3-30b-a3b", implementation="trl", sequence=4096)
    kind = case.model.kinds[0]
    found = float(working_bytes(kind, case.model.hidden, _shape(4096), implementation=case.implementation))
    assert found == 4096 * (4 * 2048 + 4 * 8 * 2048)


@examples(80)
@given(cases(), st.sampled_from(MODULES), st.integers(1, 3), st.data())
def test_recompute_and_shards_never_keep_more(case, module, mb, data):
    kind = case.model.kinds[0]
    degrees = {"tensor_parallel": 1, "context_parallel": 1, "expert_parallel": 1}
    one = work_shape(microbatch_sequences=mb, sequence_tokens=case.batch.sequence_tokens, sequence_parallel=1, **degrees)
    whole = _saved(case, kind, one)
    kept = _saved(case, kind, one, recomputed=(module,))
    assert 0 <= kept <= whole or module == "core_attn"  # a checkpoint of the core may keep the joint product
    assert float(checkpoint_bytes(case.model.hidden, one)) <= whole
    knob = data.draw(st.sampled_from(sorted(degrees)))
    previous, working = whole, float(working_bytes(kind, case.model.hidden, one, implementation=case.implementation))
    for degree in (2, 3, 4, 8, 16):
        more = work_shape(
            microbatch_sequences=mb, sequence_tokens=case.batch.sequence_tokens, sequence_parallel=1, **{**degrees, knob: degree}
        )
        now = _saved(case, kind, more)
        assert now <= previous * (1 + 1e-12)
        assert float(working_bytes(kind, case.model.hidden, more, implementation=case.implementation)) <= working * (1 + 1e-12)
        previous = now


@examples(40)
@given(cases())
def test_columns_keep_what_scalars_keep(case):
    kind, tps = case.model.kinds[0], np.array([1, 2, 3, 4, 8])
    column = work_shape(
        microbatch_sequences=2, sequence_tokens=case.batch.sequence_tokens, tensor_parallel=tps, sequence_parallel=1
    )
    together = saved_bytes(
        kind,
        case.model.hidden,
        case.batch.sequence_tokens,
        column,
        implementation=case.implementation,
        precision=case.training.precision,
    )
    for index, tp in enumerate(tps):
        alone = work_shape(
            microbatch_sequences=2, sequence_tokens=case.batch.sequence_tokens, tensor_parallel=tp, sequence_parallel=1
        )
        assert _saved(case, kind, alone) == np.broadcast_to(together, tps.shape)[index]


@pytest.mark.parametrize(("stages", "tensor_nodes", "nodes", "share"), [
    (1, 1, 1, 1.0), (1, 4, 64, 1.0), (2, 1, 1, 0.0), (4, 1, 0, 0.5), (8, 1, 0, 0.75), (8, 2, 0, 0.75 * 2 / 3),
    (8, 1, 32, 0.75 * 0.75), (8, 4, 0, 0.0), (8, 1, 64, 0.0), (8, 8, 128, 0.0),
])
def test_whole_tensors_pile_up_as_far_as_the_host_runs_ahead(stages, tensor_nodes, nodes, share):
    """0.8 run ahead, 4 bytes streamed of 1,000 tokens of 100 features, 5 layers, 3 in flight: 4.8 MB at full rate."""
    case = small_case()
    found = piled_bytes(
        100, work_shape(microbatch_sequences=1, sequence_tokens=1000, tensor_parallel=np.array([1, 2])),
        implementation=replace(case.implementation, streamed_bytes=4.0), layers=np.array(5.0), in_flight=np.array(3.0),
        pipeline_parallel=np.array(float(stages)), tensor_nodes=np.array(float(tensor_nodes)), nodes=np.array(float(nodes)),
        run_ahead_ratio=0.8,
    )
    assert found == pytest.approx([0.0, 4.8e6 * share])
