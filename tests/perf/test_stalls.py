"""What hosts, messages and a full memory add: nothing far from their edges, all of it beyond them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from meshwright.catalog import load_cluster
from meshwright.perf.arrays import array
from meshwright.perf.exchange import collective_host_s
from meshwright.perf.placement import layer_groups
from meshwright.perf.stalls import Load, all_stalled_s, beyond, memory_pressure, message_stall_s, stalled_share
from strategies import examples, small_case

CASE = small_case()
CONSTANTS = CASE.calibration.constants
QUIET = Load(
    nodes=array(4), tensor_domains=array(1), replicated=array(0.0), num_microbatches=array(64), pressure=array(0.0)
)


def load(**changes):
    return structs.replace(QUIET, **{name: array(value) for name, value in changes.items()})


@examples(100)
@given(st.floats(1.0, 1e4), st.floats(1.0, 1e4))
def test_a_step_rises_from_nothing_to_one(value, edge):
    share = float(beyond(value, edge, 16.0))
    assert 0.0 <= share <= 1.0
    assert float(beyond(edge, edge, 16.0)) == 0.5
    assert float(beyond(2.0 * value, edge, 16.0)) >= share


def test_pressure_begins_at_the_edge_of_the_memory():
    edge = CONSTANTS.pressure_edge_ratio
    assert float(memory_pressure(0.0, 80e9, CONSTANTS)) < 1e-100
    assert float(memory_pressure(0.85 * edge * 80e9, 80e9, CONSTANTS)) < 1e-4
    assert float(memory_pressure(1.1 * edge * 80e9, 80e9, CONSTANTS)) > 0.99


@pytest.mark.parametrize(
    "cause",
    [
        {"nodes": 128}, {"tensor_domains": 4}, {"replicated": 1.0, "nodes": 8}, {"pressure": 1.0},
    ],
)
def test_one_cause_is_enough_for_messages_to_stall(cause):
    assert float(stalled_share(QUIET, CONSTANTS)) < 0.001
    assert float(stalled_share(load(**cause), CONSTANTS)) > 0.98


def test_one_micro_batch_meets_no_pressure():
    assert float(stalled_share(load(pressure=1.0, num_microbatches=1), CONSTANTS)) < 0.001


def test_stalled_messages_are_counted():
    stalled = load(nodes=1024)
    counts = message_stall_s(np.array([1.0, 2.0, 8.0]), stalled, CONSTANTS) / CONSTANTS.stall_s
    assert counts == pytest.approx([0.0, 2 * 64 + 2, 4 * 64 + 14])


def test_hosts_wait_for_each_other_only_beside_a_pipeline_between_nodes():
    cluster = load_cluster("p5", num_devices=64)
    case = replace(CASE, cluster=cluster)

    def wait(tp, stage, pp):
        return float(collective_host_s(case, layer_groups(tp, 1, 1, 1, stage, pp, cluster)))

    assert wait(1, 8, 8) == 0.0
    assert wait(8, 64, 1) == CONSTANTS.collective_host_s
    assert wait(2, 2, 2) == CONSTANTS.collective_host_s
    assert wait(8, 8, 8) == pytest.approx(CONSTANTS.collective_host_s + 8 * CONSTANTS.collective_skew_s)
    assert wait(16, 16, 4) > 2 * wait(8, 8, 8) - CONSTANTS.collective_host_s


@examples(50)
@given(st.integers(2, 64), st.integers(1, 256))
def test_stalled_messages_are_a_share_of_all_of_them(stages, microbatches):
    every = float(all_stalled_s(stages, microbatches, CONSTANTS))
    certain = load(nodes=1e6, num_microbatches=microbatches)
    assert float(message_stall_s(stages, certain, CONSTANTS)) == pytest.approx(every, rel=1e-9)
    assert float(message_stall_s(stages, load(num_microbatches=microbatches), CONSTANTS)) <= every
    assert float(all_stalled_s(1, microbatches, CONSTANTS)) == 0.0
