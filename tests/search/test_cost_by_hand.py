"""What a run costs, by hand."""

from dataclasses import replace

import pytest

from meshwright.domain.layout import Layout
from meshwright.estimate import estimate
from meshwright.search.cost import run_cost
from strategies import small_case


@pytest.mark.parametrize(("devices", "nodes"), [(4, 1), (8, 1), (12, 2), (17, 3)])
def test_every_node_that_is_used_in_part_draws_its_whole_power(devices, nodes):
    case = small_case(layers=2, devices=devices, batch=devices, per_node=1)
    case = replace(case, cluster=replace(case.cluster, devices_per_node=8, node_power_w=2000.0))
    found = estimate(case, Layout(data_parallel=devices))
    tokens = found.tokens_per_s * 7200
    cost = run_cost(case, found, tokens, price_per_device_hour=3.0, power_w=500.0, deadline_days=0.05)
    assert cost.energy_kwh == pytest.approx((500 * devices + 2000 * nodes) * 2 / 1000, rel=1e-12)
    assert (cost.device_hours, cost.cost, cost.days) == pytest.approx((2 * devices, 6 * devices, 1 / 12), rel=1e-12)
    assert cost.steps == pytest.approx(tokens / (devices * case.batch.sequence_tokens), rel=1e-12)
    assert cost.meets_deadline is False


def test_devices_that_idle_are_paid_for_too():
    case = small_case(layers=2, devices=16, batch=8)
    found = estimate(case, Layout(data_parallel=8))
    cost = run_cost(case, found, found.tokens_per_s * 3600, price_per_device_hour=1.0, devices=16)
    assert (cost.device_hours, cost.cost) == pytest.approx((16.0, 16.0))
