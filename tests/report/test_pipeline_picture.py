"""The picture of a pipeline: readable XML with the figures in it, all blocks, and a bounded size."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from pipeline_samples import problem_of, view_of

from meshwright.api.views.balance import SECONDS_AND_BYTES
from meshwright.report.pipeline_picture import ACTIVATION, EDGE, LEFT, STATIC, TREATMENTS, WIDTH, pipeline_picture
from meshwright.report.pipeline_view import memory_steps
from meshwright.report.svg import BLUE, GREEN, ORANGE, RED
from meshwright.report.windows import Widths, Window, windows

SVG = "{http://www.w3.org/2000/svg}"


def parsed(view):
    text = pipeline_picture(view)
    return text, ElementTree.fromstring(text)


def words(root):
    return [element.text for element in root.iter(f"{SVG}text")]


def blocks(root, colours):
    """Subpaths of the paths that have a stroke around blocks, by colour."""
    found = {}
    for path in root.iter(f"{SVG}path"):
        if path.get("stroke-width") == "0.6":
            found[path.get("fill")] = path.get("d").count("M")
    return sum(found.values()) if colours is None else sum(found.get(colour, 0) for colour in colours)


def test_figures_are_in_the_picture_and_in_its_words():
    view = view_of(name="LS1 & <small>")
    text, root = parsed(view)
    shown = words(root)
    assert "LS1 & <small>" in shown
    assert root.find(f"{SVG}title").text == "Pipeline of LS1 & <small>"
    description = root.find(f"{SVG}desc").text
    assert "4 stages of 2 chunks" in description
    assert "Stage 0: 2 + 2 layers, full 1 + 1" in description
    assert "Stage 3: 2 + 2 layers;" in description
    for stage in range(4):
        peak = f"{view.peaks[stage]:,.0f} MB"
        assert peak in description
        assert any(each.startswith(peak) for each in shown)
    assert f"pipeline {view.simulated_time:,.0f}" in " ".join(shown)
    assert f"slot {view.slot_time:,.0f}" in " ".join(shown)
    assert shown.count("2") >= 8
    assert {"chunk 0", "chunk 1", "full recomputed", "kept", "bound 90,000 MB"} <= set(shown)
    assert "<script" not in text
    assert "prefers-color-scheme:dark" in text


def test_every_operation_is_a_block_and_is_numbered_where_there_is_room():
    view = view_of()
    _, root = parsed(view)
    assert blocks(root, None) == 2 * 4 * 2 * 8
    assert blocks(root, [BLUE]) == blocks(root, [ORANGE]) == 4 * 8  # chunk 0; the other one is lighter
    shown = words(root)
    assert min(shown.count(str(microbatch)) for microbatch in range(4, 8)) >= 4 * 2 * 2  # forward and backward on every chunk


def test_weight_gradients_have_their_own_colour():
    _, root = parsed(view_of(schedule="zb1p", chunks=1))
    assert blocks(root, [GREEN]) == blocks(root, [BLUE]) == blocks(root, [ORANGE]) == 4 * 8
    assert "weight gradient" in words(root)
    _, root = parsed(view_of(schedule="1f1b", chunks=1))
    assert blocks(root, [GREEN]) == 0
    assert "weight gradient" not in words(root)


def test_shapes_stay_inside_and_blocks_of_a_stage_apart():
    text, root = parsed(view_of(stages=6, chunks=3, microbatches=12))
    height = float(root.get("height"))
    rows = {}
    for path in root.iter(f"{SVG}path"):
        if path.get("stroke-width") != "0.6":
            continue
        for x, y, width in re.findall(r"M([\d.]+) ([\d.]+)h([\d.]+)v", path.get("d")):
            assert LEFT <= float(x) <= float(x) + float(width) <= EDGE + 0.11
            assert 0.0 < float(y) < height
            rows.setdefault(y, []).append((float(x), float(x) + float(width)))
    assert len(rows) == 6
    for spans in rows.values():
        spans.sort()
        assert all(first[1] <= second[0] + 0.21 for first, second in pairwise(spans))
    for element in root.iter(f"{SVG}text"):
        assert 0.0 <= float(element.get("x")) <= WIDTH
        assert 0.0 <= float(element.get("y")) <= height
    assert "nan" not in text


def test_memory_over_time_peaks_at_the_stage_memory_and_ends_where_it_began():
    for schedule, chunks in (("1f1b", 1), ("interleaved", 2), ("interleaved-less-memory", 3), ("zb1p", 1), ("dualpipev", 2)):
        view = view_of(schedule=schedule, chunks=chunks, microbatches=12)
        for stage in range(4):
            times, values = memory_steps(view, stage)
            assert values.max() == pytest.approx(view.peaks[stage])
            assert values[-1] == view.base[stage]
            assert (np.diff(times) >= 0.0).all()
            assert values.min() >= view.base[stage] - 1e-6
        inner = view.base[1] if schedule == "dualpipev" else view.base[1:3]
        np.testing.assert_allclose(inner, 1583.0 * 2 * chunks)


def test_what_exceeds_its_bound_is_red():
    view = view_of(bound=20_000.0)
    _, root = parsed(view)
    red = [element.text for element in root.iter(f"{SVG}text") if element.get("fill") == RED]
    assert 0 < len(red) == int((view.peaks > 20_000.0).sum()) < 4
    assert all(int(re.search(r"(\d+) %", each).group(1)) >= 100 for each in red)
    _, root = parsed(view_of(bound=90_000.0))
    assert not [element for element in root.iter(f"{SVG}text") if element.get("fill") == RED]


def test_no_bound_is_no_line():
    text, root = parsed(view_of(bound=float("inf")))
    assert "stroke-dasharray" not in text
    assert not any("%" in word for word in words(root) if "MB" in word)


def test_a_layout_is_shown_in_its_own_units():
    _, root = parsed(view_of(units=SECONDS_AND_BYTES))
    assert any(each.endswith(" s") for each in words(root))
    assert any("GiB" in each for each in words(root))


def test_long_pipelines_are_cut_in_the_middle_and_the_file_stays_small():
    short, _ = parsed(view_of(microbatches=8))
    sizes = []
    for microbatches in (256, 1024, 16_384):
        view = view_of(microbatches=microbatches)
        text, root = parsed(view)
        sizes.append(len(text))
        shown = words(root)
        assert "· · ·" in shown
        assert shown.count("0") >= 8
        last = max(float(each.replace(",", "")) for each in shown if re.fullmatch(r"[\d,]+", each))
        assert last <= view.simulated_time
        assert last > 0.9 * view.simulated_time
    assert max(sizes) < 4 * len(short)
    assert max(sizes) < 1.25 * min(sizes)


def test_the_end_of_a_shortened_pipeline_has_its_own_numbers_and_times():
    whole, less = view_of(microbatches=200), view_of(microbatches=200, most_operations=1000)
    assert less.shown_microbatches < 20 < whole.shown_microbatches == 200
    ends = []
    for view in (whole, less):
        _, root = parsed(view)
        shown = words(root)
        assert shown.count("199") >= 3
        ends.append(max(float(each.replace(",", "")) for each in shown if re.fullmatch(r"[\d,]+", each)))
    assert ends[0] == ends[1]
    assert whole.peaks.tolist() == less.peaks.tolist()


def test_many_stages_keep_a_bounded_picture():
    view = view_of(problem_of(stages=64, chunks=1, microbatches=512, schedule="1f1b"))
    text, root = parsed(view)
    assert len(text) < 1_000_000
    assert float(root.get("height")) < 2_200


def test_of_very_many_stages_the_first_and_the_last_are_shown():
    view = view_of(problem_of(stages=200, chunks=1, microbatches=4, schedule="1f1b"))
    text, root = parsed(view)
    shown = words(root)
    assert "stages 64 to 135 not shown" in " ".join(shown)
    assert {"0", "63", "136", "199"} <= set(shown)
    assert not {"64", "100", "135"} & set(shown)
    assert 64 * 4 <= blocks(root, None) <= 128 * 4 * 2
    assert "Stage 100" not in text


def test_a_stage_may_be_empty():
    problem = problem_of(stages=2, chunks=2, microbatches=4, each=0)
    text, root = parsed(view_of(problem))
    assert "nan" not in text
    assert "Stage 0: 0 + 0 layers" in root.find(f"{SVG}desc").text


def test_same_question_same_bytes():
    assert pipeline_picture(view_of()) == pipeline_picture(view_of())


def test_colours_of_treatments_and_of_the_chart_are_all_different():
    colours = [*TREATMENTS, STATIC, ACTIVATION, BLUE, ORANGE, GREEN, RED]
    assert len(set(colours)) == len(colours)


def test_windows_show_all_or_both_ends():
    (whole,) = windows(100.0, 5.0, 10.0, left=0.0, right=100.0, widths=Widths(), cut=False)
    assert (whole.begin, whole.end, whole.at(50.0)) == (0.0, 100.0, 50.0)
    first, last = windows(10_000.0, 1.0, 0.0, left=0.0, right=736.0, widths=Widths(), cut=False)
    assert (first.begin, first.end, first.left, first.right) == (0.0, 50.0, 0.0, 350.0)  # 7 pixels a slot
    assert (last.begin, last.end, last.left, last.right) == (9950.0, 10_000.0, 386.0, 736.0)
    first, _ = windows(10_000.0, 1.0, 100.0, left=0.0, right=736.0, widths=Widths(), cut=False)
    assert first.end == 100.0  # what is wanted, at 3.5 pixels
    first, _ = windows(10_000.0, 1.0, 5000.0, left=0.0, right=736.0, widths=Widths(), cut=False)
    assert first.end == 175.0  # not below 2 pixels
    first, last = windows(100.0, 50.0, 100.0, left=0.0, right=736.0, widths=Widths(), cut=True)
    assert (first.end, last.begin) == (50.0, 50.0)  # never over each other


def test_ticks_are_round_and_inside():
    assert Window(begin=0.0, end=100.0, left=0, right=1).ticks(5) == [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
    assert Window(begin=9_950.0, end=10_000.0, left=0, right=1).ticks(5) == [9950.0, 9960.0, 9970.0, 9980.0, 9990.0, 10_000.0]
    assert Window(begin=0.0, end=0.0, left=0, right=1).ticks() == [0.0]
