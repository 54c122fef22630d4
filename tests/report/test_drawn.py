"""Charts of pages: bars are as long as their values on any width, and words of a terminal's report are the page's."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_samples import case, estimate, result

from meshwright.explain.sensitivity import Sensitivity
from meshwright.report.blocks import NARROW, WIDE, Bar, Paragraph, Table, flat, parted
from meshwright.report.page.drawn import Changed, Parted, Ranged, changes, ranges, stacked, waterfall, width_of
from meshwright.report.page.plotted import Paired, against, histogram, pairs
from meshwright.report.pages.knobs import knobs_of
from meshwright.report.plan import plan_report
from meshwright.report.svg import BLUE, GREEN, ORANGE
from meshwright.report.timesplit import time_split
from meshwright.words import percent, seconds

SVG = "{http://www.w3.org/2000/svg}"
WIDTHS = (NARROW, WIDE)


def rects(drawing, colour):
    return [each for each in ET.fromstring(str(drawing)).findall(f"{SVG}rect") if each.get("fill") == colour]


def lengths(drawing, colour):
    return [float(each.get("width")) for each in rects(drawing, colour) if float(each.get("height")) == 16.0]


def texts(drawing):
    return [each.text or "" for each in ET.fromstring(str(drawing)).findall(f"{SVG}text")]


@pytest.mark.parametrize("width", WIDTHS)
def test_parts_of_bars_are_as_long_as_their_values_and_the_limit_lies_on_their_scale(width):
    rows = [Parted(name="stage 0", parts=(10.0, 20.0), word="30 GiB"),
            Parted(name="stage 1", parts=(5.0, 60.0), word="65", over=True)]
    drawn = stacked(rows, [("a", BLUE), ("b", ORANGE)], width, title="t", limit=50.0, limit_word="usable")
    blue, orange = lengths(drawn, BLUE), lengths(drawn, ORANGE)
    assert blue[0] / blue[1] == pytest.approx(2.0, rel=0.02)
    assert orange[0] / blue[0] == pytest.approx(2.0, rel=0.02)
    left = min(float(each.get("x")) for each in rects(drawn, BLUE) if float(each.get("height")) == 16.0)
    at = float(re.search(r"M([\d.]+) [\d.]+L\1 ", str(drawn))[1])
    assert (at - left) / blue[0] == pytest.approx(5.0, rel=0.02), "the limit of 50 is five times the part of 10"
    assert {"stage 0", "stage 1", "30 GiB", "65", "usable"} <= set(texts(drawn))


@given(values=st.lists(st.floats(0.01, 1e4), min_size=1, max_size=9), width=st.sampled_from(WIDTHS))
def test_each_part_of_a_waterfall_begins_where_the_one_before_it_ends(values, width):
    drawn = waterfall([(f"part {place}", value, seconds(value), GREEN) for place, value in enumerate(values)], width, title="t")
    bars = [(float(each.get("x")), float(each.get("width"))) for each in rects(drawn, GREEN)]
    for (x, wide), (following, _) in pairwise(bars):
        assert following == pytest.approx(x + wide, abs=1.2), "up to the least width that is seen"
    assert bars[-1][0] + bars[-1][1] <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_long_names_stand_above_their_bars_whole(width):
    name = "recompute none -> selective:layernorm,moe_act and a word more than a phone has room for"
    drawn = changes([Changed(name=name, ratio=-0.1, word="-10 %")], width, title="t", less="shorter", more="longer")
    assert name in " ".join(each for each in texts(drawn))
    assert max(map(len, texts(drawn))) * 6.0 < width or width == WIDE


def test_a_value_its_interval_and_what_it_is_compared_with_lie_on_one_scale():
    rows = [Ranged(name="a", value=2.0, ends=(1.0, 3.0), other=4.0, word="2 s")]
    drawn = str(ranges(rows, WIDE, title="t", words=seconds, label="s", of="measured", other="predicted"))
    ring, dot = (float(re.search(rf'<circle cx="([\d.]+)"[^>]*{look}', drawn)[1]) for look in ('stroke="', 'fill="#2f6fb3"'))
    whisker = re.search(r'M([\d.]+) [\d.]+L([\d.]+) [\d.]+" fill="none" stroke="#2f6fb3" stroke-width="2"', drawn)
    low, high = map(float, whisker.groups())
    assert dot == pytest.approx((low + high) / 2, abs=0.2)
    assert ring - dot == pytest.approx(high - low, abs=0.3)


@pytest.mark.parametrize("values", [[1.0], [1e-6, 1e-6], [1e12, 1.0], [3.0, 3.0000001], [0.5] * 40])
@pytest.mark.parametrize("width", WIDTHS)
def test_any_magnitude_has_a_chart(values, width):
    points = tuple((value, value) for value in values)
    for drawn in (
        pairs([Paired(name="a", points=points, words=("one",) * len(points))], width, title="t", across="x", up="y",
              words=(seconds, percent), factors=True),
        against([Paired(name="a", points=points)], width, title="t", across="x", up="y"),
        histogram(values, width, title="t", label="x", words=seconds),
        ranges([Ranged(name="a", value=value, word="w") for value in values], width, title="t", words=seconds, label="s"),
        stacked([Parted(name="a", parts=(value,), word="w") for value in values], [("p", BLUE)], width, title="t"),
    ):
        ET.fromstring(str(drawn))
        assert "nan" not in str(drawn) and "inf" not in str(drawn)


def test_sections_of_a_page_are_the_headings_of_the_terminal():
    first, sections = parted(plan_report(case(), result()))
    assert [each.title for each in sections] == ["Ranked plans", "Less memory for more time", "Memory by stage", "Time of one step"]
    assert isinstance(first[0], Table) and first[0].rows[0][1].words[0].text == "llama3-70b"
    ranked = next(block for block in sections[0].blocks if isinstance(block, Table))
    assert ranked.head[0] == "#" and 0 in ranked.right and len(ranked.rows) == 4
    assert any(cell.bar for cell in ranked.rows[0])
    kinds = {block.kind for block in (*first, *flat(sections)) if isinstance(block, Paragraph)}
    assert {"item", "small", "note"} <= kinds


def test_bars_of_the_terminal_keep_their_shares():
    (bar,) = [block for block in flat(time_split(estimate())) if isinstance(block, Bar)]
    assert sum(each.value for each in bar.parts) == pytest.approx(bar.scale)
    assert bar.parts[0].name == "compute" and bar.parts[0].value == pytest.approx(12.0 / 15.0 * bar.scale)


def test_a_change_is_drawn_by_what_is_expected_of_it():
    """A step that is shorter only where it fits is none that makes the plan faster."""
    def one(change, step, expected, fits=True):
        return Sensitivity(knob="cp", change=change, label="", refused_because=(), step_s=1.0 + step, step_change_ratio=step,
                           expected_change_ratio=expected, memory_reserved_bytes=1e9, memory_change_bytes=0.0, fits=fits)

    steps = [one("cp 2 -> 1", -0.05, 0.557), one("pp 8 -> 4", -0.01, -0.01), one("tp 4 -> 2", -0.08, 9.0, fits=False)]
    rows = knobs_of(steps, []).blocks[0].data["rows"]
    assert [(row.ratio, row.bad, row.word) for row in rows] == [
        (-0.08, True, "-8.0 %, does not fit"), (-0.01, False, "-1.0 %"), (0.557, False, "+55.7 % (-5.0 %)"),
    ]


@pytest.mark.parametrize("width", [330.0, 860.0])
def test_what_the_sides_of_changes_mean_stands_apart(width):
    rows = [Changed(name="a", ratio=ratio, word="+65.1 %, and why it does not fit at all") for ratio in (-0.01, 0.6)]
    texts = ET.fromstring(str(changes(rows, width, title="t", less="shorter step", more="longer step"))).findall(".//{*}text")
    less, more = [each for each in texts if each.text and "step" in each.text]
    assert float(less.get("x")) + width_of(less.text, 11) <= float(more.get("x")) - width_of(more.text, 11) <= width
