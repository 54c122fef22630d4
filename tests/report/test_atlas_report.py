"""The atlas on a terminal, as a picture, as PNG and as a page, from made-up cells."""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.draws import examples
from tests.report.atlas_samples import cell, empty, wide_atlas

from meshwright.api.cells.difference import Difference
from meshwright.api.verbs.atlas import AtlasAnswer, AtlasRequest
from meshwright.api.views.atlas import atlas_view
from meshwright.report import atlas_panel, atlas_picture
from meshwright.report.atlas import mfu_word
from meshwright.report.atlas_lines import linearity_drawing
from meshwright.report.atlas_panel import map_drawing
from meshwright.report.atlas_picture import difference_map_of, map_of, picture
from meshwright.report.atlas_scale import DARK_INK, LIGHT_INK, contrast, diverging, ink_on, luminance, ramp
from meshwright.report.atlas_told import told_of
from meshwright.report.console import show
from meshwright.report.page.html import html
from meshwright.report.page.plain import plain_view, view_of_plain
from meshwright.report.pages import page_of
from meshwright.text import visible
from meshwright.units import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from meshwright.api.cells.cell import Cell

def view(cells: Sequence[Cell], differences: list[Difference] | None = None, **more: Any) -> dict[str, Any]:
    said = {"missing": 0, "interrupted": False, "notes": [], **more}
    return atlas_view({"pin": ["tp=8"]}, cells, differences, **said)


def printed(document: dict[str, Any], width: int) -> str:
    stream = io.StringIO()
    show(told_of(document), stream, width)
    return stream.getvalue()


WIDE = [cell("a-model-of-a-long-name", 2**place) for place in range(14)] + [empty("b", 1, missing_bytes=1500 * GIB), empty("b", 2)]
NAMES = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=40), min_size=1, max_size=4, unique=True)


@pytest.mark.parametrize("width", [80, 110])
def test_no_value_is_cut_off(width):
    text = printed(view(WIDE), width)
    assert max(map(len, text.splitlines())) <= width and "\u2026" not in text
    for each in WIDE:
        assert mfu_word(view([each])["cells"][0]) in text
        assert f"{each.devices // 8:,}" in text
    flat = " ".join(text.split())
    assert "1,500 GiB of no room" in flat and "b on 2 nodes: no room" in flat and "selective:core_attn" in flat


@examples(30)
@given(names=NAMES, width=st.integers(80, 140))
def test_any_name_is_shown_whole_and_moves_nothing(names, width):
    document = view([cell(name, nodes) for name in names for nodes in (1, 2, 16)])
    text = printed(document, width)
    assert visible(text, keep="\n") == text
    ET.fromstring(picture(document))


def test_the_view_of_an_atlas_is_json_and_back():
    """Maps are data as well: what a renderer makes of the JSON is what it makes of the answer, at any width."""
    measured = [cell("a", nodes, source="measured", grade=None, run={"failed": 0}) for nodes in (1, 2)]
    one = AtlasAnswer(asked=AtlasRequest(), request={}, cells=(cell("a", 1), cell("a", 2), *measured),
                      differences=tuple(DIFFERENCES[:2]))
    for answer in (wide_atlas(), one):
        page = page_of(answer)
        back = view_of_plain(json.loads(json.dumps(plain_view(page))))
        assert back == page and html(back) == html(page)
        for width in (80, 110):
            stream = io.StringIO()
            show(back.told, stream, width)
            assert stream.getvalue() == printed(answer.to_json(), width)


def test_coarse_cells_and_missing_ones_are_marked():
    document = view([cell("a", 1, grade="coarse"), cell("a", 2)], missing=3, interrupted=True)
    text = printed(document, 80)
    assert "~40.0 %" in text and " 20.0 %" in text and "1 of 2 cells by the grid" in text.replace("\n", " ")
    assert "interrupted: 3 cells not come to" in text and not document["complete"]
    assert "stroke-dasharray" in map_drawing(**map_of(document, "predicted"), width=860.0).inline()
    assert "stroke-dasharray" not in map_drawing(**map_of(view([cell("a", 2)]), "predicted"), width=860.0).inline()


def test_parts_of_nodes_stand_as_devices():
    text = printed(view([cell("a", 1, devices=4), cell("a", 1)]), 80)
    assert re.search(r"model \\ devices +4 +8", text)


DIFFERENCES = [
    Difference(series="a", device="h100-sxm", devices=8, verdict="same", predicted_label="x", measured_label="x", changes={},
               predicted_step_s=1.0, interval_s=(0.9, 1.1), measured_step_s=1.05, measured_layout_step_s=1.0, holds=True,
               tried_step_s=1.05, regret_ratio=0.0),
    Difference(series="a", device="h100-sxm", devices=16, verdict="other", predicted_label="x", measured_label="y",
               changes={"tp": (2, 4), "zero": (0, 1)}, predicted_step_s=1.0, measured_step_s=0.5, measured_layout_step_s=1.0,
               holds=False, tried_failed=True),
    Difference(series="a", device="h100-sxm", devices=32, verdict="neither", ran=0, failed=3),
]


def test_differences_are_counted_named_and_drawn():
    measured = [cell("a", nodes, source="measured", grade=None, run={"failed": 0}) for nodes in (1, 2)]
    document = view([cell("a", nodes) for nodes in (1, 2, 4)] + measured, DIFFERENCES)
    text = printed(document, 80)
    assert "1 of 2 measured cells have the same best layout" in text and "1 cell empty in both" in text.replace("\n", " ")
    assert "a, 2: tp 2 -> 4, zero 0 -> 1" in text and "failed" in text
    drawn = map_drawing(**difference_map_of(document), width=860.0).inline()
    assert "x 1.05" in drawn and "x 0.50" in drawn and "another layout" in drawn and "empty in both" in drawn
    assert document["linearity"][1]["points"][1]["row_linearity_ratio"] == 0.5


@pytest.mark.parametrize("width", [330.0, 760.0])
def test_lines_of_linearity_have_names_wherever_there_is_room(width):
    cells = [cell("a", 1), cell("a", 2), cell("b", 1), cell("b", 2, tokens_per_s_per_device=90_000.0)]
    drawn = linearity_drawing(view(cells), width)
    texts = [part for part in drawn.parts if part.startswith("<text")]
    assert sum(">a</text>" in part or ">b</text>" in part for part in texts) == 2
    assert min(float(found) for part in texts for found in re.findall(r'font-size="([0-9.]+)"', part)) >= 9.5


def test_a_picture_of_many_columns_has_panels_below_each_other():
    several = [cell("a", nodes) for nodes in range(1, 40)]
    drawn = atlas_picture.drawing(view(several))
    assert drawn.width < 1700 and all(f">{nodes}</text>" in str(drawn) for nodes in (1, 17, 39))
    assert str(drawn) == picture(view(several)), "the same bytes for the same figures"


@examples(50)
@given(share=st.floats(0, 1), ratio=st.floats(0.05, 20.0))
def test_words_are_read_on_every_colour(share, ratio):
    for colour in (ramp(share), diverging(ratio)):
        assert ink_on(colour) in (DARK_INK, LIGHT_INK) and contrast(ink_on(colour), colour) >= 4.5
    assert luminance(ramp(share)) <= luminance(ramp(min(1.0, share + 0.05))) + 1e-9, "also without colours"


def test_a_picture_is_a_png_of_twice_its_pixels():
    image = pytest.importorskip("PIL.Image")
    from meshwright.report.raster import png

    document = view([cell("a", 1), cell("a", 2, grade="coarse"), empty("b", 1, missing_bytes=GIB)])
    drawn = atlas_picture.drawing(document)
    content = png(str(drawn))
    assert content == png(str(drawn))
    with image.open(io.BytesIO(content)) as found:
        assert found.size == (round(2 * drawn.width), round(2 * drawn.height))
        assert found.info["dpi"][0] == pytest.approx(192, abs=0.1)
        seen = {colour for _, colour in found.convert("RGB").getcolors(found.width * found.height)}
    top = tuple(int(ramp(1.0)[at : at + 2], 16) for at in (1, 3, 5))
    assert top in seen and (255, 255, 255) in seen and len(seen) > 100


@pytest.mark.parametrize("label", ["DP1024 TP4 CP2 PP8 VP4", "DP512 TP4 CP2 PP16 VP3 EP16", "DP2048 TP1 CP4 PP8"])
def test_labels_of_large_clusters_stay_in_their_cells(label):
    """By the widths of Arial's letters, in the narrowest cell."""
    widths = {"D": 0.722, "P": 0.667, "T": 0.611, "C": 0.722, "V": 0.667, "E": 0.667, " ": 0.278}
    for line in atlas_panel.wrapped(label, atlas_panel.CELL[-1] - 6, atlas_panel.SMALL * atlas_panel.PLAIN):
        assert sum(widths.get(each, 0.556) for each in line) * atlas_panel.SMALL <= atlas_panel.CELL[-1] - 6
