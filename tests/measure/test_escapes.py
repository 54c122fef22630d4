"""What a run takes whose pipeline messages should stall and do not, as the tuner believes it."""

from dataclasses import replace

import numpy as np
import pytest

from meshwright.catalog import calibration
from meshwright.domain.layout import Layout
from meshwright.estimate import estimate
from meshwright.measure.tuning.beliefs import Subject, beliefs
from strategies import small_case

LAYOUT = Layout(tensor_parallel=4, pipeline_parallel=4, data_parallel=4, num_microbatches=16, optimizer_shards=4)


def case_of(implementation="nanotron", **changes):
    case = small_case(devices=64, batch=64, implementation=implementation)
    known = calibration("shipped", case.cluster, framework=case.implementation.family, precision="bf16")
    constants = replace(known.constants, **changes)
    return replace(case, calibration=replace(known, constants=constants))


def escape(case, layout=LAYOUT):
    return float(beliefs([Subject(case=case, layout=layout)]).escape[0])


def test_it_is_the_time_of_the_same_run_whose_messages_take_no_time_to_stall():
    case = case_of(stall_nodes=1e-3)
    free, stalls = (estimate(each, LAYOUT).step_s for each in (case_of(stall_nodes=1e-3, stall_s=0.0), case))
    assert escape(case) == pytest.approx(np.log(free / stalls), rel=1e-6)


@pytest.mark.parametrize("case", [
    case_of(), case_of(stall_nodes=1e-3, stall_s=1e-5), case_of("megatron-te", stall_nodes=1e-3),
    case_of(stall_nodes=1e-3, pressure_edge_ratio=1e-3),
], ids=["does not stall", "within the interval", "nobody waits", "for want of memory"])
def test_nothing_escapes_that_does_not_stall_by_chance(case):
    assert escape(case) == 0.0


def test_what_stalls_in_part_for_want_of_memory_leaves_nothing_to_chance():
    case = case_of()
    full = estimate(case, LAYOUT).memory_reserved_bytes / case.cluster.device.memory_bytes
    pressed = case_of(pressure_edge_ratio=full * 1.004)
    assert estimate(pressed, LAYOUT).step_s > 1.2 * estimate(case, LAYOUT).step_s
    assert escape(pressed) == 0.0


def test_one_stage_has_no_messages():
    assert escape(case_of(stall_nodes=1e-3), replace(LAYOUT, pipeline_parallel=1, data_parallel=16, num_microbatches=4)) == 0.0
