"""Linear mixers and sparse attention: work as frameworks print it, weights and bytes by hand, what degrees divide."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.catalog import implementation, load_model
from meshwright.catalog.recipes import precision
from meshwright.domain.attention import Attention
from meshwright.domain.mixers import GatedDelta, KimiDelta, Lightning, Mamba, Mamba2, Mixer, ShortConvolution
from meshwright.domain.model import LayerKind, Model
from meshwright.perf.activations import checkpoint_bytes, saved_bytes
from meshwright.perf.attention import attended_pairs, core_pairs, index_flops
from meshwright.perf.exchange import mixer_context_s
from meshwright.perf.flops import sequence_flops
from meshwright.perf.mixers import chunk_flops, mixer_weights, recurrence_flops
from meshwright.perf.operators import layer_products, mixer_products, work_shape
from meshwright.perf.parameters import layer_parameters, total_parameters
from meshwright.perf.placement import layer_groups
from strategies import examples, small_case

MIXERS: tuple[Mixer, ...] = (
    GatedDelta(key_heads=4, value_heads=8, key_dim=32, value_dim=64),
    KimiDelta(num_heads=8, head_dim=32, decay_rank=16, gate_rank=16), KimiDelta(num_heads=8, head_dim=32),
    Mamba2(num_heads=8, head_dim=64, state_dim=32, num_groups=4), Mamba(width=512, state_dim=16, step_rank=8, inner_norms=True),
    Lightning(num_heads=8, head_dim=32, query_key_norm=True), ShortConvolution(width=256, bias=True),
)
HIDDEN = 256


def of_one_layer(kind: LayerKind) -> Model:
    return Model(name="one", hidden=HIDDEN, vocabulary=64, kinds=(kind,), pattern=(0,))


@examples(30)
@given(st.sampled_from(MIXERS), st.sampled_from((1, 2, 4)))
def test_ranks_together_hold_the_whole_mixer(mixer: Mixer, tp: int) -> None:
    model = of_one_layer(LayerKind(mixer=mixer, norms=1))
    counts = layer_parameters(model, model.kinds[0], tp=tp)
    assert counts.sharded * tp + counts.replicated == layer_parameters(model, model.kinds[0]).total


@examples(30)
@given(st.sampled_from(MIXERS), st.sampled_from((1, 2, 4)), st.sampled_from((0, 1)), st.sampled_from((1, 2)))
def test_products_of_ranks_are_those_of_one(mixer: Mixer, tp: int, sequence_parallel: int, cp: int) -> None:
    def work(tp: int, sp: int, cp: int) -> float:
        shape = work_shape(
            microbatch_sequences=2, sequence_tokens=512, tensor_parallel=tp, sequence_parallel=sp, context_parallel=cp
        )
        return sum(float(product.flops) for product in mixer_products(mixer, HIDDEN, shape))

    low_rank = isinstance(mixer, KimiDelta) and mixer.decay_rank is not None and not sequence_parallel
    whole, part = work(1, 0, 1), work(tp, sequence_parallel, cp) * tp * cp
    assert part == pytest.approx(whole) if not low_rank else whole <= part <= 1.5 * whole


def test_weights_and_products_say_the_same_of_the_projections() -> None:
    for mixer in MIXERS:
        shape = work_shape(microbatch_sequences=1, sequence_tokens=1)
        products = sum(float(each.flops) / 2.0 for each in mixer_products(mixer, HIDDEN, shape))
        taps = mixer.convolution * mixer.convolved_width
        small = sum(mixer_weights(mixer, HIDDEN)) - products - taps
        assert 0 <= small < 0.12 * products, mixer


def test_gated_delta_flops_are_those_that_megatron_prints() -> None:
    mixer = GatedDelta(key_heads=16, value_heads=32, key_dim=128, value_dim=128)
    qk, v, hidden = 16 * 128, 32 * 128, 2048
    printed = 2 * (hidden * (2 * qk + 2 * v + 2 * 32) + 4 * (2 * qk + v) + 32 * 128**2 * 4 + hidden * v)
    shape = work_shape(microbatch_sequences=1, sequence_tokens=1)
    ours = sum(float(each.flops) for each in mixer_products(mixer, hidden, shape)) + recurrence_flops(mixer)
    assert ours == printed


def test_mamba2_flops_are_those_that_megatron_prints() -> None:
    mixer = Mamba2(num_heads=64, head_dim=64, state_dim=128, num_groups=8)
    inner, hidden = 64 * 64, 2688
    printed = 2 * hidden * (2 * inner + 2 * 8 * 128 + 64) + 7 * inner * 128 + 2 * inner * hidden
    shape = work_shape(microbatch_sequences=1, sequence_tokens=1)
    ours = sum(float(each.flops) for each in mixer_products(mixer, hidden, shape)) + recurrence_flops(mixer)
    assert ours == printed


def test_flops_of_a_hybrid_are_linear_in_its_recurrence_and_square_in_its_attention() -> None:
    model = load_model("qwen3-next-80b-a3b")
    short, long = (sequence_flops(model, tokens, convention="causal") for tokens in (4096, 8192))
    linear = 36 * recurrence_flops(model.mixers[0])
    square = 12 * 2 * 16 * (256 + 256) / 2
    for tokens, found in ((4096, short), (8192, long)):
        assert found.attention == pytest.approx(tokens * linear + square * tokens**2)
    assert long.products == pytest.approx(2 * short.products)


def test_saved_bytes_of_a_mamba2_layer_by_hand() -> None:
    mixer = Mamba2(num_heads=8, head_dim=64, state_dim=32, num_groups=4)
    shape = work_shape(microbatch_sequences=1, sequence_tokens=1024, tensor_parallel=2, sequence_parallel=1)
    kept = saved_bytes(
        LayerKind(mixer=mixer, norms=1), HIDDEN, 1024, shape, implementation=implementation("megatron-te"),
        precision=precision("bf16"),
    )
    inner, groups = 512, 4 * 32
    outside = 2 * 2 * HIDDEN / 2  # input of the norm and of the projection, on shards of the sequence
    inside = 2 * ((inner + 2 * groups) + inner + 8 + inner + inner) / 2  # x, B, C; gate; steps; out of the scan; into the output
    assert float(kept) == 1024 * (outside + inside)


def test_a_delta_rule_keeps_more_than_a_state_space_of_its_size() -> None:
    delta = GatedDelta(key_heads=8, value_heads=8, key_dim=64, value_dim=64)
    plain = Mamba2(num_heads=8, head_dim=64, state_dim=64, num_groups=8)
    assert delta.state_elements == plain.state_elements
    shape = work_shape(microbatch_sequences=1, sequence_tokens=1024)
    kept = [
        float(saved_bytes(LayerKind(mixer=mixer, norms=1), HIDDEN, 1024, shape, implementation=implementation("megatron-te"),
                          precision=precision("bf16")))
        for mixer in (delta, plain)
    ]
    assert kept[0] > 1.5 * kept[1]
    assert chunk_flops(delta)[0] > chunk_flops(plain)[0] / 8


def test_residual_streams_multiply_what_recomputation_keeps() -> None:
    shape = work_shape(microbatch_sequences=1, sequence_tokens=1024)
    assert float(checkpoint_bytes(HIDDEN, shape, streams=4)) == 4 * float(checkpoint_bytes(HIDDEN, shape))


@examples(30)
@given(st.integers(1, 65536), st.sampled_from(("deepseek-v3.2", "deepseek-v4-flash", "deepseek-v4-pro", "glm-5")))
def test_sparse_attention_never_looks_at_more_than_all(tokens: int, name: str) -> None:
    for attention in load_model(name).attentions:
        pairs = float(core_pairs(attention, tokens, None))
        windowed = float(attended_pairs(tokens, attention.window_tokens, None))
        entries = tokens**2 / 2 / attention.compressed.rate if attention.compressed and attention.compressed.rate else 0.0
        assert pairs <= (windowed + entries) * (1 + 1e-12)
        if attention.selected_tokens and not attention.compressed:
            assert pairs <= tokens * attention.selected_tokens
        assert float(index_flops(attention, tokens, None)) >= 0.0


def test_selected_tokens_by_hand() -> None:
    attention = Attention(num_heads=4, num_key_value_heads=4, head_dim=64, selected_tokens=2048)
    assert float(core_pairs(attention, 8192, None)) == 8192 * 2048 - 2048**2 / 2
    assert float(core_pairs(attention, 1024, None)) == 1024**2 / 2
    assert float(core_pairs(attention, 8192, None, causal=False)) == 8192**2


def test_latent_experts_travel_and_multiply_in_their_latent_space() -> None:
    model = load_model("nemotron-3-super-120b-a12b")
    kind = next(kind for kind in model.kinds if kind.experts)
    assert kind.experts is not None
    shape = work_shape(microbatch_sequences=1, sequence_tokens=8192, expert_parallel=8)
    rows = {product.name: product for product in layer_products(kind, model.hidden, shape)}
    assert float(rows["experts in"].inner) == kind.experts.latent == 1024
    assert float(rows["latent of experts"].columns) == 1024
    plain = replace(model, kinds=tuple(
        replace(each, feed_forward=replace(each.experts, latent=None)) if each.experts else each for each in model.kinds
    ))
    assert total_parameters(plain) > 3 * total_parameters(model)


def test_mixers_exchange_heads_under_context_parallelism_only() -> None:
    case = small_case("nemotron-3-nano-30b-a3b", devices=8)
    mixer = case.model.mixers[0]
    cp = np.array([1.0, 2.0, 4.0])
    shape = work_shape(microbatch_sequences=1, sequence_tokens=8192, context_parallel=cp)
    groups = layer_groups(1.0, cp, 1.0, 1.0, 8.0, 1.0, case.cluster)
    found = mixer_context_s(mixer, case, shape, groups)
    assert found.forward[0] == 0.0
    assert (found.forward[1:] > 0.0).all()
    assert (found.forward == found.backward).all()
