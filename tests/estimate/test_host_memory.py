"""Host memory by part: hand values, the sum, and a reason for each part."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from meshwright.api import make_case
from meshwright.api.views.estimates import estimate_view
from meshwright.domain.estimate import HostMemory
from meshwright.domain.layout import Layout
from meshwright.estimate import estimate
from meshwright.estimate.host_memory import REASONS
from meshwright.perf.parameters import total_parameters

CASE = make_case("llama3-8b", "dgx-h100", global_batch_sequences=64, sequence_tokens=8192)
PLAIN = Layout(data_parallel=8, optimizer_shards=8, num_microbatches=8)
MOVED = replace(PLAIN, offload=("optimizer",))


def test_each_part_is_what_the_ranks_of_a_node_own():
    """AdamW: 4 bytes of master weight, 8 of moments, 4 of gradient, 2 of weight; eight ranks share one copy."""
    parameters = total_parameters(CASE.model)
    here, there = estimate(CASE, PLAIN).host_memory_bytes, estimate(CASE, MOVED).host_memory_bytes
    assert here is not None
    assert there is not None
    assert (here.offload, here.pinned, here.loader) == (0.0, 0.0, 0.0)
    assert there.offload == pytest.approx(12.0 * parameters, rel=0.01)
    assert there.pinned == pytest.approx(4.0 * parameters, rel=0.01)
    assert here.checkpoint == there.checkpoint == pytest.approx(14.0 * parameters, rel=0.01)
    assert here.other == 8.0 * CASE.calibration.constants.host_process_bytes
    assert there.needed_bytes == there.total_bytes - there.checkpoint


@pytest.mark.parametrize("layout", [PLAIN, MOVED, replace(PLAIN, optimizer_shards=1)])
def test_parts_sum_to_the_node_and_have_reasons(layout):
    found = estimate(CASE, layout)
    parts = estimate_view(found)["host_memory_bytes"]
    assert list(parts) == [each.name for each in fields(HostMemory)] == ["offload", "pinned", "checkpoint", "loader", "other"]
    assert set(parts) == set(REASONS)
    assert sum(parts.values()) == pytest.approx(found.host_memory_per_node_bytes, abs=len(parts))
