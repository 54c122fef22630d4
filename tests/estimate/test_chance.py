"""Layouts that take one of two times: pipeline messages that stall by chance."""

from dataclasses import replace
from io import StringIO

import numpy as np
import pytest

from meshwright.catalog import calibration
from meshwright.domain.layout import Layout, Overlap
from meshwright.estimate import estimate
from meshwright.estimate.evaluate import evaluate
from meshwright.estimate.many import price_many
from meshwright.report.console import show
from meshwright.report.headline import headline
from meshwright.report.ranking import riskier_table
from meshwright.search.compare import needed
from meshwright.search.finalists import layout_of_row
from meshwright.search.grid import Counts, evaluate_grid
from meshwright.search.result import RankedPlan
from meshwright.search.space import Pins, make_space
from strategies import EVERYTHING, small_case

LAYOUT = Layout(tensor_parallel=4, pipeline_parallel=4, data_parallel=4, num_microbatches=16, optimizer_shards=4)


def case_of(implementation="nanotron", known="shipped", **options):
    case = small_case(devices=64, batch=64, implementation=implementation, **options)
    return replace(case, calibration=calibration(known, case.cluster, framework=case.implementation.family, precision="bf16"))


def with_constants(case, **changes):
    constants = replace(case.calibration.constants, **changes)
    return replace(case, calibration=replace(case.calibration, constants=constants))


def test_the_second_time_is_that_of_a_run_whose_every_message_stalls():
    case = case_of()
    usual = estimate(case, LAYOUT)
    stalled = estimate(with_constants(case, stall_nodes=1e-3), LAYOUT)
    assert usual.stall is not None
    assert usual.stall.step_s == pytest.approx(stalled.step_s, rel=1e-9)
    assert usual.stall.probability == case.calibration.constants.stall_chance
    low, high = usual.stall.either_s
    assert low == usual.interval.step_s[0]
    assert high / usual.stall.step_s == pytest.approx(usual.interval.step_s[1] / usual.step_s)


def test_nothing_is_said_of_a_run_that_stalls_anyway_of_one_node_of_one_stage_and_of_other_frameworks():
    case = case_of()
    assert estimate(with_constants(case, stall_nodes=1e-3), LAYOUT).stall is None
    one_stage = replace(LAYOUT, pipeline_parallel=1, data_parallel=16, num_microbatches=4, optimizer_shards=16)
    assert estimate(case, one_stage).stall is None
    assert estimate(case_of(per_node=64), LAYOUT).stall is None
    assert estimate(case_of("megatron-te"), LAYOUT).stall is None


def test_a_stall_within_the_usual_error_is_no_second_time():
    assert estimate(with_constants(case_of(), stall_s=1e-5), LAYOUT).stall is None


def test_without_a_calibration_the_second_time_has_no_interval_and_is_said_all_the_same():
    found = estimate(case_of(known="none"), LAYOUT)
    assert found.stall is not None
    assert found.stall.either_s is None
    said = StringIO()
    show(headline(found), said)
    assert "in 8 % of runs pipeline messages stall" in said.getvalue()

def test_plans_are_ranked_by_the_mean_over_both_times():
    found = estimate(case_of(), LAYOUT)
    chance, second = found.stall.probability, found.stall.step_s
    mean = (1.0 - chance) * found.step_s + chance * second
    assert found.mean_step_s == pytest.approx(mean, rel=1e-12)
    assert found.expected_step_s == pytest.approx(mean / found.memory_fit_probability, rel=1e-12)


def test_a_run_that_stalls_anyway_and_one_that_cannot_have_one_time():
    case = case_of()
    one_stage = replace(LAYOUT, pipeline_parallel=1, data_parallel=16, num_microbatches=4, optimizer_shards=16)
    stalled = estimate(with_constants(case, stall_nodes=1e-3), LAYOUT)
    assert stalled.mean_step_s == pytest.approx(stalled.step_s, rel=1e-6)
    for other, layout in ((case, one_stage), (case_of(per_node=64), LAYOUT), (case_of("megatron-te"), LAYOUT)):
        assert estimate(other, layout).mean_step_s == estimate(other, layout).step_s


def test_columns_and_the_grid_have_the_mean_of_one_layout():
    case = case_of()
    ways = [replace(LAYOUT, num_microbatches=LAYOUT.num_microbatches // 2, microbatch_sequences=2), LAYOUT]
    step_s, mean_s, _ = price_many(case, ways)
    alone = [evaluate(case, each).time for each in ways]
    np.testing.assert_allclose(mean_s, [float(each.mean_s) for each in alone], rtol=1e-12)
    assert (mean_s > step_s).all()
    space, seen = make_space(case, EVERYTHING, case.cluster.num_devices, Pins()), 0
    for rows in evaluate_grid(space, Counts(), overlap=Overlap()):
        for index in range(0, len(rows), 997):
            layout = layout_of_row(space, rows, index, Overlap())
            assert rows.mean_s[index] == pytest.approx(float(evaluate(case, layout).time.mean_s), rel=1e-9)
            seen += rows.mean_s[index] > rows.step_s[index]
    assert seen > 5


@pytest.mark.parametrize(
    ("slower", "fits", "words"),
    [
        (1.02, 1.0, "stall by chance add 71.3 % on average: it would win below 2.0 %"),
        (1.02, 0.8, "stall by chance add 71.3 % on average, and it fits with 80 % probability"),
        (2.0, 0.8, "less time where it fits, but fits with 80 % probability: it would win from 85.7 % on"),
    ],
)
def test_what_a_layout_that_stalls_by_chance_would_need_to_win(slower, fits, words):
    """And never more than all of its runs."""
    usual = estimate(case_of(known="none"), LAYOUT)
    own = replace(usual, chance_s=0.7132 * usual.step_s, memory_fit_probability=fits)
    (line,) = needed(own, replace(usual, step_s=slower * usual.step_s, chance_s=0.0, memory_fit_probability=1.0), ())
    assert line.endswith(words)


@pytest.mark.parametrize(
    ("chance_s", "title"),
    [(0.0, "Faster where they fit, but less likely to fit"), (0.1, "Faster in most runs, but expected to take longer")],
)
def test_plans_that_stall_by_chance_are_not_said_to_be_less_likely_to_fit(chance_s, title):
    found = replace(estimate(case_of(), LAYOUT), chance_s=chance_s)
    plan = RankedPlan(rank=2, label=found.label, layout=LAYOUT, estimate=found, reasons=(), group=1)
    assert [section.title for section in riskier_table((plan,))] == [title]
