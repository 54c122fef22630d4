"""What tensor parallelism leaves exposed, by hand: which product each collective runs beside, and in how many bytes it travels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.catalog import precision
from meshwright.domain.layout import Overlap
from meshwright.perf.arrays import array
from meshwright.perf.collectives import all_gather_s, all_reduce_s, reduce_scatter_s
from meshwright.perf.exchange import Beside, tensor_s
from meshwright.perf.operators import layer_products, work_shape
from meshwright.perf.pieces import layer_pieces
from meshwright.perf.placement import layer_groups
from meshwright.perf.product_times import product_s
from strategies import small_case

TENSOR, SEQUENCE = 8, 4096
RATIO = 0.5


def _case(**options):
    case = small_case("llama2-7b", devices=TENSOR, batch=1, sequence=SEQUENCE, **options)
    constants = replace(case.calibration.constants, overlap_ratio=RATIO, contention_slowdown_scale_up=0.0)
    return replace(case, calibration=replace(case.calibration, constants=constants))


def _ground(case, *, sequence_parallel=True):
    shape = work_shape(
        microbatch_sequences=1, sequence_tokens=SEQUENCE, tensor_parallel=TENSOR, sequence_parallel=sequence_parallel
    )
    return shape, layer_groups(TENSOR, 1, 1, 1, TENSOR, 1, case.cluster)


def _times(case):
    """Gather, scatter and all-reduce of the hidden states of a micro-batch."""
    _, groups = _ground(case)
    payload, more = 2.0 * SEQUENCE * case.model.hidden, (groups.tensor, case.cluster, case.calibration.constants)
    sent = min(2.0, case.training.precision.saved_input_bytes) / 2.0
    return float(all_gather_s(sent * payload, *more)), float(reduce_scatter_s(payload, *more)), float(all_reduce_s(payload, *more))


def _exposed(case, mixing, feed_forward, *, tiles, products=1.0, sequence_parallel=True):
    shape, groups = _ground(case, sequence_parallel=sequence_parallel)
    beside = (_beside(*mixing), _beside(*feed_forward))
    return tensor_s(case.model.kinds[0], case, shape, groups, beside, array(products), overlap=Overlap(tensor=tiles))


def _beside(first_input, first_weight, last_input):
    return Beside(first_input=array(first_input), first_weight=array(first_weight), last_input=array(last_input))


def test_each_block_hides_what_it_sends_behind_its_own_products():
    case = _case()
    gather, scatter, _ = _times(case)
    found = _exposed(case, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), tiles=False)
    attention = gather + gather + scatter
    feed_forward = gather + (1.0 - RATIO) * (gather + scatter)
    assert float(found.backward) == pytest.approx(attention + feed_forward, rel=1e-12)
    assert float(found.forward) == pytest.approx(2.0 * (gather + scatter), rel=1e-12)


def test_tiles_hide_the_gradient_of_the_output_behind_the_last_product_too():
    case = _case()
    gather, scatter, _ = _times(case)
    found = _exposed(case, (1.0, 1.0, 1.0), (1.0, 1.0, 0.0), tiles=True)
    assert float(found.forward) == pytest.approx((1.0 - RATIO) * 2.0 * (gather + scatter), rel=1e-12)
    hidden = RATIO * (2.0 * (gather + scatter) + gather)
    assert float(found.backward) == pytest.approx(2.0 * (2.0 * gather + scatter) - hidden, rel=1e-12)


def test_without_sequence_parallelism_one_reduction_hides_behind_the_weight_gradient():
    case = _case()
    *_, reduce = _times(case)
    found = _exposed(case, (1.0, 0.0, 1.0), (0.0, 1.0, 0.0), tiles=False, sequence_parallel=False)
    assert float(found.backward) == pytest.approx(reduce + (1.0 - RATIO) * reduce, rel=1e-12)


@pytest.mark.parametrize(("name", "share"), [("bf16", 1.0), ("fp8-delayed", 0.5)])
def test_what_is_gathered_is_quantised_and_what_is_reduced_is_not(name, share):
    case = _case()
    plain = _times(replace(case, training=replace(case.training, precision=precision("bf16"))))
    case = replace(case, training=replace(case.training, precision=precision(name)))
    latency = float(all_gather_s(0.0, _ground(case)[1].tensor, case.cluster, case.calibration.constants))
    gather, scatter = latency + share * (plain[0] - latency), plain[1]
    found = _exposed(case, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), tiles=False)
    assert float(found.forward) == pytest.approx(2.0 * (gather + scatter), rel=1e-12)
    assert float(found.backward) == pytest.approx(2.0 * (2.0 * gather + scatter), rel=1e-12)


def test_the_windows_of_a_layer_are_its_first_and_last_products():
    case = _case()
    shape, _ = _ground(case)
    kind = case.model.kinds[0]
    products = {each.name: each for each in layer_products(kind, case.model.hidden, shape)}
    mixing, feed_forward = layer_pieces(kind, case, shape).beside
    for window, first, last in ((mixing, "qkv projection", "output projection"), (feed_forward, "mlp in", "mlp out")):
        assert float(window.first_input) == float(product_s(products[first], case, "input"))
        assert float(window.first_weight) == float(product_s(products[first], case, "weight"))
        assert float(window.last_input) == float(product_s(products[last], case, "input"))
