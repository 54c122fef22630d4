"""Reports are compared with golden files, and asked whether they say what they must."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from report_samples import (
    GOLDEN,
    LAYOUT,
    Estimate,
    case,
    comparison,
    estimate,
    nothing,
    ranked,
    reports,
    result,
    text,
)
from rich.console import Console
from rich.text import Text

from meshwright.domain.estimate import Interval, Term, TimeSplit
from meshwright.domain.layout import Selective
from meshwright.estimate.breakdown import STALLS, STRAGGLERS
from meshwright.report.bars import BLOCK, Part, StackedBar, cells
from meshwright.report.blocks import Bar
from meshwright.report.compare import comparison_report
from meshwright.report.console import console
from meshwright.report.cost import minimum_lines, run_cost_lines, saved_lines
from meshwright.report.facts import entry, flat, name_list
from meshwright.report.plan import plan_report
from meshwright.report.ranking import group_letters, pareto_table, ranked_table, ranking
from meshwright.report.stages import MAX_STAGES, shown, stage_memory
from meshwright.report.timesplit import parts_of, time_split
from meshwright.search import DeviceCount, MinimumDevices, RunCost
from meshwright.search.devices import CountInterval
from meshwright.words import list_of, rate, seconds


@pytest.mark.parametrize("name", ["plan.txt", "nothing.txt", "estimate.txt", "compare.txt"])
def test_reports_are_as_they_were(name):
    golden = (GOLDEN / name).read_text(encoding="utf-8")
    assert reports()[name] == golden, "wanted? PYTHONPATH=src python tests/report/report_samples.py --update-golden"


@pytest.mark.parametrize("width", [80, 100, 140])
def test_no_line_is_wider_than_the_console(width):
    lines = text([*plan_report(case(), result()), *comparison_report(comparison())], width).splitlines()
    assert max(map(len, lines)) <= width
    assert not any("\u2026" in line for line in lines), "a figure was cut"


def test_uncalibrated_stands_beside_the_headline_figure_and_the_ranking():
    lines = text(plan_report(case(), result())).splitlines()
    assert any("per step" in line and "UNCALIBRATED" in line for line in lines)
    assert any("Ranked plans" in line and "UNCALIBRATED" in line for line in lines)


def test_a_calibrated_estimate_does_not_say_uncalibrated():
    fitted = [replace(plan, estimate=replace(plan.estimate, calibrated=True)) for plan in result().plans]
    assert "UNCALIBRATED" not in text(plan_report(case(), replace(result(), plans=tuple(fitted))))


def test_the_convention_and_the_peak_of_mfu_are_printed():
    printed = " ".join(text(plan_report(case(), result())).split())
    assert "MFU counts causal half of attention, no recompute" in printed
    assert "dense bf16 peak of 989 TFLOP/s" in printed


def test_plans_within_the_error_are_to_be_measured_together():
    assert "plans 1-3 differ by less than the error of the model: measure these three" in text(ranked_table(result().plans))
    apart = [replace(plan, group=plan.rank) for plan in result().plans]
    assert group_letters(apart) == {}
    assert "measure these" not in text(ranked_table(apart))


def test_columns_of_neutral_values_are_left_out():
    plain = text(ranked_table([ranked(1, LAYOUT, 1.0, 0)]))
    assert " cp " not in plain
    assert " vp " not in plain
    assert "recompute" not in plain
    assert " cp " in text(ranked_table([ranked(1, replace(LAYOUT, context_parallel=2), 1.0, 0)]))


def test_a_table_without_room_has_labels_instead_of_columns():
    some = replace(LAYOUT, context_parallel=2, context_kind="all-gather", recompute=Selective(modules=("moe_act", "mlp")),
                   expert_parallel=8, stage_layers=((20, 20, 20, 20),), offload=("optimizer",))
    narrow = text(ranked_table([ranked(1, some, 1.0, 0)]), 80)
    assert "all-gather" in text(ranked_table([ranked(1, some, 1.0, 0)]), 140)
    assert "layout" in narrow
    assert "recompute=selective:moe_act,mlp" in "".join(narrow.split())
    assert "\u2026" not in narrow
    assert max(map(len, narrow.splitlines())) <= 80


def test_a_figure_is_whole_or_not_there_whatever_the_width():
    """Columns that a table has no room for are left out as a whole, or labels stand for them: 32 is never shown as 3."""
    some = replace(LAYOUT, context_parallel=2, context_kind="all-gather", recompute=Selective(modules=("moe_act", "layernorm")),
                   expert_parallel=8, stage_layers=((20, 20, 20, 20),), data_parallel=512)
    sure = Interval(level=0.9, step_s=(1.0, 2.0), memory_peak_bytes=(1.0, 2.0), memory_reserved_bytes=(1.0, 2.0))
    plans = [ranked(1, some, 1.0, 0), ranked(2, replace(LAYOUT, virtual_stages=5), 1.2, 0)]
    plans = [replace(plan, estimate=replace(plan.estimate, interval=sure)) for plan in plans]
    for width in range(80, 141):
        printed = text([ranking(plans)], width)
        head = printed.splitlines()[0].split("  ")
        assert {"expected", "step", "fits", "MFU", "GiB"} <= {name.strip() for name in head}, f"{width} columns:\n{printed}"
        words = set(printed.split())
        assert {"layers", "zero", "dp", "512", "selective"} <= words or "layout" in words, f"{width} columns:\n{printed}"


def test_the_front_begins_at_what_is_ranked_by():
    front = [ranked(place, LAYOUT, factor, 0) for place, factor in enumerate((1.0, 1.5, 9.0), start=1)]
    assert "Less memory for more time" in text(pareto_table(front))
    by_memory = text(pareto_table(front, "memory"))
    assert "Less time for more memory" in by_memory
    lines = [line for line in by_memory.splitlines() if "tp8 pp4" in line]
    assert [seconds(each.estimate.step_s) in line for each, line in zip(reversed(front), lines, strict=True)] == [True] * 3


def test_long_recompute_words_are_footnotes():
    some = replace(LAYOUT, recompute=Selective(modules=("moe_act", "layernorm")))
    printed = text(ranked_table([ranked(1, some, 1.0, 0), ranked(2, LAYOUT, 1.0, 1)]), 80)
    assert "selective (1)" in printed
    assert "(1): recompute=selective:moe_act,layernorm" in printed


def test_nothing_fits_says_demand_bound_gap_terms_and_levers():
    printed = text(plan_report(case(), nothing()))
    for words in (
        "Nothing fits",
        "demanded",
        "91.4 GiB",
        "79.0 GiB",
        "12.4 GiB",
        "optimizer",
        "devices 8 -> 16",
        "refused",
    ):
        assert words in printed


def test_the_parts_of_time_are_all_in_the_bar():
    time = TimeSplit(**dict.fromkeys(TimeSplit.__slots__, 1.0))
    parts = parts_of(replace(estimate(), time=time))
    assert sum(part.value for part in parts) == time.total_s()
    assert len({part.letter for part in parts}) == len(parts) == len(TimeSplit.__slots__) + 2


def test_stragglers_and_stalls_stand_apart_from_the_host():
    waits = tuple(Term(name=name, value=value, unit="s", formula="") for name, value in ((STRAGGLERS, 0.5), (STALLS, 0.25)))
    waiting = replace(estimate(), terms=waits, time=replace(estimate().time, host_s=1.0))
    found = {part.name: part.value for part in parts_of(waiting)}
    assert (found["host"], found["stragglers"], found["stalls"]) == (0.25, 0.5, 0.25)
    printed = text(time_split(waiting))
    assert "S  stragglers" in printed
    assert "M  stalls" in printed


def test_uneven_chunks_of_a_stage_are_shown():

    def shown_with(*chunks: int) -> str:
        return text(stage_memory(replace(estimate(), stages=tuple(replace(s, chunk_layers=chunks) for s in estimate().stages))))

    assert "in brackets" not in shown_with(10, 10)
    printed = shown_with(2, 3, 3, 3, 3, 3, 3)
    assert "20 (2+6x3)" in printed
    assert "in brackets the layers of its chunks" in printed


def test_cells_of_a_bar_sum_to_its_length():
    assert cells([1, 1, 1], 3, 10) == [4, 3, 3]
    assert cells([5, 5], 20, 10) == [3, 2]
    assert cells([0, 0], 1, 10) == [0, 0]
    assert sum(cells([0.1, 7.3, 2.2], 5, 40)) == 40


@pytest.mark.parametrize(("environment", "expected"), [({}, BLOCK * 4 + "...."), ({"NO_COLOR": "1"}, "aaaa....")])
def test_bars_are_blocks_in_colour_and_letters_without(environment, expected):
    bar = StackedBar(parts=[Part(name="a", letter="a", style="red", value=1)], scale=2, width=8)
    stream = io.StringIO()
    Console(file=stream, force_terminal=True, color_system="standard", _environ=environment).print(bar)
    assert Text.from_ansi(stream.getvalue()).plain.strip() == expected
    assert text([Bar(parts=bar.parts, scale=2, width=8)]) == "  aaaa....\n"


@pytest.mark.parametrize(("given", "expected"), [(20, 80), (100, 100), (300, 140)])
def test_the_console_is_80_to_140_columns_wide(given, expected):
    assert console(io.StringIO(), given).width == expected


def test_of_many_stages_the_first_the_fullest_and_the_last_are_shown():
    wide: Estimate = replace(estimate(replace(LAYOUT, pipeline_parallel=4)), peak_stage=20)
    wide = replace(wide, stages=tuple(replace(wide.stages[0], stage=place) for place in range(40)))
    places = [stage.stage for stage in shown(wide)]
    assert len(places) == MAX_STAGES
    assert places[0] == 0
    assert 20 in places
    assert places[-1] == 39


def test_the_cost_of_a_run_and_its_deadline():
    run = RunCost(tokens=15e12, steps=1788139, days=21.5, devices=512, device_hours=264192.0, cost=660480.0,
                  energy_kwh=250000.0, deadline_days=20.0, meets_deadline=False)
    printed = text(run_cost_lines(run, estimate()))
    for words in ("15T tokens", "UNCALIBRATED", "21.5", "512 devices", "264,192", "660,480", "250,000", "kWh"):
        assert words in printed
    assert "idle" not in printed
    assert "brackets" not in printed
    assert "misses the deadline of 20 days by 1.5" in printed
    in_time = text(run_cost_lines(replace(run, cost=None, deadline_days=30.0, meets_deadline=True), estimate()))
    assert "meets the deadline of 30 days with 8.5 to spare" in in_time
    assert "currency" not in in_time


def test_the_cost_of_a_run_with_brackets_and_idle_devices():
    interval = Interval(level=0.9, step_s=(13.5, 18.0), memory_peak_bytes=(1.0, 2.0), memory_reserved_bytes=(1.0, 2.0))
    sure = replace(estimate(), interval=interval)
    run = RunCost(tokens=15e12, steps=1788139, days=20.0, devices=504, device_hours=245760.0, cost=491520.0, energy_kwh=250000.0,
                  deadline_days=22.0, meets_deadline=True, surely_meets_deadline=False, idle_devices=8, idle_device_hours=3840.0,
                  idle_cost=7680.0, intervals={"days": (18.0, 24.0), "cost": (442368.0, 589824.0)})
    printed = text(run_cost_lines(run, sure))
    for words in ("(18.0-24.0)", "(442,368-589,824)", "brackets hold 90 % of runs",
                  "8 idle devices paid for, too: 3,840 of the device-hours, 7,680 of the cost",
                  "meets the deadline of 22 days with 2.0 to spare; the upper end misses it by 2.0"):
        assert words in printed
    for deadline, words in ((25.0, "to spare; so does the upper end"), (19.0, "by 1.0; the lower end meets it with 1.0"),
                            (17.0, "by 3.0; so does the lower end")):
        assert words in text(run_cost_lines(replace(run, deadline_days=deadline, meets_deadline=deadline >= 20), sure))


def test_the_smallest_number_of_devices():
    ends = CountInterval(level=0.9, step_s=(1.2, 1.8), days=(32.0, 48.0), cost=(900.0, 1350.0))
    found = DeviceCount(devices=64, nodes=8, label="tp8 dp8 mb1", step_s=1.5, days=40.0, cost=1125.0, interval=ends)
    none = MinimumDevices(fits=found, meets_deadline=None, meets_deadline_upper=None, tried=(8, 16, 64))
    printed = text(minimum_lines(none))
    assert "fits: 64 devices (8 nodes)" in printed
    assert "1.50 s per step (1.20 s to 1.80 s), 40.0 days (32.0 to 48.0), 1,125 for the run (900 to 1,350)" in printed
    assert "tp8 dp8 mb1" in printed
    assert "meets the deadline, as predicted: none that was tried" in printed
    assert "meets it at the upper end of the interval, too: none that was tried" in printed
    assert "3 numbers between 8 and 64 devices tried" in printed
    alone = text(minimum_lines(replace(none, tried=(64,))))
    assert "64 devices alone tried" in alone
    assert "fits: 64 devices (8 nodes), nothing in host memory" in printed
    kept = text(minimum_lines(replace(none, fits=replace(found, label="tp8 dp8 mb1 offload=optimizer"))))
    assert "fits: 64 devices (8 nodes), optimizer states in host memory\n" in kept


def test_small_reports():
    assert "out/plan.yaml" in text(saved_lines(["out/plan.yaml"]))
    assert "h100" in text(name_list("devices", [{"name": "h100", "memory": "80"}]))
    origin = {"peak.bf16": {"value": 989, "unit": "TFLOP/s", "source": "data sheet"}}
    printed = text(entry("device", "h100", {"peak": {"bf16": 9.89e14}, "layers": [0] * 80, "source": "x"}, origin))
    assert "989   TFLOP/s   data sheet" in printed
    assert "peak.bf16" in printed
    assert "0 x 80" in printed
    assert "data sheet" in printed


def test_flat_names_every_leaf():
    assert flat({"a": {"b": 1, "c": [{"d": True}, {"d": None}]}}) == [
        ("a.b", "1"),
        ("a.c[0].d", "yes"),
        ("a.c[1].d", "-"),
    ]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0 s"),
        (15, "15.0 s"),
        (0.25, "250 ms"),
        (2e-6, "2.00 us"),
        (1234, "1,234 s"),
        (0.9996, "1.00 s"),
        (999.7, "1,000 s"),
    ],
)
def test_seconds_have_three_figures(value, expected):
    assert seconds(value) == expected


def test_words():
    assert [rate(value) for value in (1.234, 1092.3, 559240)] == ["1.23", "1,092", "559K"]
    assert [list_of(ranks) for ranks in ([1], [1, 2], [1, 2, 3], [1, 3])] == ["1", "1, 2", "1-3", "1, 3"]


def test_a_result_without_plans_says_so_whatever_its_verdict() -> None:
    printed = text(plan_report(case(), replace(result(), plans=(), pareto=())))
    assert "There is no plan." in printed
    assert "Best plan" not in printed
