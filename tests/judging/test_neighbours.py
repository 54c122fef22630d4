"""Layouts one step away keep what was chosen."""

import pytest

from meshwright.domain.layout import Layout
from meshwright.judging.neighbours import vary
from strategies import MEGATRON, small_case


@pytest.mark.parametrize(("shards", "expected"), [
    (8, 16),  # all eight ranks: all sixteen that there are now
    (4, 4),  # a group of four stays one
    (1, 1),
])
def test_full_sharding_stays_full_and_a_group_stays_a_group(shards, expected):
    """zero1 on tp2 dp8, one step to tp1 dp16."""
    case = small_case(devices=16, batch=32)
    layout = Layout(
        tensor_parallel=2, sequence_parallel=True, data_parallel=8, num_microbatches=4, optimizer_shards=8, gradient_shards=shards
    )
    new = vary(case, MEGATRON, layout, tensor_parallel=1)
    assert isinstance(new, Layout)
    assert (new.data_parallel, new.optimizer_shards, new.gradient_shards) == (16, 16, expected)


def test_a_group_that_no_longer_divides_becomes_all_ranks():
    case = small_case(devices=12, batch=24, per_node=4)
    layout = Layout(data_parallel=12, num_microbatches=2, optimizer_shards=4)
    new = vary(case, MEGATRON, layout, pipeline_parallel=2)
    assert isinstance(new, Layout)
    assert (new.data_parallel, new.optimizer_shards) == (6, 6)
