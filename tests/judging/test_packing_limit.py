"""The packing limit that the guides' rule names is the length at which memory runs out."""

from dataclasses import replace

import pytest

from meshwright.domain.layout import Layout
from meshwright.estimate import estimate
from meshwright.judging.facts import Facts
from meshwright.judging.judges.batch import packing_limit
from strategies import MEGATRON, small_case


@pytest.mark.parametrize(("layers", "sequence"), [(16, 8192), (24, 4096)])
def test_a_pack_as_long_as_the_limit_fills_the_device(layers, sequence):
    """Up to the part of the working set that does not grow with the tokens: the gradient of the output layer."""
    case = small_case(layers=layers, devices=8, batch=8, sequence=sequence)
    layout = Layout(data_parallel=8, optimizer_shards=8)
    limit = int(packing_limit(Facts(case, layout, MEGATRON), None).figure.value)
    assert limit > sequence
    longest = replace(case, batch=replace(case.batch, sequence_tokens=limit))
    assert estimate(longest, layout).memory_reserved_bytes == pytest.approx(case.capacity_bytes, rel=0.02)
