"""FLOPs against published formulas: Narayanan's, 6 N, LoRA's 4 N, MFU and HFU in three conventions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meshwright.catalog import load_model
from meshwright.domain.layout import Full, Layout, Selective
from meshwright.domain.model import Model
from meshwright.estimate import estimate, model_flops
from meshwright.perf.attention import attended_pairs
from meshwright.perf.flops import CONVENTIONS, sequence_flops, training_flops
from meshwright.perf.operators import layer_products, work_shape
from meshwright.perf.parameters import layer_parameters
from strategies import EVERYTHING, cases, examples, models, planned, small_case

BATCH, SEQUENCE, VOCABULARY = 1536, 2048, 51200


def _gpt3():
    return small_case("gpt3-175b", "a100-80g-sxm", devices=64, batch=BATCH, sequence=SEQUENCE, implementation="megatron-2022")


def _gpt3_layout(recompute) -> Layout:
    return Layout(tensor_parallel=8, sequence_parallel=True, pipeline_parallel=8, num_microbatches=BATCH, recompute=recompute)


def test_gpt3_model_flops_are_narayanans_formula_exactly():
    h, layers = 12288, 96
    expected = 72 * BATCH * SEQUENCE * layers * h**2 * (1 + SEQUENCE / (6 * h) + VOCABULARY / (12 * layers * h))
    assert model_flops(_gpt3(), "full") == pytest.approx(expected, rel=1e-14)
    assert model_flops(_gpt3(), "megatron") == pytest.approx(expected, rel=1e-14)


def test_gpt3_hardware_flops_with_full_recompute_are_narayanans_formula_exactly():
    h, layers = 12288, 96
    expected = 96 * BATCH * SEQUENCE * layers * h**2 * (1 + SEQUENCE / (6 * h) + VOCABULARY / (16 * layers * h))
    case = replace(_gpt3(), flops_convention="full")
    found = estimate(case, _gpt3_layout(Full()))
    assert found.hardware_flops_per_s_per_device * found.step_s * 64 == pytest.approx(expected, rel=1e-12)


def test_gpt3_hardware_flops_with_selective_recompute_add_one_attention_core():
    """72 B s l h^2 (1 + s/3h + ...) of Korthikanti et al. 2022, appendix A: the two batched products run once more."""
    h, layers = 12288, 96
    expected = 72 * BATCH * SEQUENCE * layers * h**2 * (1 + SEQUENCE / (6 * h) + VOCABULARY / (12 * layers * h))
    expected += BATCH * layers * 4 * SEQUENCE**2 * h
    found = estimate(replace(_gpt3(), flops_convention="full"), _gpt3_layout(Selective()))
    assert found.hardware_flops_per_s_per_device * found.step_s * 64 == pytest.approx(expected, rel=1e-12)


def test_hardware_flops_of_other_modules_are_their_products_alone():
    case = small_case(layers=4, devices=1, batch=8)
    layout, kind = Layout(num_microbatches=8), case.model.kinds[0]

    def hardware(*modules: str) -> float:
        found = estimate(case, replace(layout, recompute=Selective(modules=modules)))
        return found.hardware_flops_per_s_per_device * found.step_s

    assert hardware("layernorm") == pytest.approx(model_flops(case), rel=1e-14)
    block = 8 * 4 * 2 * 2048 * 3 * 4096 * kind.feed_forward.width
    assert hardware("mlp") == pytest.approx(model_flops(case) + block, rel=1e-14)


def test_causal_attention_is_half_of_full_and_the_products_are_the_same():
    model = _gpt3().model
    full, causal = (sequence_flops(model, SEQUENCE, convention=name) for name in ("full", "causal"))
    assert causal.attention * 2 == full.attention == 96 * 4 * SEQUENCE**2 * 12288
    assert (causal.products, causal.head) == (full.products, full.head)


def test_the_megatron_convention_counts_the_padded_vocabulary():
    case = small_case("gpt2", devices=1, batch=1, sequence=1024)
    padded = sequence_flops(case.model, 1024, convention="megatron", vocabulary=50304).head
    assert padded == 2 * 1024 * 768 * 50304
    assert model_flops(case, "megatron") - model_flops(case, "full") == pytest.approx(3 * 2 * 1024 * 768 * (50304 - 50257))


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_mfu_is_model_flops_over_time_and_peak_in_every_convention(convention):
    case = replace(small_case(layers=4, devices=8), flops_convention=convention)
    found = estimate(case, Layout(tensor_parallel=8, sequence_parallel=True, num_microbatches=16, recompute=Full()))
    assert found.flops_convention == convention
    assert found.peak_flops_per_s == 989e12 or found.peak_flops_per_s == pytest.approx(989e12, rel=1e-3)
    assert found.mfu_ratio == pytest.approx(model_flops(case, convention) / found.step_s / 8 / found.peak_flops_per_s, rel=1e-12)
    forward = sequence_flops(case.model, 2048, convention=convention, vocabulary=128256 if convention == "megatron" else None)
    again = 16 * (forward.products + forward.attention)
    assert found.hfu_ratio / found.mfu_ratio == pytest.approx(1 + again / model_flops(case, convention), rel=1e-9)


def test_hfu_equals_mfu_without_recompute():
    found = estimate(small_case(layers=4), Layout(data_parallel=8, num_microbatches=2))
    assert found.hfu_ratio == found.mfu_ratio


def _matrix_parameters(model: Model) -> float:
    """Parameters in products with activations: all layers' weights of two dimensions, from the parameter count."""
    shape = work_shape(microbatch_sequences=1, sequence_tokens=1)
    per_kind = [
        sum(
            float(each.inner * each.columns * (kind.experts.experts_per_token if each.part == "experts" else 1))
            for each in layer_products(kind, model.hidden, shape)
        )
        for kind in model.kinds
    ]
    return sum(per_kind[index] for index in model.pattern)


@pytest.mark.parametrize("name", ["llama3-8b", "llama3-70b", "gpt3-175b", "mixtral-8x7b", "deepseek-v3", "gemma2-9b"])
def test_products_are_two_flops_per_active_parameter_and_token(name):
    case = small_case(name)
    flops = sequence_flops(replace(case.model, num_mtp_layers=0), 4096, convention="full")
    assert flops.products == pytest.approx(2 * 4096 * _matrix_parameters(case.model), rel=1e-12)


@examples(60)
@given(models())
def test_matrices_of_products_are_the_parameters_of_the_layer(model):
    """Weights counted by the products and by the parameter count differ by what no product has: norms, biases, sinks, gates."""
    shape = work_shape(microbatch_sequences=1, sequence_tokens=1)
    for kind in model.kinds:
        matrices = 0.0
        for each in layer_products(kind, model.hidden, shape):
            matrices += float(each.inner * each.columns) * (kind.experts.num_experts if each.part == "experts" else 1)
        attention, block = kind.attention, kind.feed_forward
        bare = replace(
            kind,
            norms=0,
            attention=replace(
                attention, query_key_norm="none", query_bias=False, key_value_bias=False, output_bias=False, sinks=False
            ),
        )
        block = (
            replace(block, router_bias=False, expert_bias=False, shared_gate=False) if kind.experts else replace(block, bias=False)
        )
        counted = layer_parameters(replace(model, norm="none"), replace(bare, feed_forward=block))
        latent = attention.latent
        latent_norms = latent.key_value_rank + (latent.query_rank or 0) if latent else 0
        assert matrices + latent_norms == int(counted.total)


def test_six_n_plus_attention_is_the_rule_for_llama3_70b():
    case = small_case("llama3-70b", batch=1, sequence=8192)
    model, s = case.model, 8192
    n = _matrix_parameters(model) + model.hidden * model.vocabulary
    assert model_flops(case, "full") == pytest.approx(s * (6 * n + 12 * 80 * s * 64 * 128), rel=1e-14)
    assert model_flops(case, "causal") == pytest.approx(s * (6 * n + 6 * 80 * s * 64 * 128), rel=1e-14)


def test_lora_leaves_out_the_weight_gradients_of_frozen_weights():
    whole, frozen = (model_flops(small_case("llama3-70b", batch=1, sequence=64, task=task)) for task in ("sft", "lora"))
    assert frozen / whole == pytest.approx(2 / 3, rel=0.002)


def test_mtp_layers_count_as_layers_and_a_further_output_layer():
    model = small_case("deepseek-v3").model
    assert model.num_mtp_layers == 1
    without = sequence_flops(replace(model, num_mtp_layers=0), 4096, convention="causal")
    whole = sequence_flops(model, 4096, convention="causal")
    assert whole.head == 2 * without.head
    layer = sequence_flops(replace(model, num_mtp_layers=0, pattern=(*model.pattern, model.pattern[-1])), 4096, convention="causal")
    assert whole.attention == pytest.approx(layer.attention, rel=1e-15)
    assert whole.products == pytest.approx(layer.products + 2 * 4096 * 2 * model.hidden**2, rel=1e-15)


def test_windows_and_packing_cut_the_attention_of_the_causal_convention_only():
    assert float(attended_pairs(1000, None, None)) == 500_000
    assert float(attended_pairs(1000, 100, None)) == 1000 * 100 - 100**2 / 2
    assert float(attended_pairs(1000, 5000, None)) == 500_000
    assert float(attended_pairs(1000, None, 4 * 250.0**2)) == 125_000
    assert float(attended_pairs(1000, 100, 4 * 250.0**2, causal=False)) == 250_000


@examples(60)
@given(st.integers(1, 10**6), st.one_of(st.none(), st.integers(1, 10**6)), st.floats(0.0, 1.0))
def test_no_mask_attends_to_more_than_the_causal_half(sequence, window, share):
    packed = max(1.0, share * float(sequence) ** 2)
    pairs = float(attended_pairs(sequence, window, packed))
    assert 0 < pairs <= sequence**2 / 2
    assert pairs <= packed / 2


@examples(60)
@given(cases(), st.data())
def test_work_of_all_ranks_is_the_work_of_the_model(case, data):
    """Products of one rank times ranks: nothing is lost, and only what is duplicated is more."""
    model, kind = case.model, case.model.kinds[0]
    tp = data.draw(
        st.sampled_from(
            [
                t
                for t in (1, 2, 3, 4)
                if all(k.attention.num_key_value_heads % t == 0 and k.attention.num_heads % t == 0 for k in model.kinds)
            ]
        )
    )
    cp = data.draw(st.sampled_from((1, 2, 4)))
    ep = data.draw(st.sampled_from([e for e in (1, 2, 4) if kind.experts is None or kind.experts.num_experts % e == 0]))
    etp = data.draw(st.sampled_from([e for e in (1, 2, 3, 4) if tp % e == 0]))
    one = work_shape(microbatch_sequences=2, sequence_tokens=64)
    split = work_shape(
        microbatch_sequences=2,
        sequence_tokens=64,
        tensor_parallel=tp,
        sequence_parallel=1,
        context_parallel=cp,
        expert_parallel=ep,
        expert_tensor_parallel=etp,
    )
    whole = sum(float(each.flops) for each in layer_products(kind, model.hidden, one))
    shares = sum(float(each.flops) for each in layer_products(kind, model.hidden, split))
    assert shares * tp * cp == pytest.approx(whole, rel=1e-12)


def test_experts_without_sequence_parallelism_are_not_computed_more_often_with_expert_tensor_parallelism():
    kind, hidden = small_case("mixtral-8x7b").model.kinds[0], 4096

    def experts(sp: int, etp: int) -> float:
        shape = work_shape(
            microbatch_sequences=1, sequence_tokens=1024, tensor_parallel=4, sequence_parallel=sp, expert_tensor_parallel=etp
        )
        return sum(float(each.flops) for each in layer_products(kind, hidden, shape) if each.part == "experts")

    assert experts(1, 4) == experts(1, 1) == experts(0, 4)
    assert experts(0, 1) == 4 * experts(0, 4)


@examples(40)
@given(planned(EVERYTHING))
def test_no_step_is_faster_than_its_flops_at_the_peak(pair):
    case, layout = pair
    found = estimate(case, layout)
    fastest = max(case.cluster.device.peak_flops_per_s.values())
    causal = model_flops(case, "causal")
    assume(np.isfinite(causal))
    assert found.step_s >= causal / layout.world / fastest
    assert 0 < model_flops(case, "causal") <= model_flops(case, "full") <= model_flops(case, "megatron")
    per_sequence = training_flops(sequence_flops(case.model, case.batch.sequence_tokens, convention="full"))
    assert per_sequence * case.batch.global_batch_sequences >= model_flops(case, "full")


GLM = {2048: 285.94, 4096: 304.04, 8192: 313.36, 131072: 332.92, 200000: 339.37}
"""GFLOP a token of GLM-5.2 by tokens of a sequence, as Megatron-Bridge prints them (rows of the corpus: TFLOP/s over tokens/s)."""


@pytest.mark.parametrize("tokens", GLM)
def test_sparse_latent_attention_is_counted_as_its_framework_prints_it(tokens):
    model = load_model("glm-5.2")
    ours = training_flops(sequence_flops(model, tokens, convention="causal")) / tokens
    projection = 3 * 4 * model.hidden**2  # of the layer that predicts a further token, which the source leaves out
    assert ours - projection == pytest.approx(GLM[tokens] * 1e9, rel=1e-3)


def test_a_frozen_indexer_has_no_loss():
    forward = sequence_flops(load_model("glm-5.2"), 8192, convention="causal")
    trained, frozen = forward.indexers
    assert frozen < 0
    assert trained > frozen
    assert sequence_flops(load_model("deepseek-v3"), 8192, convention="causal").indexers == (0, 0)
