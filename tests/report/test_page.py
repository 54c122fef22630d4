"""Pages: nobody's text does anything in them, nothing is fetched, and the same page is the same bytes."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from meshwright.report.blocks import (
    DIFFERENCE,
    Beside,
    Chart,
    Code,
    Folded,
    Paragraph,
    Run,
    Section,
    Strip,
    Tile,
    Tiles,
    View,
    cell,
    table,
    words,
)
from meshwright.report.page.drawn import Parted
from meshwright.report.page.html import html
from meshwright.report.page.plain import plain_view, view_of_plain
from meshwright.report.page.plots import plot
from meshwright.report.page.theme import DARK, DAY, WORDS_BY_DAY, WORDS_BY_NIGHT
from meshwright.report.svg import BLUE, Drawing

HOSTILE = "</script><script>alert(1)</script>]]>--><img src=x onerror=alert(1)>\" onload=\"alert(1)'\u202eevil\x1b[31m\ud800&amp;"


def drawing(width: float) -> Drawing:
    drawn = Drawing(width=width, height=40, title=HOSTILE, description=HOSTILE)
    drawn.text(0, 10, HOSTILE)
    drawn.rectangle(0, 20, width, 10, BLUE, value=HOSTILE)
    drawn.dots([(1.0, 2.0), (3.0, 4.0)], BLUE, values=[HOSTILE, HOSTILE])
    return drawn


def page_of(text: str) -> View:
    blocks = (
        Paragraph(words=words(text)), Paragraph(words=words(text), kind="item"), table([text], [[cell(text)]], caption=text),
        Chart(wide=drawing(860), narrow=drawing(330), caption=text), Chart(wide=drawing(900), zoom=True),
        Code(text=text, name=text),
        Strip(knobs=((text, text),), label=text), Beside(blocks=(Paragraph(words=words(Run(text, badge=True))),)),
        Code(text=f"+{text}\n-{text}", name=DIFFERENCE), table([text, text, text * 60], [[cell(text)] * 3]),
        plot("stacked", caption=text, title=text, rows=(Parted(name="a", parts=(1.0,), word=text),), parts=((text, BLUE),)),
        Folded(title=text, blocks=(Tiles(tiles=(Tile(name=text, value=text, remark=text),)),)),
    )
    return View(verb=text, title=text, subtitle=text, first=blocks, sections=(Section(title=text, blocks=blocks),) * 3)


class Elements(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.said = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.said += data


def test_nobodys_text_does_anything():
    plain, hostile = Elements(html(page_of("a"))), Elements(html(page_of(HOSTILE)))
    assert hostile.tags == plain.tags
    assert hostile.attributes == plain.attributes
    assert hostile.tags.count("script") == 1
    assert not {each for each in hostile.attributes if each.startswith("on")} | {"src"} & hostile.attributes
    assert "alert(1)" in hostile.said
    assert not re.search(r"[\u202e\x1b\ud800]", html(page_of(HOSTILE)))


def test_a_page_asks_for_nothing():
    text = html(page_of("a"))
    assert not re.search(r"""(?:src|href|srcset|data|action|poster)=["'](?!#)|url\(|@import|https?://""", text)
    assert "default-src 'none'" in text


def test_no_line_of_a_page_ends_between_a_figure_and_its_unit():
    said = "8.3 % of 1.6M tokens/s, 3 stages, 2.50 s"
    written = html(View(verb="x", title=said, first=(Paragraph(words=words(said)), table([said], [[cell(said)]]))))
    assert written.count("8.3&nbsp;% of 1.6M&nbsp;tokens/s, 3 stages, 2.50&nbsp;s") == 4


def test_the_same_page_is_the_same_bytes():
    assert html(page_of("a")) == html(page_of("a"))


def test_a_page_is_plain_values():
    plain = plain_view(page_of("a"))
    assert json.loads(json.dumps(plain)) == plain
    assert plain["sections"][0]["blocks"][2]["rows"][0][0]["words"][0]["text"] == "a"
    back = view_of_plain(json.loads(json.dumps(plain)))
    assert back == page_of("a") and html(back) == html(page_of("a"))


def test_a_mark_says_what_it_stands_for_on_a_page_alone():
    drawn = Drawing(width=10, height=10, title="t")
    drawn.rectangle(0, 0, 1, 1, BLUE, value="a < b\nc")
    drawn.dots([(1, 1), (2, 2), (1, 1)], BLUE, values=["first", "second", "hidden by the first"])
    assert 'data-v="a &lt; b c"' in drawn.inline() and 'data-v="first&#10;second"' in drawn.inline()
    assert "data-v" not in str(drawn), "a picture that stands alone has no script that could show it"


def test_a_layout_is_shown_knob_by_knob_and_whole():
    """Every word of every label of the domain has its box, and the label beside it reads back."""
    from hypothesis import given, settings

    from meshwright.domain.label import label
    from meshwright.report.pages.layouts import strip
    from strategies import planned

    same = {"schedule", "attention", "overlap"}

    @settings(max_examples=60, deadline=None)
    @given(planned())
    def checked(found):
        said = label(found[1])
        shown = strip(said)
        assert shown.label == said and len(shown.knobs) == len(said.split())
        for (name, value), word in zip(shown.knobs, said.split(), strict=True):
            key = word.partition("=")[0]
            assert name and value and (name != key or key in same), f"{word} has no name that people use"

    checked()


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [DAY, DARK], ids=["day", "night"])
def test_words_stand_out_from_their_grounds(colours):
    for name in ("ink", "muted", "accent", "good", "bad", "warn"):
        for ground in ("paper", "raised", "warn-ground"):
            assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)


def test_coloured_words_and_areas_of_drawings_stand_out_by_day_and_by_night():
    from meshwright.report.page.theme import OF_STYLE, SERIES

    for area in {*SERIES, *OF_STYLE.values()}:
        assert contrast(area, DAY["paper"]) >= 2.9, area
        assert contrast(area, DARK["paper"]) >= 3.0, area
    for area, by_night in WORDS_BY_NIGHT.items():
        assert contrast(WORDS_BY_DAY.get(area, area), DAY["paper"]) >= 4.5, area
        assert contrast(by_night, DARK["paper"]) >= 4.5, area
