"""What a recomputation runs again, from single products and passes; what context parallelism sends; what power leaves of a peak."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.catalog import device, priors
from meshwright.catalog.calibrations import MATRIX_UNITS
from meshwright.perf.arrays import array
from meshwright.perf.exchange import context_s
from meshwright.perf.operators import work_shape
from meshwright.perf.pieces import layer_pieces, products_of
from meshwright.perf.placement import layer_groups
from meshwright.perf.product_times import product_s
from strategies import small_case


def pieces_of(name: str, **changes):
    case = small_case(implementation=name)
    case = replace(case, implementation=replace(case.implementation, **changes))
    kind, shape = case.model.kinds[0], work_shape(microbatch_sequences=2, sequence_tokens=case.batch.sequence_tokens)
    products: dict[str, list[float]] = {}
    for each in products_of(kind, case, shape):
        products.setdefault(each.name, []).append(float(product_s(each, case, "forward")))
    return layer_pieces(kind, case, shape), products


def test_the_policy_by_operator_runs_every_second_product_and_every_pass_again_and_keeps_attention():
    pieces, products = pieces_of("torchtitan")
    assert list(products) == ["query projection", "key projection", "value projection", "output projection", "mlp in", "mlp out"]
    again = products["key projection"][0] + products["output projection"][0] + products["mlp in"][1]
    assert float(pieces.forward_of["op"]) == pytest.approx(again + float(pieces.elementwise_forward))


@pytest.mark.parametrize(("name", "whole"), [("jax", False), ("torchtitan", False), ("megatron-te", True)])
def test_a_feed_forward_block_ends_early_where_nothing_needs_its_last_product(name, whole):
    pieces, products = pieces_of(name, passes=())
    assert float(pieces.forward_of["mlp"]) == pytest.approx(sum(products["mlp in"]) + whole * products["mlp out"][0])


def test_the_output_projection_is_a_module_of_its_own():
    pieces, products = pieces_of("jax")
    assert float(pieces.forward_of["attn_proj"]) == pytest.approx(products["output projection"][0])


@pytest.mark.parametrize(("name", "share"), [("h100-96g", 500 / 700), ("a100-80g-pcie", 300 / 400), ("h100-pcie", 350 / 535)])
def test_matrix_units_follow_the_cube_root_of_power_and_memory_does_not(name, share):
    limited = device(name)
    free = replace(limited, peak_power_w=0.0)
    own, kin = priors(limited).constants, priors(free).constants
    for constant in MATRIX_UNITS:
        assert getattr(own, constant) == pytest.approx(getattr(kin, constant) * share ** (1 / 3))
    assert own.memory_ratio == kin.memory_ratio
    assert priors(replace(limited, power_w=10 * limited.power_w)).constants == kin


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("context_kind", ["ring", "all-gather"])
def test_repeated_keys_travel_as_if_every_query_head_had_its_own(tp, context_kind):
    repeats, once = small_case(implementation="torchtitan-2024"), small_case(implementation="torchtitan")
    kind = repeats.model.kinds[0]
    all_heads = replace(kind, attention=replace(kind.attention, num_key_value_heads=kind.attention.num_heads))
    shape = work_shape(microbatch_sequences=1, sequence_tokens=65536, tensor_parallel=tp, context_parallel=4)
    groups = layer_groups(tp, 4, 1, 1, 8, 1, repeats.cluster)

    def exchanged(kind, case):
        found = context_s(kind, case, shape, groups, array(0.0), array(0.0), context_kind=context_kind)
        return float(found.forward), float(found.backward)

    assert exchanged(kind, repeats) == pytest.approx(exchanged(all_heads, once))
    assert exchanged(kind, repeats) > exchanged(kind, once)
