"""What a run costs: hand values, whole nodes, idle devices, and intervals that all follow from the one of the step."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from meshwright.domain.training import Packing
from meshwright.search import run_cost
from strategies import small_case

CASE = small_case(devices=16, batch=10)


def predicted(devices: int, interval: tuple[float, float] | None = (1.8, 2.6)) -> Any:
    """Two seconds a step on so many devices."""
    ends = SimpleNamespace(step_s=interval, level=0.9) if interval else None
    return SimpleNamespace(layout=SimpleNamespace(world=devices), step_s=2.0, interval=ends)


def cost(devices: int, **asked: Any) -> Any:
    case = replace(CASE, cluster=replace(CASE.cluster, devices_per_node=8, node_power_w=4000.0))
    given = {"tokens": 43_200 * CASE.batch.tokens, "price_per_device_hour": 2.5, "power_w": 700.0} | asked
    return run_cost(case, predicted(devices, given.pop("interval", (1.8, 2.6))), **given)


@pytest.mark.parametrize(("devices", "nodes"), [(4, 1), (8, 1), (12, 2), (16, 2)])
def test_devices_draw_power_with_their_whole_nodes(devices, nodes):
    """43,200 steps of two seconds are a day."""
    run = cost(devices)
    assert run.days == pytest.approx(1.0)
    assert run.steps == pytest.approx(43_200)
    assert run.energy_kwh == pytest.approx(24 * (0.7 * devices + 4.0 * nodes))


@pytest.mark.parametrize(("devices", "idle"), [(16, 0), (12, 4), (8, 8)])
def test_idle_devices_of_the_cluster_are_paid_for(devices, idle):
    run = cost(devices)
    assert (run.devices, run.idle_devices) == (devices, idle)
    assert run.device_hours == pytest.approx(24 * 16)
    assert run.cost == pytest.approx(24 * 16 * 2.5)
    assert run.idle_device_hours == pytest.approx(24 * idle)
    assert run.idle_cost == pytest.approx(24 * idle * 2.5)


def test_every_interval_is_that_of_the_step():
    run = cost(16)
    assert set(run.intervals) == {"days", "device_hours", "cost", "energy_kwh"}
    for name, ends in run.intervals.items():
        assert ends == pytest.approx((getattr(run, name) * 0.9, getattr(run, name) * 1.3)), name
    assert set(cost(16, price_per_device_hour=None).intervals) == {"days", "device_hours", "energy_kwh"}
    assert cost(16, interval=None).intervals == {}


@pytest.mark.parametrize(
    ("deadline", "meets", "surely"),
    [(0.8, False, False), (0.95, False, False), (1.0, True, False), (1.29, True, False), (1.31, True, True)],
)
def test_a_deadline_is_met_by_the_predicted_time_and_apart_from_it_by_the_upper_end(deadline, meets, surely):
    run = cost(16, deadline_days=deadline)
    assert (run.meets_deadline, run.surely_meets_deadline) == (meets, surely)
    assert cost(16, deadline_days=deadline, interval=None).surely_meets_deadline is None


def test_padding_trains_nothing():
    packing = Packing(samples_per_sequence=3.0, mean_sample_tokens=0.25 * CASE.batch.sequence_tokens, longest_sample_tokens=512)
    case = replace(CASE, batch=replace(CASE.batch, packing=packing))
    assert case.batch.padding_ratio == pytest.approx(0.25)
    assert case.batch.samples == pytest.approx(3 * CASE.batch.global_batch_sequences)
    tokens = 100 * CASE.batch.tokens
    full, packed = (run_cost(each, predicted(16), tokens) for each in (CASE, case))
    assert packed.steps == pytest.approx(full.steps / 0.75)
    assert packed.days == pytest.approx(full.days / 0.75)
