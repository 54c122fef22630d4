"""Time of products, attention and elementwise work: bounded below by peak and bandwidth, growing with size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.perf.attention import attended_pairs, attention_flops, flash_attention_s
from meshwright.perf.elementwise import launch_floor_s, memory_bound_s
from meshwright.perf.gemm import gemm_s, grouped_gemm_s, sustained_ratio
from strategies import examples, small_case

CASE = small_case()
DEVICE, CONSTANTS = CASE.cluster.device, CASE.calibration.constants
OPTIONS = {"device": DEVICE, "constants": CONSTANTS, "dtype": "bf16"}
sizes = st.integers(1, 40_000)


def gemm_flops(m, n, k):
    return 2.0 * m * n * k


def test_a_huge_product_runs_at_the_sustained_share_of_the_peak():
    rate = float(gemm_flops(65536, 65536, 65536) / gemm_s(65536, 65536, 65536, **OPTIONS))
    assert rate == pytest.approx(CONSTANTS.gemm_ratio * DEVICE.peak_flops_per_s["bf16"], rel=0.01)


def test_a_thin_product_is_bound_by_memory():
    time = float(gemm_s(1, 8192, 8192, **OPTIONS))
    assert time == pytest.approx(2 * 8192 * 8192 / (DEVICE.memory_bytes_per_s * CONSTANTS.memory_ratio), rel=0.01)


@examples(100)
@given(sizes, sizes, sizes, st.sampled_from(("bf16", "fp16", "fp8")), st.integers(1, 64))
def test_no_product_beats_the_peak_or_the_memory(m, n, k, dtype, count):
    time = float(gemm_s(m, n, k, count=count, device=DEVICE, constants=CONSTANTS, dtype=dtype))
    peak = DEVICE.peak_flops_per_s[dtype] * sustained_ratio(CONSTANTS, dtype)
    assert time >= count * float(gemm_flops(m, n, k)) / peak * (1 - 1e-12)
    assert time >= count * 2 * (m * k + k * n + m * n) / DEVICE.memory_bytes_per_s
    assert np.isfinite(time)
    assert time > 0


@examples(100)
@given(sizes, sizes, sizes, st.sampled_from("mnk"), st.integers(1, 5000))
def test_larger_products_take_no_less_time(m, n, k, side, more):
    larger = {"m": m, "n": n, "k": k}
    larger[side] += more
    assert float(gemm_s(**larger, **OPTIONS)) >= float(gemm_s(m, n, k, **OPTIONS)) * (1 - 1e-12)


@examples(60)
@given(st.integers(1, 4000), sizes, sizes, st.integers(1, 64))
def test_a_grouped_product_is_never_faster_than_one_product_of_all_rows(m, n, k, groups):
    assert float(grouped_gemm_s(m, n, k, groups=groups, **OPTIONS)) >= float(gemm_s(m * groups, n, k, **OPTIONS)) * (1 - 1e-12)


def test_a_group_loses_a_share_of_one_wave_at_most():
    g = float(CONSTANTS.grouped_gemm_ratio)
    small = float(grouped_gemm_s(64, 768, 2048, groups=8, **OPTIONS))
    assert small == pytest.approx(float(gemm_s(64, 768, 2048, count=8, **OPTIONS)) / g)
    losses = []
    for m in (8192, 65536):
        dense = float(gemm_s(m, 32768, 6144, count=8, **OPTIONS))
        losses.append(float(grouped_gemm_s(m, 32768, 6144, groups=8, **OPTIONS)) - dense)
    assert losses[0] == pytest.approx(losses[1])
    assert 0 < losses[1] < 0.001 * dense


@examples(60)
@given(st.integers(1, 4000), sizes, sizes, st.integers(1, 64), st.sampled_from("mnk"), st.integers(1, 3000))
def test_larger_groups_take_no_less_time(m, n, k, groups, side, more):
    larger = {"m": m, "n": n, "k": k}
    larger[side] += more
    own = float(grouped_gemm_s(m, n, k, groups=groups, **OPTIONS))
    assert float(grouped_gemm_s(**larger, groups=groups, **OPTIONS)) >= own * (1 - 1e-12)


@examples(60)
@given(st.lists(st.tuples(sizes, sizes, sizes), min_size=1, max_size=20))
def test_columns_of_products_are_their_scalars(shapes):
    m, n, k = (np.array(side, dtype=float) for side in zip(*shapes, strict=True))
    column = gemm_s(m, n, k, **OPTIONS)
    assert [float(gemm_s(*shape, **OPTIONS)) for shape in shapes] == list(column)


@examples(80)
@given(st.integers(1, 10**6), st.integers(1, 256), st.sampled_from((16, 64, 128, 192, 256)), st.booleans())
def test_attention_stays_below_its_share_of_the_peak_and_backward_costs_more(sequence, heads, dim, windowed):
    pairs = attended_pairs(sequence, 128 if windowed else None, None)
    forward, backward = flash_attention_s(pairs, heads, sequence, key_dim=dim, value_dim=dim, device=DEVICE, constants=CONSTANTS)
    ideal = float(attention_flops(pairs, heads, dim, dim)) / DEVICE.peak_flops_per_s["bf16"]
    assert float(forward) >= ideal / CONSTANTS.attention_forward_ratio * (1 - 1e-12)
    assert float(backward) > float(forward)
    assert float(backward) >= 2.5 * ideal


def test_few_heads_and_short_sequences_leave_units_idle():
    def rate(heads, sequence):
        pairs = attended_pairs(sequence, None, None)
        forward, _ = flash_attention_s(pairs, heads, sequence, key_dim=128, value_dim=128, device=DEVICE, constants=CONSTANTS)
        return float(attention_flops(pairs, heads, 128, 128) / forward)

    assert rate(1, 512) < 0.2 * rate(64, 8192)


def test_elementwise_work_moves_its_bytes():
    assert float(memory_bound_s(1e9, DEVICE, CONSTANTS)) == 1e9 / (DEVICE.memory_bytes_per_s * CONSTANTS.memory_ratio)


def test_the_launch_floor_fills_up_to_the_host_and_graphs_lower_it():
    assert float(launch_floor_s(1.0, 100, CONSTANTS, graphs=False)) == 0.0
    assert float(launch_floor_s(0.0, 100, CONSTANTS, graphs=False)) == pytest.approx(100 * CONSTANTS.launch_s)
    assert float(launch_floor_s(0.0, 100, CONSTANTS, graphs=True)) < float(launch_floor_s(0.0, 100, CONSTANTS, graphs=False))


def test_a_data_type_that_the_device_lacks_is_an_error_and_not_another_type():
    bare = replace(DEVICE, peak_flops_per_s={"fp16": 1e14})
    with pytest.raises(KeyError):
        gemm_s(128, 128, 128, device=bare, constants=CONSTANTS, dtype="bf16")
    assert float(gemm_s(128, 128, 128, device=bare, constants=CONSTANTS, dtype="fp16")) > 0
