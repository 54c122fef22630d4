"""The page of a diagnosis: everything that is known is drawn, nothing that is not, and nobody's words do anything."""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ET
from html import unescape
from typing import Any

import pytest
from diagnosis_samples import finding, part, view_of

from meshwright.report.console import show
from meshwright.report.diagnose import evidence_words, told_of_view, worth
from meshwright.report.page import diagnosis_picture
from meshwright.report.page.html import html
from meshwright.report.page.plain import plain_view, view_of_plain
from meshwright.report.pages.diagnose import page_of_view

SVG = "{http://www.w3.org/2000/svg}"


def parts(view: dict[str, Any]) -> str:
    return str(diagnosis_picture.parts(view))


def course(view: dict[str, Any]) -> str:
    return str(diagnosis_picture.course(view))


def ranks(view: dict[str, Any]) -> str:
    return str(diagnosis_picture.ranks(view))


def page(view: dict[str, Any]) -> str:
    return html(page_of_view(view))


def test_the_page_is_json_and_back_and_says_what_the_terminal_says() -> None:
    """One set of words: what a finding costs, and what shows it, stands on both in the same spelling."""
    for view in (view_of(), view_of(expected={})):
        found = page_of_view(view)
        back = view_of_plain(json.loads(json.dumps(plain_view(found))))
        assert back == found and html(back) == html(found)
        stream = io.StringIO()
        show(told_of_view(view), stream, 110)
        shown = " ".join(unescape(re.sub(r"<[^>]+>", "", html(found))).split())
        for each in view["findings"]:
            for said in (*("".join(run.text for run in said) for said in worth(each)), *evidence_words(each), each["message"]):
                assert " ".join(said.split()) in shown and said in stream.getvalue()
        assert "fails  communication at most 20 % of the step: 25.0 %" in stream.getvalue() and "the step: 25.0 %" in shown


def bars(picture: str) -> list[tuple[str, float]]:
    """Colour and width of every bar; the paper and the frame are none."""
    found = [each for each in ET.fromstring(picture).findall(f"{SVG}rect")[2:] if each.get("width") != "11"]
    return [(each.get("fill") or "", float(each.get("width") or 0.0)) for each in found]


def words(picture: str) -> list[str]:
    return [each.text or "" for each in ET.fromstring(picture).findall(f"{SVG}text")]


def test_bars_are_as_long_as_their_seconds() -> None:
    drawn = bars(parts(view_of()))
    assert [colour == drawn[0][0] for colour, _ in drawn] == [True, False, True, False, False, True, False]
    widths = [width for _, width in drawn]
    assert [round(each / widths[0], 2) for each in widths] == [1.0, 0.8, 0.5, 0.45, 0.05, 0.2, 0.1]
    assert words(parts(view_of())).count("not known") == 1
    assert "cp" not in words(parts(view_of())), "neither observed nor predicted"


def test_without_a_prediction_shares_of_the_step_are_drawn() -> None:
    picture = parts(view_of(expected={}))
    assert [each for each in words(picture) if each in ("compute", "bubble", "data", "other", "waiting", "host")] == [
        "compute", "bubble", "data", "other"]
    assert [round(width / bars(picture)[0][1], 2) for _, width in bars(picture)] == [1.0, 0.4, 0.2, 0.4]


def test_steps_are_told_apart_and_a_long_first_one_does_not_flatten_the_others() -> None:
    root = ET.fromstring(course(view_of()))
    dots = {each.get("stroke"): re.findall(r"M([\d.]+) ([\d.]+)h0", each.get("d") or "")
            for each in root.findall(f"{SVG}path") if "h0" in (each.get("d") or "")}
    assert sorted(map(len, dots.values())) == [1, 1, 7]
    (steady,) = [places for places in dots.values() if len(places) == 7]
    heights = {float(y) for _, y in steady}
    assert len(heights) == 1
    foot, top = 220.0, 40.0
    assert 0.4 < (foot - heights.pop()) / (foot - top) < 0.7, "a step of 1 s, where the longest that counts takes 1.8 s"


def test_a_slow_rank_is_marked_and_of_many_the_ends_are_shown() -> None:
    drawn = bars(ranks(view_of()))
    assert [colour == drawn[0][0] for colour, _ in drawn] == [True, True, True, False]
    many = [{"rank": rank, "compute_s": 1.0 + rank, "window_s": 999.0} for rank in range(200)]
    picture = ranks(view_of(ranks=many))
    named = [each for each in words(picture) if each.startswith("rank ")]
    assert (len(named), named[0], named[-1]) == (64, "rank 0", "rank 199")


def test_the_page_holds_what_is_known() -> None:
    whole = page(view_of()).replace("&nbsp;", " ")
    assert whole.count("<svg") == 6, "each for a desk and for a phone"
    for each in ("slow", "tp2 pp4 dp1", "20.0 % lost", "10.0 % less with tp2 pp2", "at most 10.0 % less", "run.log:21", "A note."):
        assert each in whole
    bare = page(view_of(expected={}, split=None, steps=[], ranks=[], findings=[], notes=[], label=None,
                        observed=dict.fromkeys(view_of()["observed"])))
    assert "<svg" not in bare
    assert page(view_of()).replace("&nbsp;", " ") == whole


@pytest.mark.parametrize("hostile", ["<script>alert(1)</script>", "\"' onload=x", "a\x1b]0;t\x07\u202e", "&amp;<b>"])
def test_nobodys_words_do_anything(hostile: str) -> None:
    found = finding(message=hostile, id=hostile, remedy=[hostile], change=hostile,
                    evidence=[{"text": hostile, "file": hostile, "line": None}])
    whole = page(view_of(label=hostile, notes=[hostile], findings=[found], expected={"step": part(1.0, 0.8)}))
    for svg in re.findall(r"<svg.*?</svg>", whole, re.DOTALL):
        ET.fromstring(svg)
    assert whole.count("<script") == 1
    assert "<b>" not in whole
    assert "\x1b" not in whole


@pytest.mark.parametrize("times", [[1.0], [1e-6, 1e-6], [1e4] * 3, [0.5, 0.5000001]])
def test_any_magnitude_has_a_picture(times: list[float]) -> None:
    steps = [{"number": number, "step_s": each, "kind": "steady"} for number, each in enumerate(times)]
    view = view_of(steps=steps, expected={}, observed=view_of()["observed"] | {"step_s": times[0]})
    ET.fromstring(course(view))
    ET.fromstring(parts(view | {"split": view["split"] | {"step_s": times[0]}}))
