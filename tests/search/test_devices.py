"""How many devices: the numbers that are looked at, the smallest that fits and meets a deadline, and nodes better left idle."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product

import pytest

from meshwright.errors import InputError
from meshwright.search import SearchOptions, min_devices, plan
from meshwright.search.finding import find
from meshwright.search.idle import left_over
from meshwright.search.runner import Functions
from meshwright.search.sizes import on, sizes
from search.brute_force import grid, refusal
from search.test_certainty import calibrated
from strategies import MEGATRON, small_case

PLAIN = SearchOptions(refine=False)
LARGE = calibrated(small_case("llama3-70b", devices=16, batch=96, sequence=4096, layers=20))


@cache
def least():
    """The smallest numbers of a case with a deadline that a node more or less decides."""
    return min_devices(LARGE, MEGATRON, tokens=1e11, deadline_days=9.0, options=PLAIN, price_per_device_hour=2.0)


def test_every_number_of_devices_with_a_legal_layout_is_looked_at():
    """By enumeration of the grid: no number is missing, and those that no degrees give are left out."""
    case = small_case(layers=5, devices=8, batch=12, sequence=512)
    known = sizes(case, MEGATRON, limit_nodes=6)
    assert set(known) <= {1, 2, 4, *range(8, 49, 8)}
    for devices in (1, 2, 4, *range(8, 49, 8)):
        legal = any(refusal(case, MEGATRON, point) is None for point in grid(on(case, devices), MEGATRON, devices))
        assert devices in known or not legal
    every = product((1, 2, 4, 8, 16, 32), (1, 2, 4, 8, 16), range(1, 6), (1, 2, 3, 4, 6, 12))
    degrees = {tp * cp * pp * dp for tp, cp, pp, dp in every}
    assert set(known) <= degrees


def test_numbers_that_are_no_power_of_two_are_among_them():
    case = small_case("llama3-70b", devices=512, batch=1024, sequence=8192)
    assert {24, 896, 6912, 7168} <= set(sizes(case, MEGATRON))
    assert not {769 * 8, 785 * 8, 801 * 8} & set(sizes(case, MEGATRON))


@pytest.mark.parametrize("which", ["fits", "meets_deadline", "meets_deadline_upper"])
def test_the_figures_are_those_of_a_plan_on_so_many_devices(which):
    found = getattr(least(), which)
    best = plan(on(LARGE, found.devices), MEGATRON, PLAIN).plans[0].estimate
    assert (found.label, found.step_s, found.interval.step_s) == (best.label, best.step_s, best.interval.step_s)
    steps = 1e11 / (96 * 4096)
    assert found.days == pytest.approx(steps * best.step_s / 86400)
    assert found.interval.days == pytest.approx([steps * end / 86400 for end in best.interval.step_s])
    assert found.cost == pytest.approx(found.days * 24 * found.devices * 2.0)


def test_the_smallest_numbers_are_the_smallest():
    """Against a plan on every number below them that has one."""
    found = least()
    assert found.fits.devices < found.meets_deadline.devices <= found.meets_deadline_upper.devices
    assert found.meets_deadline.days <= 9.0 < found.meets_deadline_upper.days * 3
    assert found.meets_deadline_upper.interval.days[1] <= 9.0
    for devices in sizes(LARGE, MEGATRON):
        if devices >= found.meets_deadline_upper.devices:
            break
        best = next(iter(find(on(LARGE, devices), MEGATRON, PLAIN, Functions()).plans), None)
        if devices < found.fits.devices:
            assert best is None, devices
        elif best is not None:
            days = 1e11 / best.estimate.tokens_per_s / 86400
            assert days > 9.0 or devices >= found.meets_deadline.devices, devices
            assert days * best.estimate.interval.step_s[1] / best.estimate.step_s > 9.0, devices


def test_a_deadline_is_met_by_the_days_that_plans_say_where_runs_stall_by_chance():
    """Plans are ranked by the mean over both times, and their days are those of the usual one."""
    case = small_case("llama3-8b", devices=16, batch=64, sequence=4096, implementation="nanotron")
    options = replace(PLAIN, pins={"pp": "2", "tp": "4", "mb": "1"})
    best = find(on(case, 32), MEGATRON, options, Functions()).plans[0].estimate
    assert best.mean_step_s > 1.2 * best.step_s
    days = 1e10 / best.tokens_per_s / 86400
    found = min_devices(case, MEGATRON, tokens=1e10, deadline_days=1.01 * days, options=options)
    assert found.meets_deadline.devices == 32


def test_what_would_fit_is_the_number_that_is_found():
    case = small_case("llama3-70b", "a100-40g-sxm", devices=8, batch=48, sequence=4096)
    (unmet,) = plan(case, MEGATRON, PLAIN).verdict.unmet
    found = min_devices(case, MEGATRON, options=PLAIN).fits.devices
    assert [each for each in unmet.levers if str(each).startswith(f"{found} devices (--nodes {found // 8}): fits")]


def test_fewer_nodes_are_advised_where_they_are_faster_and_only_then():
    """Eleven nodes leave 11 for the pipeline; eight are faster with a batch of powers of two."""
    case = small_case("llama3-8b", devices=88, batch=256, sequence=4096)
    assert (left_over(case, 88), left_over(case, 80), left_over(case, 64)) == (11, 5, 1)
    result = plan(case, MEGATRON, PLAIN)
    notes = [note for note in result.notes if note.id == "plan.fewer-nodes"]
    assert [note.values["idle"] for note in notes] == [1]
    fewer = plan(case, MEGATRON, replace(PLAIN, spare_nodes=1))
    assert fewer.plans[0].estimate.expected_step_s < result.plans[0].estimate.expected_step_s
    assert notes[0].values["label"] == fewer.plans[0].label
    whole = plan(on(case, 64), MEGATRON, PLAIN)
    assert "plan.fewer-nodes" not in [note.id for note in whole.notes]


def test_nodes_that_nothing_divides_are_told_how_many_may_idle():
    case = small_case("llama3-8b", devices=8 * 97, batch=256, sequence=4096)
    with pytest.raises(InputError) as caught:
        plan(case, MEGATRON, PLAIN)
    (message,) = caught.value.messages
    assert f"--spare-nodes {message.values['idle']}" in str(message)
    assert plan(case, MEGATRON, replace(PLAIN, spare_nodes=int(message.values["idle"]), top=1)).plans
