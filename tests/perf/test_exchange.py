"""What context parallelism leaves exposed and launches, by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from meshwright.perf import pieces
from meshwright.perf.arrays import array
from meshwright.perf.elementwise import memory_bound_s
from meshwright.perf.exchange import context_s
from meshwright.perf.launches import kernels
from meshwright.perf.operators import work_shape
from meshwright.perf.placement import layer_groups
from strategies import small_case

SEQUENCE, TENSOR, CONTEXT, DOMAIN = 32768, 2, 8, 4


def _slow(domain: int):
    """A cluster whose links are slow enough that no attention hides a block: every second of sending is exposed."""
    case = small_case("llama2-7b", devices=TENSOR * CONTEXT, batch=1, sequence=SEQUENCE)
    links = {"scale_up_devices": domain, "oversubscription": 1.0}
    network = replace(case.cluster.network, bytes_per_s=1e9, latency_s=1e-3)
    constants = replace(case.calibration.constants, fabric_slope=0.0)
    case = replace(case, cluster=replace(case.cluster, network=network, **links))
    return replace(case, calibration=replace(case.calibration, constants=constants))


def _exposed(case, context_kind, core_forward, core_backward):
    shape = work_shape(microbatch_sequences=1, sequence_tokens=SEQUENCE, tensor_parallel=TENSOR, context_parallel=CONTEXT)
    groups = layer_groups(TENSOR, CONTEXT, 1, 1, TENSOR * CONTEXT, 1, case.cluster)
    core = array(core_forward), array(core_backward)
    found = context_s(case.model.kinds[0], case, shape, groups, *core, context_kind=context_kind)
    return float(found.forward), float(found.backward)


def test_a_ring_sends_keys_and_values_forward_and_their_gradients_too_backward():
    """Every step but the last takes latency + bytes / rate, less the share of the core that runs meanwhile."""
    case, core = _slow(1), (0.08, 0.16)
    attention, constants = case.model.attention, case.calibration.constants
    tokens, steps = SEQUENCE / CONTEXT, CONTEXT - 1
    block = 2 * tokens * (attention.num_key_value_heads / TENSOR) * 2 * attention.head_dim
    rate = 1e9 * constants.network_ratio
    output = tokens * attention.num_heads * attention.head_dim / TENSOR
    correction = steps * (float(memory_bound_s(10 * output, case.cluster.device, constants)) + 4 * constants.kernel_gap_s)
    expected = [
        steps * (1e-3 + size / rate - seconds / CONTEXT) + correction
        for size, seconds in zip((block, 2 * block), core, strict=True)
    ]
    assert _exposed(case, "ring", *core) == pytest.approx(expected, rel=1e-12)


def test_the_ring_of_the_hybrid_kind_runs_between_domains():
    """Four domains of two context ranks each: three steps between them on top of the exchange inside."""
    case = _slow(DOMAIN)
    without = _exposed(case, "hybrid", 1e9, 1e9)
    with_ring = _exposed(case, "hybrid", 0.0, 0.0)
    attention, domains = case.model.attention, CONTEXT * TENSOR // DOMAIN
    block = 2 * SEQUENCE / CONTEXT * (attention.num_key_value_heads / TENSOR) * 2 * attention.head_dim
    groups = layer_groups(TENSOR, CONTEXT, 1, 1, TENSOR * CONTEXT, 1, case.cluster)
    assert (float(groups.context.local), float(groups.context.domains)) == (2, domains)
    rate = 1e9 * case.calibration.constants.network_ratio
    expected = [(domains - 1) * (1e-3 + size / rate) for size in (block, 2 * block)]
    assert [ring - bare for ring, bare in zip(with_ring, without, strict=True)] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("kind", "steps"), [("ring", (0, 1, 7)), ("all-gather", (0, 0, 0)), ("ulysses", (0, 0, 0))])
def test_a_ring_launches_kernels_at_every_step_but_the_first(kind, steps):
    case = small_case(sequence=SEQUENCE)
    implementation = replace(
        case.implementation, kernels_forward=20, kernels_backward=30, kernels_ring_forward=5, kernels_ring_backward=7
    )
    shape = work_shape(microbatch_sequences=1, sequence_tokens=SEQUENCE, context_parallel=np.array([1, 2, 8]))
    forward, backward = kernels(case.model.kinds[0], replace(case, implementation=implementation), shape, kind)
    assert np.broadcast_to(forward, 3).tolist() == [20 + 5 * each for each in steps]
    assert np.broadcast_to(backward, 3).tolist() == [30 + 7 * each for each in steps]


def test_a_measured_core_takes_as_many_times_longer_as_was_measured_each_way(monkeypatch):
    case = small_case(sequence=SEQUENCE)
    shape = work_shape(microbatch_sequences=1, sequence_tokens=SEQUENCE)
    plain = pieces.attention_core_s(case.model.kinds[0], case, shape)
    monkeypatch.setattr(pieces, "core_ratios", lambda *_, **__: (1.5, 3.0))
    measured = replace(case, cluster=replace(case.cluster, measured=SimpleNamespace(cores=("any",))))
    found = pieces.attention_core_s(case.model.kinds[0], measured, shape)
    assert [float(each) for each in found] == pytest.approx([1.5 * float(plain[0]), 3.0 * float(plain[1])], rel=1e-12)
