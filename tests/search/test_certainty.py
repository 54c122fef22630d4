"""Plans under a calibration: ranked by the chance that they run, off the edge of memory, grouped by the error of the model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.catalog import calibration
from meshwright.catalog import implementation as implementation_named
from meshwright.domain.uncertainty import FitCurve
from meshwright.estimate import estimate
from meshwright.estimate.certainty import expected_s, regime_of_case, step_interval
from meshwright.judging.facts import Facts
from meshwright.search import SearchOptions, plan
from meshwright.search.plan import RANKING_ERROR, ranking_error
from strategies import MEGATRON, small_case

OPTIONS = SearchOptions(risk="exact")


def calibrated(case, implementation="megatron-te"):
    """A case under the shipped calibration."""
    chosen = implementation_named(implementation)
    fitted = calibration("shipped", case.cluster, framework=chosen.family, precision=case.training.precision.name)
    return replace(case, implementation=chosen, calibration=fitted)


def with_curve(case, curve, ranking_ratio=0.04):
    known = replace(case.calibration.uncertainty, fit=curve, ranking_ratio=ranking_ratio)
    return replace(case, calibration=replace(case.calibration, uncertainty=known))


TIGHT = calibrated(small_case(layers=16, devices=8, batch=32))
SHARE = 0.2
"""A curve whose half lies here leaves so much of the memory: some layouts of the case need more, some less."""


@pytest.mark.parametrize("memory_ratio", [0.9, 1.0])
@pytest.mark.parametrize("implementation", ["megatron-te", "nanotron"])
def test_no_plan_is_more_likely_than_not_to_run_out_of_memory(memory_ratio, implementation):
    case = replace(calibrated(small_case(layers=16, devices=8, batch=32, sequence=8192), implementation), memory_ratio=memory_ratio)
    result = plan(case, MEGATRON, OPTIONS)
    assert result.plans
    for each in (*result.plans, *result.pareto):
        assert each.estimate.memory_fit_probability >= 0.5
        assert each.estimate.memory_reserved_bytes < case.cluster.device.memory_bytes


def test_a_curve_lowers_what_may_be_used_and_no_plan_is_beyond_it():
    case = with_curve(TIGHT, FitCurve(edge=-1.6, width=0.05, failures=0.1))
    assert case.capacity_bytes < 0.21 * case.cluster.device.memory_bytes
    result = plan(case, MEGATRON, OPTIONS)
    for each in (*result.plans, *result.pareto):
        assert each.estimate.memory_fit_probability >= 0.5
        assert each.estimate.fit_probability == pytest.approx(0.9 * each.estimate.memory_fit_probability)
    assert result.plans[0].estimate.step_s > plan(TIGHT, MEGATRON, OPTIONS).plans[0].estimate.step_s


def test_plans_are_ranked_by_the_time_that_failed_runs_cost_too():
    case = with_curve(TIGHT, FitCurve(edge=-1.2, width=0.3, failures=0.0))
    plans = plan(case, MEGATRON, replace(OPTIONS, refine=False)).plans
    costs = [each.estimate.step_s / each.estimate.memory_fit_probability for each in plans]
    assert costs == sorted(costs)
    known = [float(expected_s(case, each.estimate.step_s, each.estimate.memory_reserved_bytes)) for each in plans]
    assert known == pytest.approx(costs)
    sure = plan(TIGHT, MEGATRON, replace(OPTIONS, refine=False)).plans[0]
    assert estimate(case, sure.layout).memory_fit_probability < plans[0].estimate.memory_fit_probability


def test_as_many_plans_are_worth_measuring_as_the_error_holds():
    for ratio, known in ((1e-9, False), (0.04, False), (10.0, True)):
        case = with_curve(TIGHT, TIGHT.calibration.uncertainty.fit, ratio)
        result = plan(case, MEGATRON, replace(OPTIONS, refine=False))
        costs = [each.estimate.step_s / each.estimate.memory_fit_probability for each in result.plans]
        first = result.plans[0]
        judged = Facts(case, first.layout, MEGATRON, first.estimate)
        assert result.ranking_error_ratio == ranking_error(case) == judged.error_ratio == ratio
        assert result.within_error == sum(cost <= costs[0] * (1.0 + ratio) for cost in costs)
        assert (result.within_error == len(result.plans)) or not known
    assert ranking_error(small_case()) == RANKING_ERROR


def test_a_device_without_runs_borrows_from_its_family():
    case = calibrated(small_case(device="h20", layers=2, devices=8), "torch-eager")
    assert case.calibration.uncertainty.seen["device"] == 0
    assert case.calibration.uncertainty.seen["family"] > 0
    assert {move.name for move in case.calibration.moved} >= {"gemm_ratio", "network_ratio", "pressure_slowdown"}


def test_intervals_of_devices_without_runs_are_wider_and_widest_without_kin():
    """A device with runs, one whose family has some, one of a family without any."""
    cases = [calibrated(small_case("llama3-8b", device=each, devices=16)) for each in ("h100-sxm", "h20", "rtx-4090")]
    known = [each.calibration.uncertainty for each in cases]
    assert [(each.seen["device"] > 0, each.seen["family"] > 0) for each in known] == [(True, True), (False, True), (False, False)]
    seen, kin, strange = (step_interval(each.calibration.uncertainty, regime_of_case(each), 1.0)[1] for each in cases)
    assert seen < kin < strange
