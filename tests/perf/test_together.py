"""What is evaluated side by side says of each what it says of one alone, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.catalog import priors
from meshwright.perf import gemm
from meshwright.perf.collectives import all_gather_s, all_reduce_s, of_tensor_s, reduce_scatter_s
from meshwright.perf.gemm import Linear, grouped_gemm_s, linear_s, linears_s
from meshwright.perf.placement import layer_groups
from meshwright.perf.schedules import ORDERS
from meshwright.perf.schedules.dependencies import operations
from meshwright.perf.schedules.levels import Lanes, levels_of
from strategies import clusters, small_case

SIDES = st.integers(1, 60_000)
LINEARS = st.fixed_dictionaries({
    "rows": SIDES | st.lists(SIDES, min_size=3, max_size=3).map(np.array), "columns": SIDES, "inner": SIDES,
    "direction": st.sampled_from(["forward", "input", "weight"]), "dtype": st.just("bf16"), "in_bytes": st.sampled_from([1.0, 2.0]),
    "groups": st.integers(1, 64), "grouped": st.booleans(),
}).map(lambda fields: Linear(**fields))
ORDERED = st.tuples(st.sampled_from(["1f1b", "gpipe", "zb1p"]), st.integers(1, 6), st.integers(1, 9))


@settings(deadline=None)
@given(asked=st.lists(LINEARS, min_size=1, max_size=9), block=st.sampled_from([1, 6, 2**11]))
def test_products_in_a_block_take_what_each_takes_alone(asked, block):
    device = small_case("llama2-7b", devices=8).cluster.device
    constants = priors(device).constants
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gemm, "BLOCK", block)
        together = linears_s(asked, device, constants)
    for found, each in zip(together, asked, strict=True):
        own = {"dtype": each.dtype, "in_bytes": each.in_bytes, "groups": each.groups, "grouped": each.grouped}
        alone = linear_s(each.rows, each.columns, each.inner, direction=each.direction, device=device, constants=constants, **own)
        assert (found == alone).all()
        if each.grouped and each.direction == "forward":
            assert (alone == grouped_gemm_s(
                each.rows, each.columns, each.inner, groups=each.groups, device=device, constants=constants, dtype=each.dtype,
                in_bytes=each.in_bytes,
            )).all()


@given(cluster=clusters(), payload=st.floats(1.0, 1e10))
def test_collectives_of_one_tensor_are_those_asked_for_one_by_one(cluster, payload):
    constants = priors(cluster.device).constants
    group = layer_groups(cluster.num_devices, 1, 1, 1, cluster.num_devices, 1, cluster).tensor
    found = of_tensor_s(payload, group, cluster, constants)
    alone = [collective(payload, group, cluster, constants) for collective in (all_gather_s, reduce_scatter_s, all_reduce_s)]
    assert list(map(float, found)) == list(map(float, alone))


@given(several=st.lists(ORDERED, min_size=1, max_size=4))
def test_levels_are_longest_paths_whatever_stands_beside(several):
    graphs, expected = [], []
    for name, stages, microbatches in several:
        ops = operations(ORDERS[name](stages, microbatches))
        graphs.append(Lanes(needs=ops.needs[None], nodes=np.arange(ops.kind.size), lengths=np.diff(ops.first).tolist()))
        level = np.zeros(ops.kind.size, dtype=np.int64)
        while True:
            before = np.where(ops.stage == np.roll(ops.stage, 1), np.roll(level, 1) + 1, 0)
            before[0] = 0
            longer = np.maximum(before, np.where(ops.needs >= 0, level[ops.needs] + 1, 0))
            if (longer == level).all():
                break
            level = longer
        expected.append(level)
    for found, level in zip(levels_of(graphs), expected, strict=True):
        assert found.tolist() == level.tolist()


def test_lanes_that_wait_for_each_other_are_named():
    with pytest.raises(AssertionError, match=r"stages \[0, 1\] wait"):
        levels_of([Lanes(needs=np.array([[1, 0, -1]]), nodes=np.arange(3), lengths=(1, 1, 1))])
